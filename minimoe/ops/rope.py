"""Rotary position embedding on interleaved pairs (RoFormer, arXiv 2104.09864).

Pair i of a head, values (2i, 2i+1), is a complex number that position p turns by the angle
p * theta^(-2i/R). Contexts longer than the trained one stretch the slow pairs (YaRN, 2309.00071).
"""

import math

import torch


def frequencies(rope_dim: int, theta: float, scaling: dict | None = None) -> torch.Tensor:
    """Radians per position of each pair, `[R/2]` in float32 as transformers has them."""
    powers = torch.arange(0, rope_dim, 2, dtype=torch.float32) / rope_dim
    plain = 1.0 / theta**powers
    if scaling is None:
        return plain
    keep = _kept_share(rope_dim, theta, scaling)
    return plain / scaling["factor"] * (1 - keep) + plain * keep


def _kept_share(rope_dim: int, theta: float, scaling: dict) -> torch.Tensor:
    """YaRN: 1 for pairs that turn many times within the trained context, 0 for the slow ones."""

    def pair_that_turns(times: float) -> float:
        trained = scaling["original_max_position_embeddings"]
        return rope_dim * math.log(trained / (times * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_that_turns(scaling.get("beta_fast", 32))), 0)
    high = min(math.ceil(pair_that_turns(scaling.get("beta_slow", 1))), rope_dim - 1)
    ramp = (torch.arange(rope_dim // 2) - low) / max(high - low, 1e-3)
    return 1 - ramp.clamp(0, 1)


def yarn_mscale(factor: float, mscale: float) -> float:
    """YaRN's temperature for a context stretched `factor` times."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _magnitude(scaling: dict | None) -> float:
    if scaling is None:
        return 1.0
    factor, mscale, all_dim = (scaling.get(k, 0) for k in ("factor", "mscale", "mscale_all_dim"))
    if mscale and all_dim:
        return yarn_mscale(factor, mscale) / yarn_mscale(factor, all_dim)
    return yarn_mscale(factor, 1.0)


def rope_table(
    positions: int, rope_dim: int, theta: float, scaling: dict | None = None
) -> torch.Tensor:
    """Complex numbers `[positions, R/2]` in complex128 that turn a pair; cast before use."""
    turns = frequencies(rope_dim, theta, scaling).double()  # [R/2]
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * turns
    return torch.polar(torch.full_like(angles, _magnitude(scaling)), angles)


def rotate(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Turn the pairs of `x [..., R]` by `turns [..., R/2]`; float32 inside for narrow dtypes."""
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    pairs = wide.unflatten(-1, (-1, 2))  # [..., R/2, 2]
    if torch.compiler.is_compiling():  # which has no code for complex numbers
        a, b, cos, sin = *pairs.unbind(-1), turns.real, turns.imag
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)
    else:
        turned = torch.view_as_real(torch.view_as_complex(pairs) * turns)
    return turned.flatten(-2).to(x.dtype)


def rotate_heads_(heads: torch.Tensor, turns: torch.Tensor) -> None:
    """Turn whole rows `[T, heads, W]` in place by `turns [T, 1, W/2]`, 1 where a row is not
    rotary: one product on the hot path for float32 and float64, without any slicing."""
    if turns.dtype == torch.complex128 or heads.dtype == torch.float32:
        torch.view_as_complex(heads.view(*heads.shape[:2], -1, 2)).mul_(turns)
    else:
        heads.copy_(rotate(heads, turns))


def widen_turns(turns: torch.Tensor, plain: int) -> torch.Tensor:
    """`[positions, R/2]` to `[positions, 1, (plain + R)/2]`: the first `plain` values stay."""
    ones = turns.new_ones(len(turns), plain // 2)
    return torch.cat([ones, turns], dim=1)[:, None]


def rotate_naive(x: list[float], position: int, theta: float) -> list[float]:
    """The oracle: one head `[R]` at one position, pair by pair in plain Python."""
    out = []
    for i in range(0, len(x), 2):
        angle = position * theta ** (-i / len(x))
        cos, sin = math.cos(angle), math.sin(angle)
        out += [x[i] * cos - x[i + 1] * sin, x[i] * sin + x[i + 1] * cos]
    return out
