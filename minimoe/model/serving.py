"""The model as it is served: one flat step of T tokens over paged KV caches.

Same weights and same results as the textbook `Transformer`, in another order of operations. Experts
are called through the textbook's `Experts` module, which expert parallelism replaces.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from minimoe.config import ModelConfig
from minimoe.model.moe import DenseMLP, MoE, route
from minimoe.model.serving_attention import ServingAttention, Workspace
from minimoe.model.step import Step
from minimoe.model.transformer import Layer, Transformer
from minimoe.ops.grouped_experts import silu_mul
from minimoe.ops.norm import norm_floor, rms_norm, scale_weight


class ServingMLP:
    """Dense gated MLP; `add_to` adds its output to the residual `x [T, D]`."""

    def __init__(self, mlp: DenseMLP):
        self.gate_up, self.down = mlp.gate_up.weight, mlp.down.weight.t()

    def add_to(self, x: torch.Tensor, y: torch.Tensor) -> None:
        x.addmm_(silu_mul(F.linear(y, self.gate_up)), self.down)


class ServingMoE:
    """Router, experts and shared MLP. Router and shared MLP share one product in float32."""

    def __init__(self, moe: MoE, config: ModelConfig):
        self.config, self.experts, self.bias = config, moe.experts, moe.router.bias
        self.on_route: Callable | None = None
        self.shared_down = moe.shared.down.weight.t()
        self.router, self.shared_up = moe.router.weight, moe.shared.gate_up.weight
        self.both = None
        if self.router.dtype in (torch.float32, torch.float64):
            self.both = torch.cat([self.router, self.shared_up])  # [E + 2 * shared, D]

    def add_to(self, x: torch.Tensor, y: torch.Tensor) -> None:
        logits, hidden = self._router_and_shared(y)
        ids, weights = route(logits.sigmoid(), self.bias, self.config)
        if self.on_route is not None:
            self.on_route(ids, weights)
        x.add_(self.experts(y, ids, weights.to(y.dtype)))
        x.addmm_(silu_mul(hidden), self.shared_down)

    def _router_and_shared(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Router logits `[T, E]` (float32 or wider) and the shared MLP's gate and up rows."""
        if self.both is None:
            return F.linear(y.float(), self.router.float()), F.linear(y, self.shared_up)
        return F.linear(y, self.both).tensor_split([self.config.n_routed_experts], dim=-1)


class ServingLayer:
    """Norms, attention and MLP of one layer."""

    def __init__(self, layer: Layer, config: ModelConfig, workspace: Workspace):
        self.attn = ServingAttention(layer.attn, workspace)
        dense = isinstance(layer.ffn, DenseMLP)
        self.ffn = ServingMLP(layer.ffn) if dense else ServingMoE(layer.ffn, config)
        self.norms = [scale_weight(norm.weight) for norm in (layer.attn_norm, layer.ffn_norm)]


class ServingModel:
    """`forward(step, kv)` gives logits; `kv [layers, blocks, block_size, C + R]` is updated."""

    def __init__(self, model: Transformer):
        config = model.config
        self.config, self.textbook = config, model
        self.workspace = Workspace()
        self.embed, self.head = model.embed.weight, model.head.weight
        self.floor = norm_floor(config.hidden_size, config.rms_norm_eps, self.embed)
        self.norm = scale_weight(model.norm.weight)
        self.layers = [ServingLayer(layer, config, self.workspace) for layer in model.layers]
        self.turns = model.turns(self.embed.device)[:, None]  # [positions, 1, R/2]

    @property
    def device(self) -> torch.device:
        return self.embed.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.dtype

    def new_kv(self, blocks: int, block_size: int) -> torch.Tensor:
        """An empty cache: the `target` plane, `[layers, blocks, block_size, C + R]`."""
        shape = (self.config.num_hidden_layers, blocks, block_size, self.config.kv_width)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @torch.inference_mode()
    def forward(self, step: Step, kv: torch.Tensor) -> torch.Tensor:
        """Logits `[B', V]` of the rows asked for."""
        return F.linear(self.hidden(step, kv), self.head)

    @torch.inference_mode()
    def hidden(self, step: Step, kv: torch.Tensor) -> torch.Tensor:
        """Normalised final hidden states `[B', D]` of the rows asked for."""
        if step.short:
            table = step.short.block_table
            self.workspace.needed = table.numel() * kv.shape[2] * kv.shape[3]
        x = self.embed.index_select(0, step.ids)  # [T, D]
        turns = self.turns.index_select(0, step.positions)  # [T, 1, R/2]
        for layer, pages in zip(self.layers, kv.unbind(0), strict=True):
            y = rms_norm(x, layer.norms[0], self.floor)
            layer.attn.add_to(x, y, pages, step, turns)
            y = rms_norm(x, layer.norms[1], self.floor)
            layer.ffn.add_to(x, y)
        if step.logit_rows is not None:
            x = x.index_select(0, step.logit_rows)
        return rms_norm(x, self.norm, self.floor)

    def on_route(self, callback: Callable | None) -> None:
        """Call `callback(layer, ids [T, K], weights [T, K])` in each MoE layer; None to stop."""
        for index, layer in enumerate(self.layers):
            if isinstance(layer.ffn, ServingMoE):
                layer.ffn.on_route = callback and _bind_layer(callback, index)


def _bind_layer(callback: Callable, index: int) -> Callable:
    return lambda ids, weights: callback(index, ids, weights)
