"""Expert layers to compare with: a loop, PyTorch's grouped product, transformers' layer.

Each is given its rows already gathered and sorted by expert, which spares it work that our paths
include in their time. `make(...)` gives a function to time, or a reason why it cannot run.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from minimoe.ops.grouped_experts import silu_mul


def sorted_rows(x: torch.Tensor, ids: torch.Tensor, experts: int):
    """Rows `[R, D]` in expert order, their experts `[R]`, and the end of each expert `[E]`."""
    flat = ids.flatten()
    order = torch.argsort(flat, stable=True)
    order = order[int((flat < 0).sum()) :]
    chosen = flat[order]
    ends = torch.bincount(chosen, minlength=experts).cumsum(0).to(torch.int32)
    return x.index_select(0, order // ids.shape[1]), chosen, ends


def loop(rows, chosen, ends, gate_up, down) -> Callable:
    """One product per expert hit, as a first version would be written."""
    bounds = [0, *ends.tolist()]

    def run():
        out = torch.empty_like(rows)
        for expert in range(len(bounds) - 1):
            part = slice(bounds[expert], bounds[expert + 1])
            if part.start < part.stop:
                hidden = silu_mul(F.linear(rows[part], gate_up[expert]))
                out[part] = F.linear(hidden, down[expert])
        return out

    return run


def grouped_mm(rows, chosen, ends, gate_up, down) -> Callable:
    """`torch._grouped_mm` twice and SiLU between."""
    up, dn = gate_up.transpose(1, 2), down.transpose(1, 2)

    def run():
        return torch._grouped_mm(silu_mul(torch._grouped_mm(rows, up, offs=ends)), dn, offs=ends)

    return run


def transformers_layer(implementation: str):
    """transformers' DeepSeek-V3 experts with one of its implementations, on the same weights."""

    def make(rows, chosen, ends, gate_up, down) -> Callable:
        layer = _transformers_experts(gate_up, down, implementation)
        ids = chosen[:, None].long()
        weights = torch.ones_like(ids, dtype=rows.dtype)
        return lambda: layer(rows, ids, weights)

    return make


def _transformers_experts(gate_up, down, implementation: str):
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as modeling

    names = ("DeepseekV3Experts", "DeepseekV3NaiveMoe")  # by version
    kind = next(getattr(modeling, name) for name in names if hasattr(modeling, name))
    E, two_f, D = gate_up.shape
    config = DeepseekV3Config(
        hidden_size=D,
        moe_intermediate_size=two_f // 2,
        n_routed_experts=E,
        num_local_experts=E,
        n_group=1,
        topk_group=1,
    )
    config._experts_implementation = implementation
    with torch.device("meta"):
        layer = kind(config)
    layer.gate_up_proj = torch.nn.Parameter(gate_up, requires_grad=False)
    layer.down_proj = torch.nn.Parameter(down, requires_grad=False)
    return layer


BASELINES = {
    "per-expert loop": loop,
    "torch._grouped_mm": grouped_mm,
    "transformers eager": transformers_layer("eager"),
    "transformers grouped_mm": transformers_layer("grouped_mm"),
    "transformers batched_mm": transformers_layer("batched_mm"),
}
CAPTURABLE = {"torch._grouped_mm"}  # the others wait for the device, or may
BATCHED_ROWS = 256  # transformers' batched_mm copies an expert per row: not beyond this many,
# nor beyond a quarter of the free memory
