"""`LLM("wide")`: random weights at least eight times the last-level cache, through the same code.

The shipped model is so small that a CPU keeps it in its caches. This one streams its weights from
memory at every step, as a large model does on a GPU.
"""

import os
from pathlib import Path

import torch

from minimoe.config import ModelConfig
from minimoe.errors import MinimoeError
from minimoe.model.transformer import Transformer

CACHES = 8  # times the last-level cache
MEMORY_SHARE = 0.4  # of the memory that is free
DEFAULT_CACHE = 32 * 2**20  # where the system does not say


def wide_config(itemsize: int = 4, device: str = "cpu") -> ModelConfig:
    """As many MoE layers as it takes; experts of 6 MiB in float32, so that each is streamed."""
    shape = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "moe_intermediate_size": 512,
        "num_attention_heads": 8,
        "kv_lora_rank": 256,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
        "n_shared_experts": 1,
    }
    layer_bytes = 64 * 3 * 1024 * 512 * itemsize
    wanted = CACHES * last_level_cache(device)
    layers = max(2, -(-wanted // layer_bytes))
    fitting = int(free_memory(device) * MEMORY_SHARE) // layer_bytes
    if fitting < 1:
        raise MinimoeError(
            f"the wide model needs {layer_bytes / MEMORY_SHARE / 2**30:.1f} GiB of free memory: "
            "close other programs, or use dtype='bfloat16'"
        )
    return ModelConfig.tiny(num_hidden_layers=1 + min(layers, fitting), **shape)


def wide_model(dtype: torch.dtype, device: str) -> Transformer:
    """Random weights for `wide_config`; which numbers they are does not matter for time."""
    with torch.device("meta"):
        model = Transformer(wide_config(dtype.itemsize, device))
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


def last_level_cache(device: str = "cpu") -> int:
    """Bytes of the largest cache of the CPU, or of the GPU's L2."""
    if str(device).startswith("cuda"):
        return torch.cuda.get_device_properties(device).L2_cache_size
    sizes = [
        _cache_size(path) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("*/size")
    ]
    return max(sizes, default=DEFAULT_CACHE)


def _cache_size(path: Path) -> int:
    text = path.read_text().strip()
    return int(text.rstrip("KMG")) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1)


def free_memory(device: str = "cpu") -> int:
    """Bytes free on the GPU, or available to this process on the CPU's side."""
    if str(device).startswith("cuda"):
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 4 * 2**30  # Windows: a careful guess
