"""DSpark: a parallel block drafter with a light sequential head, in its textbook form.

A few ordinary layers of the target's own shape draft G tokens in one pass (DSpark, arXiv
2607.05147, after DFlash). They see the target's context through its hidden states: the residual
stream after a few chosen target layers, projected to one vector a position, from which each draft
layer makes its KV row. The block itself is the anchor (the last sampled token) and G - 1 mask
embeddings; inside it everyone sees everyone. Embedding and output head are the target's, frozen.

The positions of a block are drafted side by side, so a position does not know what was drawn before
it. Two small heads put that back, left to right: a low-rank Markov bias on the logits, and the
confidence that a token will be accepted.

This is the form that is trained, over whole sequences with many anchors each and no cache; it is
the oracle of the serving form in `serving_dspark.py`.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minimoe.config import ModelConfig
from minimoe.model.attention import MLA
from minimoe.model.transformer import Layer, Transformer
from minimoe.ops.rope import rotate
from minimoe.speculative.dspark_config import DSparkConfig


class DraftAttention(MLA):
    """MLA whose keys come from the target's context and from the block, by one projection."""

    def attend(self, x, context, mask, turns, context_turns) -> Tensor:
        """`x [B, T, D]` (T block tokens, normalised) over `context [B, S, D]` and over itself;
        `mask [B, 1, T, S + T]` is True where a token may look. Gives `[B, T, D]`."""
        config = self.config
        N, R, H = config.qk_nope_head_dim, config.qk_rope_head_dim, config.num_attention_heads
        q = self.queries(x)
        q = torch.cat([q[..., :N], rotate(q[..., N:], turns[:, :, None])], dim=-1)
        rows = self.kv_a(torch.cat([context, x], dim=1))  # [B, S + T, C + R]
        latent, k_rope = rows.split([config.kv_lora_rank, R], dim=-1)
        kv = self.kv_b(self.kv_norm(latent)).unflatten(-1, (H, -1))  # [B, S + T, H, N + V]
        k_rope = rotate(k_rope, torch.cat([context_turns.expand(len(x), -1, -1), turns], dim=1))
        k = torch.cat([kv[..., :N], k_rope[:, :, None].expand(-1, -1, H, -1)], dim=-1)
        v = F.pad(kv[..., N:], (0, max(0, q.shape[-1] - config.v_head_dim)))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # [B, H, T or S + T, N + R]
        out = F.scaled_dot_product_attention(q, k, v, mask, scale=self.scale)
        return self.o(out.transpose(1, 2)[..., : config.v_head_dim].flatten(-2))


class DraftLayer(Layer):
    """A target layer with a dense MLP, whose attention also sees the context."""

    def __init__(self, config: ModelConfig):
        super().__init__(config, 0)
        self.attn = DraftAttention(config)

    def forward(self, x: Tensor, context: Tensor, mask: Tensor, turns, context_turns) -> Tensor:
        x = x + self.attn.attend(self.attn_norm(x), context, mask, turns, context_turns)
        return x + self.ffn(self.ffn_norm(x))


class DSpark(nn.Module):
    """The drafter's own weights; embedding and head are passed in, or the target is.

    Args:
        config: block length, layers, taps, rank of the Markov head (0: without).
        target: shape of the target model, which the draft layers share.
    """

    def __init__(self, config: DSparkConfig, target: ModelConfig):
        super().__init__()
        self.config, self.target = config, target
        self.layer_config = layer_config(config, target)
        D, V, eps = target.hidden_size, target.vocab_size, target.rms_norm_eps
        self.fuse = nn.Linear(len(config.taps) * D, D, bias=False)
        self.fuse_norm = nn.RMSNorm(D, eps=eps)
        self.mask = nn.Parameter(torch.zeros(D))
        self.layers = nn.ModuleList(DraftLayer(self.layer_config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(D, eps=eps)
        rank = config.markov_rank
        if rank:
            self.markov_in = nn.Embedding(V, rank)
            self.markov_out = nn.Linear(rank, V, bias=False)
        self.confident = nn.Linear(D + rank, 1)

    def context(self, taps: Tensor) -> Tensor:
        """Tapped hidden states `[..., 3D]` (one D for each tap) to the context `[..., D]`."""
        return self.fuse_norm(self.fuse(taps))

    def forward(self, embed: Tensor, turns: Tensor, taps: Tensor, ids: Tensor, anchors: Tensor):
        """Draft a block behind each of A anchors of every sequence.

        Args:
            embed: the target's embedding `[V, D]`; turns: its rotations `[positions, R/2]`.
            taps: `[B, S, 3D]` of the whole sequences `ids [B, S]`.
            anchors: `[B, A]` positions of the anchors; a block may reach beyond S.

        Returns normalised hidden states `[B, A, G, D]`: number k of a block is for the token at
        anchor + k + 1. A block sees the context before its anchor, itself, and no other block.
        """
        G, (B, A) = self.config.length, anchors.shape
        masks = self.mask.expand(B, A, G - 1, -1)
        first = F.embedding(ids.gather(1, anchors), embed).to(masks.dtype)[:, :, None]
        x = torch.cat([first, masks], dim=2).flatten(1, 2)  # [B, A * G, D]
        positions = (anchors[:, :, None] + torch.arange(G, device=ids.device)).flatten(1)
        mask = block_mask(anchors, taps.shape[1], G)
        context = self.context(taps)
        for layer in self.layers:
            x = layer(x, context, mask, turns[positions], turns[: taps.shape[1]])
        return self.norm(x).view(B, A, G, -1)

    def logits(self, hidden: Tensor, previous: Tensor, head: Tensor) -> Tensor:
        """`hidden [..., D]`, the token before each `previous [...]` and the target's `head [V, D]`
        to logits `[..., V]`."""
        base = F.linear(hidden, head)
        if not self.config.markov_rank:
            return base
        return base + self.markov_out(self.markov_in(previous))

    def confidence(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Logits `[...]` of the chance that the token is accepted, if all before it were."""
        if self.config.markov_rank:
            hidden = torch.cat([hidden, self.markov_in(previous).to(hidden.dtype)], dim=-1)
        return self.confident(hidden).squeeze(-1)

    @torch.no_grad()
    def init_weights(self, std: float = 0.02, seed: int = 0) -> "DSpark":
        """Random normal weights; the Markov bias and the confidence start at zero."""
        random = torch.Generator(self.mask.device).manual_seed(seed)
        small = std / (2 * self.config.layers) ** 0.5
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(0, std, generator=random)
        for layer in self.layers:
            layer.attn.o.weight.normal_(0, small, generator=random)
            layer.ffn.down.weight.normal_(0, small, generator=random)
        self.mask.normal_(0, std, generator=random)
        self.confident.weight.zero_()
        self.confident.bias.zero_()
        if self.config.markov_rank:
            self.markov_out.weight.zero_()
        return self


def layer_config(config: DSparkConfig, target: ModelConfig) -> ModelConfig:
    """The target's shape with dense layers of the drafter's number and width."""
    return replace(
        target,
        num_hidden_layers=config.layers,
        first_k_dense_replace=config.layers,
        intermediate_size=config.intermediate_size,
    )


def block_mask(anchors: Tensor, positions: int, length: int) -> Tensor:
    """Who may see whom: `anchors [B, A]` to `[B, 1, A * G, S + A * G]`, True where allowed."""
    B, A = anchors.shape
    before = torch.arange(positions, device=anchors.device) < anchors[:, :, None]  # [B, A, S]
    blocks = torch.arange(A, device=anchors.device).repeat_interleave(length)  # [A * G]
    own = (blocks[:, None] == blocks).expand(B, -1, -1)  # [B, A * G, A * G]
    return torch.cat([before.repeat_interleave(length, dim=1), own], dim=2)[:, None]


def hidden_and_taps(model: Transformer, ids: Tensor, taps: tuple[int, ...]):
    """Run the target over `ids [B, S]`: normalised final hidden states `[B, S, D]`, and the
    residual stream after each layer in `taps`, side by side `[B, S, len(taps) * D]`."""
    x = model.embed(ids)
    turns = model.turns(ids.device)[: ids.shape[1]]
    kept = []
    for index, layer in enumerate(model.layers):
        x = layer(x, turns, 0.0)
        if index in taps:
            kept.append(x)
    return model.norm(x), torch.cat(kept, dim=-1)
