"""The whole model as a textbook has it: whole sequences, causal, no cache.

It is the form that is trained, and the oracle of the serving form in `serving.py`.
"""

import torch
import torch.nn.functional as F
from torch import nn

from minimoe.config import ModelConfig
from minimoe.model.attention import MLA
from minimoe.model.moe import DenseMLP, Experts, MoE, Router
from minimoe.ops.rope import rope_table


class Layer(nn.Module):
    """Attention, then an MLP or a mixture of experts, each on a normalised residual."""

    def __init__(self, config: ModelConfig, index: int):
        super().__init__()
        D, eps = config.hidden_size, config.rms_norm_eps
        self.attn_norm = nn.RMSNorm(D, eps=eps)
        self.attn = MLA(config)
        self.ffn_norm = nn.RMSNorm(D, eps=eps)
        dense = index < config.first_k_dense_replace
        self.ffn = DenseMLP(D, config.intermediate_size) if dense else MoE(config)

    def forward(self, x: torch.Tensor, turns: torch.Tensor, dropout: float) -> torch.Tensor:
        x = x + F.dropout(self.attn(self.attn_norm(x), turns), dropout, self.training)
        return x + F.dropout(self.ffn(self.ffn_norm(x)), dropout, self.training)


class Transformer(nn.Module):
    """DeepSeek-V3 style decoder. `model(ids [B, S])` gives logits `[B, S, V]`.

    `dropout` is applied to the output of each block in training mode only.
    """

    def __init__(self, config: ModelConfig, dropout: float = 0.0):
        super().__init__()
        self.config = config
        self.dropout = dropout
        V, D = config.vocab_size, config.hidden_size
        # Weights of its own: the default ones, drawn on a meta device, load the whole compiler.
        self.embed = nn.Embedding(V, D, _weight=torch.empty(V, D))
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(D, eps=config.rms_norm_eps)
        self.head = nn.Linear(D, V, bias=False)
        if config.tie_word_embeddings:
            self.head.weight = self.embed.weight
        self._turns = None

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.hidden(ids))

    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        """Normalised final hidden states `[B, S, D]` of `ids [B, S]`."""
        x = F.dropout(self.embed(ids), self.dropout, self.training)
        turns = self.turns(ids.device)[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, turns, self.dropout)
        return self.norm(x)

    def turns(self, device) -> torch.Tensor:
        """Rotations `[max positions, R/2]`: complex128 for a float64 model, else complex64."""
        wide = self.embed.weight.dtype == torch.float64
        dtype = torch.complex128 if wide else torch.complex64
        if self._turns is None or self._turns.dtype != dtype or self._turns.device != device:
            config = self.config
            table = rope_table(
                config.max_position_embeddings,
                config.qk_rope_head_dim,
                config.rope_theta,
                config.rope_scaling,
            )
            self._turns = table.to(device, dtype)
        return self._turns

    @torch.no_grad()
    def init_weights(self, std: float = 0.02, seed: int = 0) -> "Transformer":
        """Random normal weights; outputs of blocks start smaller, by the square root of depth."""
        random = torch.Generator(self.embed.weight.device).manual_seed(seed)
        small = std / (2 * self.config.num_hidden_layers) ** 0.5
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding | Router):
                module.weight.normal_(0, std, generator=random)
            if isinstance(module, Experts):
                module.gate_up.normal_(0, std, generator=random)
                module.down.normal_(0, small, generator=random)
        for layer in self.layers:
            layer.attn.o.weight.normal_(0, small, generator=random)
            mlp = layer.ffn if isinstance(layer.ffn, DenseMLP) else layer.ffn.shared
            mlp.down.weight.normal_(0, small, generator=random)
        return self


def moe_layers(model: Transformer) -> list[MoE]:
    """The mixture-of-experts layers, first to last."""
    return [layer.ffn for layer in model.layers if isinstance(layer.ffn, MoE)]
