"""The model as it is served: one flat step of T tokens over paged KV caches.

Same weights and same results as the textbook `Transformer`, in another order of operations. Experts
are called through the textbook's `Experts` module, which expert parallelism replaces.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from minimoe.config import ModelConfig
from minimoe.model.moe import DenseMLP, Experts, MoE, choose
from minimoe.model.serving_attention import Pages, ServingAttention
from minimoe.model.step import Step
from minimoe.model.transformer import Layer, Transformer
from minimoe.ops.columns import by_columns
from minimoe.ops.grouped_experts import silu_mul
from minimoe.ops.norm import norm_floor, rms_norm, scale_weight
from minimoe.ops.rope import widen_turns


class ServingMLP:
    """Dense gated MLP; `add_to` adds its output to the residual `x [T, D]`."""

    def __init__(self, mlp: DenseMLP):
        self.gate_up, self.down = by_columns(mlp.gate_up.weight), by_columns(mlp.down.weight)

    def add_to(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Add the MLP's answer for y `[T, D]` to x `[T, D]`, in place."""
        x.addmm_(silu_mul(torch.mm(y, self.gate_up)), self.down)


class ServingMoE:
    """Router, experts and shared MLP. Router and shared MLP share one product in float32.

    Plug-in point: `run_experts(x [T, D], ids [T, K], weights [T, K])` gives the routed experts'
    answer `[T, D]`.
    """

    def __init__(self, moe: MoE, config: ModelConfig):
        self.config, self.experts, self.bias = config, moe.experts, moe.router.bias
        self.scale = config.routed_scaling_factor
        self.run_experts = moe.experts  # or what stands in its place, such as expert parallelism
        if isinstance(moe.experts, Experts):
            moe.experts.lay_out()
            self.run_experts = moe.experts.serve
        self.on_route: Callable | None = None
        self.shared_down = by_columns(moe.shared.down.weight)
        self.router, self.shared_up = moe.router.weight, moe.shared.gate_up.weight
        self.both = None
        if self.router.dtype in (torch.float32, torch.float64):
            both = torch.cat([self.router, self.shared_up])
            self.both = by_columns(both)  # [D, E + 2 * shared]

    def add_to(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Add the answer of shared and chosen experts for y `[T, D]` to x `[T, D]`, in place."""
        logits, hidden = self._router_and_shared(y)
        ids, weights = choose(logits.sigmoid(), self.bias, self.config)
        if self.on_route is not None:
            self.on_route(ids, weights * self.scale)
        x.add_(self.run_experts(y, ids, weights.to(y.dtype)), alpha=self.scale)
        x.addmm_(silu_mul(hidden), self.shared_down)

    def _router_and_shared(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Router logits `[T, E]` (float32 or wider) and the shared MLP's gate and up rows."""
        if self.both is None:
            return F.linear(y.float(), self.router.float()), F.linear(y, self.shared_up)
        both, E = torch.mm(y, self.both), self.config.n_routed_experts
        return both[:, :E], both[:, E:]


class ServingLayer:
    """Norms, attention and MLP of one layer."""

    def __init__(self, layer: Layer, config: ModelConfig):
        self.attn = ServingAttention(layer.attn)
        dense = isinstance(layer.ffn, DenseMLP)
        self.ffn = ServingMLP(layer.ffn) if dense else ServingMoE(layer.ffn, config)
        self.attn_norm = scale_weight(layer.attn_norm.weight)
        self.ffn_norm = scale_weight(layer.ffn_norm.weight)


class ServingModel:
    """`forward(step, pages)` gives logits and writes the new KV rows; see `new_kv` and `pages`."""

    def __init__(self, model: Transformer):
        config = model.config
        self.config, self.textbook = config, model
        self.embed, self.head = model.embed.weight, model.head.weight
        self.head_t = by_columns(self.head)  # [D, V]
        self.floor = norm_floor(config.hidden_size, config.rms_norm_eps, self.embed)
        self.norm = scale_weight(model.norm.weight)
        self.layers = [ServingLayer(layer, config) for layer in model.layers]
        turns = model.turns(self.embed.device)
        self.turns = widen_turns(turns, config.kv_lora_rank)  # [positions, 1, (C + R)/2]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed.device

    @property
    def dtype(self) -> torch.dtype:
        """In what the weights are kept."""
        return self.embed.dtype

    def new_kv(self, blocks: int, block_size: int) -> torch.Tensor:
        """An empty cache: the `target` plane, `[layers, blocks, block_size, C + R]`."""
        shape = (self.config.num_hidden_layers, blocks, block_size, self.config.kv_width)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def pages(self, kv: torch.Tensor) -> list[Pages]:
        """A cache from `new_kv`, as the layers take it: with a workspace for a quarter of it."""
        blocks = max(1, kv.shape[1] // 4)
        workspace = kv.new_empty(blocks * kv.shape[2] * kv.shape[3])
        return [Pages(layer, workspace) for layer in kv.unbind(0)]

    @torch.inference_mode()
    def forward(self, step: Step, pages: list[Pages]) -> torch.Tensor:
        """Logits `[B', V]` of the rows asked for."""
        return torch.mm(self.hidden(step, pages), self.head_t)

    @torch.inference_mode()
    def hidden(self, step: Step, pages: list[Pages]) -> torch.Tensor:
        """Normalised final hidden states `[B', D]` of the rows asked for."""
        x = self.embed.index_select(0, step.ids)  # [T, D]
        turns = self.turns.index_select(0, step.positions)
        kept = []
        for index, (layer, own_pages) in enumerate(zip(self.layers, pages, strict=True)):
            y = rms_norm(x, layer.attn_norm, self.floor)
            layer.attn.add_to(x, y, own_pages, step, turns)
            y = rms_norm(x, layer.ffn_norm, self.floor)
            layer.ffn.add_to(x, y)
            if index in step.tap_layers:
                kept.append(x.clone())
        if kept:
            step.taps = torch.cat(kept, dim=-1)  # [T, taps * D]
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
