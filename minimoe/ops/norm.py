"""RMSNorm (arXiv 1910.07467) for the serving path, in few operations.

A row divided by its root mean square is sqrt(D) * x / hypot(|x|, sqrt(D * eps)). The factor
sqrt(D) is folded into the weight beforehand: for one row each operation costs about a microsecond,
whatever it computes, and the built-in composite has three times as many.
"""

import torch


def rms_norm(x: torch.Tensor, scaled_weight: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
    """`x [..., D]` normalised, times `scaled_weight [D]`; see `scale_weight` and `norm_floor`."""
    return unit_norm(x, floor).mul_(scaled_weight)


def unit_norm(x: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
    """`x [..., D]` over hypot(|x|, floor), computed in the width of `floor`."""
    if x.dtype == floor.dtype:
        return x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), floor)
    return unit_norm(x.to(floor.dtype), floor).to(x.dtype)


def unit_norm_(x: torch.Tensor, floor: torch.Tensor) -> None:
    """`unit_norm` in place."""
    if x.dtype == floor.dtype:
        x.div_(torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), floor))
    else:
        x.copy_(unit_norm(x, floor))


def norm_floor(width: int, eps: float, like: torch.Tensor) -> torch.Tensor:
    """sqrt(width * eps) as a scalar tensor beside `like`, float32 or wider."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.tensor((width * eps) ** 0.5, dtype=dtype, device=like.device)


def scale_weight(weight: torch.Tensor) -> torch.Tensor:
    """The norm's `weight [D]` times sqrt(D)."""
    return (weight.double() * weight.numel() ** 0.5).to(weight.dtype)


def rms_norm_naive(x: list[float], weight: list[float], eps: float) -> list[float]:
    """The oracle: one row `[D]` in plain Python."""
    mean_square = sum(value * value for value in x) / len(x)
    return [value / (mean_square + eps) ** 0.5 * w for value, w in zip(x, weight, strict=True)]
