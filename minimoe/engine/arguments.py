"""What a user hands to `LLM`, checked: each refusal is one line with the value and the limit."""

import re
from collections.abc import Iterable, Mapping
from numbers import Integral

import torch

from minimoe.config import ModelConfig
from minimoe.engine.params import SamplingParams
from minimoe.errors import MinimoeError

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def checked_length(wanted: int | None, config: ModelConfig) -> int:
    """`max_model_len`, or the model's own. Raises MinimoeError when the model has fewer."""
    limit = config.max_position_embeddings
    if wanted is not None and wanted > limit:
        raise MinimoeError(
            f"max_model_len is {wanted} and the model has {limit} positions: lower it"
        )
    return wanted or limit


def check_device(device: str | None) -> str:
    """The device asked for, or the best one. Raises MinimoeError for one that is not there."""
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", str(device)):
        raise MinimoeError(f"device is {str(device)!r}: it must be 'cpu', 'cuda' or 'cuda:N'")
    if str(device) == "cpu":
        return "cpu"
    if not torch.cuda.is_available():
        raise MinimoeError("device is 'cuda' and this torch sees no CUDA GPU: use device='cpu'")
    number = int(str(device).partition(":")[2] or 0)
    if number >= torch.cuda.device_count():
        raise MinimoeError(f"device is {device!r} and there are {torch.cuda.device_count()} GPUs")
    return str(device)


def check_dtype(name: str) -> torch.dtype:
    """Raises MinimoeError for a name that is not in `DTYPES`."""
    if name not in DTYPES:
        raise MinimoeError(f"dtype is {name!r}: it must be one of {', '.join(DTYPES)}")
    return DTYPES[name]


def require_positive(**values: int | None) -> None:
    """Raises MinimoeError, naming the argument, unless each is None or a whole number above 0."""
    for name, value in values.items():
        if value is not None and not (isinstance(value, int) and value >= 1):
            raise MinimoeError(f"{name} is {value!r}: it must be a whole number of 1 or more")


def as_prompts(prompts) -> list:
    """One prompt or many; a flat sequence of whole numbers is one prompt of token ids."""
    if isinstance(prompts, str):
        return [prompts]
    if hasattr(prompts, "tolist"):  # a tensor or an array
        prompts = prompts.tolist()
    if not isinstance(prompts, Iterable) or isinstance(prompts, Mapping | bytes):
        raise MinimoeError(f"the prompt is a {type(prompts).__name__}: give text or token ids")
    prompts = list(prompts)
    return [prompts] if prompts and isinstance(prompts[0], Integral) else prompts


def per_prompt(params, prompts: list) -> list[SamplingParams]:
    """One for all, or one for each: raises MinimoeError for another number of them."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * len(prompts)
    if not isinstance(params, list | tuple):
        raise MinimoeError(f"params is a {type(params).__name__}: give SamplingParams")
    if len(params) != len(prompts):
        raise MinimoeError(
            f"{len(params)} sampling params for {len(prompts)} prompts: give one, or one a prompt"
        )
    return params
