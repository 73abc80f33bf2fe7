"""From logits to tokens.

A draw is an argmax over p / e, with e exponential noise (the Gumbel-max trick: argmax(log p + g)).
The noise of a token depends on (seed, position, token) alone, so a seeded request gets the same
tokens whoever shares its batch, in whatever order, on whatever device.
"""

import torch

from minimoe.engine.params import SamplingParams

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number
_MIX_1, _MIX_2 = -4658895280553007687, -7723592293110705685  # splitmix64's two multipliers


def sample(logits, params: list[SamplingParams], seeds: list[int], positions: list[int]):
    """One token per row of `logits [B, V]`; gives ids `[B]`."""
    ids = logits.argmax(-1)
    drawn = [row for row, p in enumerate(params) if not p.greedy]
    if drawn:
        chosen = [params[row] for row in drawn]
        index = torch.tensor(drawn, device=logits.device)
        p = probabilities(logits[index], chosen)  # [drawn, V]
        keys = ([seeds[row] for row in drawn], [positions[row] for row in drawn])
        noise = exponential_noise(*keys, p.shape[1], p.device)
        ids[index] = (p / noise).argmax(-1)
    return ids


def probabilities(logits: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """What each row of `logits [B, V]` is drawn from: `[B, V]`, float32 or wider, sums of 1."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    temperatures = wide.new_tensor([p.temperature for p in params])[:, None]
    temperatures.clamp_(min=torch.finfo(wide.dtype).tiny)  # smaller ones would round to zero
    # Subtracting the maximum first keeps tiny temperatures from overflowing.
    shifted = (wide - wide.amax(-1, keepdim=True)) / temperatures
    p = torch.softmax(shifted, -1)
    rows = [row for row, one in enumerate(params) if one.filters]
    if rows:
        index = torch.tensor(rows, device=p.device)
        p[index] = _filter(p[index], [params[row] for row in rows])
    return p


def _filter(p: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    """top_k, then top_p of what is left, then min_p; the kept ones renormalised."""
    sorted_p, order = p.sort(dim=-1, descending=True, stable=True)  # ties: the lower id ranks first
    V = p.shape[1]
    top_k = torch.tensor([one.top_k if one.top_k > 0 else V for one in params], device=p.device)
    top_p, min_p = p.new_tensor([[one.top_p, one.min_p] for one in params])[:, :, None].unbind(1)
    sorted_p *= torch.arange(V, device=p.device) < top_k[:, None]
    sorted_p /= sorted_p.sum(-1, keepdim=True)
    before = sorted_p.cumsum(-1) - sorted_p  # probability of all likelier tokens
    keep = (before < top_p) | (top_p >= 1)
    keep &= sorted_p >= min_p * sorted_p[:, :1]
    keep[:, 0] = True  # a top_p that rounds to zero still keeps the likeliest
    sorted_p *= keep
    sorted_p /= sorted_p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter_(-1, order, sorted_p)


def exponential_noise(seeds: list[int], positions: list[int], vocab: int, device) -> torch.Tensor:
    """Exponential(1) noise `[B, V]` in float64, a pure function of (seed, position, token)."""
    seed = torch.tensor(seeds, device=device)[:, None]
    position = torch.tensor(positions, device=device)[:, None]
    key = _mix(_mix(seed) + position)  # [B, 1]
    bits = _mix(key + torch.arange(vocab, device=device) * _GOLDEN)  # [B, V]
    uniform = ((bits >> 11) & (2**53 - 1)).double().add_(0.5).mul_(2.0**-53)
    return uniform.log_().neg_()


def _mix(z: torch.Tensor) -> torch.Tensor:
    """splitmix64 (Steele, Lea, Flood, 2014): wrapping multiplications and logical shifts."""
    z = z + _GOLDEN
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return z ^ _shift(z, 31)


def _shift(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical right shift; `>>` alone would copy the sign bit."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def top_logprobs(logits: torch.Tensor, chosen: int, count: int) -> dict[int, float]:
    """Log probabilities, before temperature and filters, of the likeliest `count` tokens of one row
    `[V]` and of the chosen one."""
    logp = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
    best = logp.topk(min(count, len(logp)))
    out = dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return out | {chosen: float(logp[chosen])}
