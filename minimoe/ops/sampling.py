"""From logits to tokens: probabilities, noise, draws. Drafters and the engine share these.

A draw is an argmax over p / e, with e exponential noise (the Gumbel-max trick: argmax(log p + g)).
The noise of a token depends on (seed, position, token) alone, so a seeded request gets the same
tokens whoever shares its batch, in whatever order, on whatever device. And a drafter that draws
with the same noise from nearly the same probabilities mostly gets the same token.

`params` are `SamplingParams`, or anything with `greedy`, `filters`, `temperature`, `top_k`,
`top_p` and `min_p`.
"""

import torch

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number
_MIX_1, _MIX_2 = -4658895280553007687, -7723592293110705685  # splitmix64's two multipliers


def sample(logits, params: list, seeds: list[int], positions: list[int]) -> torch.Tensor:
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


def probabilities(logits: torch.Tensor, params: list) -> torch.Tensor:
    """What each row of `logits [B, V]` is drawn from: `[B, V]`, float32 or wider, sums of 1."""
    temperatures = [p.temperature for p in params]
    p = softmax_at(logits, temperatures)
    rows = [row for row, one in enumerate(params) if one.filters]
    if rows:
        index = torch.tensor(rows, device=p.device)
        p[index] = _filter(p[index], [params[row] for row in rows])
    return p


def softmax_at(logits: torch.Tensor, temperatures) -> torch.Tensor:
    """softmax(logits / temperature) of each row of `logits [B, V]`, float32 or wider. The
    `temperatures [B]` are a list, or a tensor of the result's dtype (no transfer, no wait)."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if not isinstance(temperatures, torch.Tensor):
        temperatures = wide.new_tensor(temperatures)
    # Smaller temperatures would round to zero.
    temperatures = temperatures.clamp(min=torch.finfo(wide.dtype).tiny)[:, None]
    # Subtracting the maximum first keeps tiny temperatures from overflowing.
    return torch.softmax((wide - wide.amax(-1, keepdim=True)) / temperatures, -1)


def _filter(p: torch.Tensor, params: list) -> torch.Tensor:
    return keep_likeliest(p, *p.new_tensor([filters_of(one, p.shape[1]) for one in params]).T)


def filters_of(one, vocab: int) -> tuple[float, float, float]:
    """top_k, top_p and min_p of one request, such that each cuts nothing where it is off."""
    return (one.top_k if one.top_k > 0 else vocab, one.top_p, one.min_p)


def keep_likeliest(p: torch.Tensor, top_k, top_p, min_p) -> torch.Tensor:
    """Cut `p [B, V]` by top_k, then top_p of what is left, then min_p, each `[B]`; the kept ones
    renormalised."""
    sorted_p, order = p.sort(dim=-1, descending=True, stable=True)  # ties: the lower id ranks first
    top_k, top_p, min_p = top_k[:, None], top_p[:, None], min_p[:, None]
    sorted_p *= torch.arange(p.shape[1], device=p.device) < top_k
    sorted_p /= sorted_p.sum(-1, keepdim=True)
    before = sorted_p.cumsum(-1) - sorted_p  # probability of all likelier tokens
    keep = (before < top_p) | (top_p >= 1)
    keep &= sorted_p >= min_p * sorted_p[:, :1]
    keep[:, 0] = True  # a top_p that rounds to zero still keeps the likeliest
    sorted_p *= keep
    sorted_p /= sorted_p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter_(-1, order, sorted_p)


def draw_by_sum(p: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """One token per row of `p [B, V]` by inverting its cumulative sum at `uniform [B]` in (0, 1).

    A tenth of the work of Gumbel noise, where nobody else has to draw with the same noise. A token
    of probability 0 is never drawn.
    """
    sums = p.double().cumsum(-1)
    at = (uniform * sums[:, -1])[:, None]
    ids = torch.searchsorted(sums, at, right=True)[:, 0]
    return torch.where(ids < p.shape[1], ids, p.argmax(-1))  # `at` rounded up to the whole sum


def exponential_noise(seeds, positions, vocab: int, device) -> torch.Tensor:
    """Exponential(1) noise `[B, V]` in float64, a pure function of (seed, position, token).
    `seeds` and `positions` are lists or tensors `[B]`."""
    key = _key(seeds, positions, device)[:, None]  # [B, 1]
    bits = _mix(key + torch.arange(vocab, device=device) * _GOLDEN)  # [B, V]
    return _unit(bits).log_().neg_()


def uniform_noise(seeds, positions, stream: int, device) -> torch.Tensor:
    """Uniform (0, 1) noise in float64, a pure function of (seed, position, stream); `seeds` and
    `positions` are lists or tensors of one shape, which the result has. Streams are 1 or more, and
    independent of each other and of `exponential_noise`."""
    key = _key(seeds, positions, device)
    return _unit(_mix(_mix(key) + stream))


def _key(seeds, positions, device) -> torch.Tensor:
    seeds = torch.as_tensor(seeds, device=device)
    return _mix(_mix(seeds) + torch.as_tensor(positions, device=device))


def _unit(bits: torch.Tensor) -> torch.Tensor:
    """The upper 53 bits as a number strictly between 0 and 1."""
    return ((bits >> 11) & (2**53 - 1)).double().add_(0.5).mul_(2.0**-53)


def _mix(z: torch.Tensor) -> torch.Tensor:
    """splitmix64 (Steele, Lea, Flood, 2014): wrapping multiplications and logical shifts."""
    z = z + _GOLDEN
    z = (z ^ _shift(z, 30)) * _MIX_1
    z = (z ^ _shift(z, 27)) * _MIX_2
    return z ^ _shift(z, 31)


def _shift(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical right shift; `>>` alone would copy the sign bit."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
