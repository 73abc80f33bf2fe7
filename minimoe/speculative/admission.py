"""Which drafts to check: slots (request, position) are admitted by how likely they survive.

`a [B, G]` is survival: the probability that position j of a request *and all before it* are
accepted. It never rises along a row, so the best m slots of a batch are whole prefixes. A pass with
m checked drafts is expected to give B + (the sum of their a) tokens.

Source: DSpark, arXiv 2607.05147, Algorithm 1. Each function's oracle, `*_naive`, stands below.
"""

from collections.abc import Callable
from itertools import product

import numpy as np


def survival(confidence: np.ndarray, lengths: list[int]) -> np.ndarray:
    """Running products of `confidence [B, G]`; 0 beyond what was drafted, and for no number."""
    a = np.fmin(np.fmax(confidence, 0.0), 1.0).cumprod(axis=1)  # fmax takes 0 over NaN
    if min(lengths) < a.shape[1]:
        a[np.arange(a.shape[1]) >= np.asarray(lengths)[:, None]] = 0.0
    return a


def of_width(a: np.ndarray, length: int) -> np.ndarray:
    """`a [B, G']` with `length` columns: cut, or continued by slots that do not survive."""
    a = a[:, :length]
    return np.pad(a, ((0, 0), (0, length - a.shape[1]))) if a.shape[1] < length else a


def by_survival(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Flat indices of the batch's slots, the likeliest first, and their survivals: `[B * G]` each.
    Of equal ones the earlier comes first, so that a prefix stays one."""
    flat = a.ravel()
    order = (-flat).argsort(kind="stable")
    return order, flat[order]


def prefixes(order: np.ndarray, slots: np.ndarray, count: int, shape: tuple[int, int]) -> list[int]:
    """Checks of each request when the first `count` of the sorted slots are admitted; slots that
    were never drafted are not."""
    B, G = shape
    count = min(count, int(np.count_nonzero(slots)))
    return np.bincount(order[:count] // G, minlength=B).tolist()


def expected_accepted(a: np.ndarray) -> np.ndarray:
    """Expected accepted drafts when the best 0, 1, 2, ... slots are checked: `[B * G + 1]`."""
    out = np.zeros(a.size + 1)
    np.cumsum(np.sort(a, axis=None)[::-1], out=out[1:])
    return out


def first_drop(slots: np.ndarray, seconds: np.ndarray, requests: int) -> int:
    """How many of the sorted `slots` to admit, stopping before the first that does not raise tokens
    per second. `seconds` is by number of admitted slots, 0 first.

    A slot's survival depends on the tokens before it alone. So whether a slot is admitted never
    depends on the token in it, and checking stays exact.
    """
    rate = np.append(float(requests), slots).cumsum() / seconds
    return _first(rate[1:] <= rate[:-1])


def first_too_dear(slots: np.ndarray, prices: np.ndarray) -> int:
    """How many of the sorted `slots` to admit: up to the first whose survival is below its price.

    Exact like `first_drop`, as long as the prices come from other steps.
    """
    return _first(slots < prices)


def best_count(accepted: np.ndarray, seconds: np.ndarray, requests: int) -> int:
    """The number of slots with the most tokens per second, the whole curve in view.

    Exact only if `accepted`, by number of slots, comes from other steps than the one it decides
    about: the curve of the same step holds the survival of later slots, which tells what token
    stands in an earlier one.
    """
    return int(np.argmax((requests + accepted) / seconds))


def _first(true: np.ndarray) -> int:
    """Index of the first True, or the length."""
    index = int(true.argmax()) if len(true) else 0
    return index if len(true) and true[index] else len(true)


def first_drop_naive(a: np.ndarray, seconds: Callable[[int], float]) -> list[int]:
    """Algorithm 1 as it is written: one slot at a time. seconds(m): of a pass with m checks."""
    checks, tokens = [0] * len(a), float(len(a))
    best = tokens / seconds(0)
    slots = [(-a[r, j], r, j) for r in range(len(a)) for j in range(a.shape[1]) if a[r, j] > 0]
    for admitted, (negative, r, _) in enumerate(sorted(slots), start=1):
        tokens -= negative
        if tokens / seconds(admitted) <= best:
            break
        best = tokens / seconds(admitted)
        checks[r] += 1
    return checks


def best_naive(a: np.ndarray, seconds: Callable[[int], float]) -> tuple[float, list[int]]:
    """Tokens per second of the best of all combinations of prefix lengths, and the combination."""
    B, G = a.shape
    rates = {}
    for checks in product(range(G + 1), repeat=B):
        accepted = sum(a[r, :count].sum() for r, count in enumerate(checks))
        rates[checks] = (B + accepted) / seconds(sum(checks))
    best = max(rates, key=rates.get)
    return rates[best], list(best)
