"""`LLM("wide")`: random weights at least eight times the last-level cache, through the same code.

The shipped model is so small that a CPU keeps it in its caches. This one streams its weights from
memory at every step, as a large model does on a GPU. `LLM("wide:1.5")` takes at most 1.5 GiB of
weights, but no less than one MoE layer.
"""

import math
from pathlib import Path

import torch

from minimoe.config import ModelConfig
from minimoe.errors import MinimoeError
from minimoe.model.transformer import Transformer
from minimoe.perf.hardware import free_memory, last_level_cache

CACHES = 8  # times the last-level cache
MEMORY_SHARE = 0.4  # of the memory that is free
DEFAULT_CACHE = 32 * 2**20  # where the system does not say
EXPERTS, D, F = 64, 1024, 512  # experts of 6 MiB in float32, so that each is streamed


def is_wide(model: str | Path) -> bool:
    """Whether this name of a model means random weights."""
    return str(model).partition(":")[0] == "wide"


def limit_of(model: str | Path) -> float:
    """Bytes that the name allows: "wide:1.5" for 1.5 GiB, infinity for "wide"."""
    _, colon, limit = str(model).partition(":")
    try:
        gib = float(limit) if colon else math.inf
    except ValueError:
        gib = 0.0
    if not gib > 0:
        raise MinimoeError(f"model is {str(model)!r}: write 'wide', or 'wide:1.5' for 1.5 GiB")
    return gib * 2**30


def wide_config(itemsize: int = 4, device: str = "cpu", limit: float = math.inf) -> ModelConfig:
    """As many MoE layers as it takes, or as memory and `limit` bytes allow."""
    shape = {
        "hidden_size": D,
        "intermediate_size": 4096,
        "moe_intermediate_size": F,
        "num_attention_heads": 8,
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
        "n_shared_experts": 1,
    }
    layer_bytes = _layer_bytes(itemsize)
    fitting = int(free_memory(device) * MEMORY_SHARE) // layer_bytes
    if fitting < 1:
        raise MinimoeError(
            f"the wide model needs {layer_bytes / MEMORY_SHARE / 2**30:.1f} GiB of free memory: "
            "close other programs, or use dtype='bfloat16'"
        )
    layers = min(_wanted_layers(itemsize, device), fitting, max(1.0, limit / layer_bytes))
    return ModelConfig.tiny(num_hidden_layers=1 + int(layers), **shape)


def _layer_bytes(itemsize: int) -> int:
    return EXPERTS * 3 * D * F * itemsize


def _wanted_layers(itemsize: int, device: str) -> int:
    wanted = CACHES * (last_level_cache(device) or DEFAULT_CACHE)
    return max(2, -(-wanted // _layer_bytes(itemsize)))


def describe_wide(config: ModelConfig, itemsize: int = 4, device: str = "cpu") -> str:
    """How large a wide model is, and what was left out of it, in one line."""
    layers, wanted = config.num_moe_layers, _wanted_layers(itemsize, device)
    size = layers * _layer_bytes(itemsize)
    times = size / (last_level_cache(device) or DEFAULT_CACHE)
    less = f" (sized down: {CACHES} times would be {wanted} layers)" if layers < wanted else ""
    return (
        f"{layers} MoE layers, {size / 1e9:.1f} GB of experts, {times:.1f} times the last-level "
        f"cache{less}"
    )


def wide_model(dtype: torch.dtype, device: str, limit: float = math.inf) -> Transformer:
    """Random weights for `wide_config`; which numbers they are does not matter for time."""
    with torch.device("meta"):
        model = Transformer(wide_config(dtype.itemsize, device, limit))
    model = model.to(dtype).to_empty(device=device)
    with torch.no_grad():
        for parameter in model.parameters():
            _fill(parameter, 0.02)
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.fill_(1.0)
        for buffer in model.buffers():
            buffer.zero_()
    return model.eval().requires_grad_(False)


def _fill(parameter: torch.Tensor, std: float) -> None:
    """Repeat one random row block: drawing a billion numbers takes longer than using them."""
    flat = parameter.view(-1)
    size = min(flat.numel(), 2**20 + 7)  # an odd length, so that rows of experts differ
    block = torch.randn(size, generator=torch.Generator().manual_seed(size)) * std
    block = block.to(parameter.dtype).to(parameter.device)
    for start in range(0, flat.numel(), size):
        part = flat[start : start + size]
        part.copy_(block[: part.numel()])
