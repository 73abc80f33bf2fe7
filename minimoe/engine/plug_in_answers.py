"""What drafters and rules answer, checked: the engine relies on it, and users write their own."""

from numbers import Integral, Real

import torch

from minimoe.errors import EngineError
from minimoe.speculative.drafter import Draft


def planned(answer, most: int) -> int:
    """`Rule.plan`'s number of places to draft, at most `most`. Raises EngineError for no number."""
    if not isinstance(answer, Integral) or answer < 0:
        raise EngineError(
            f"the budget's plan is {answer!r}: it must be a whole number, 0 for a plain step"
        )
    return min(int(answer), most)


def checked_draft(draft, requests: int) -> Draft:
    """The draft itself. Raises EngineError unless it has a row of ids and a length a request."""
    if not isinstance(draft, Draft):
        raise EngineError(f"the drafter gave a {type(draft).__name__}: it must give a Draft")
    ids = draft.ids
    good = isinstance(ids, torch.Tensor) and ids.dtype == torch.long and ids.dim() == 2
    if not good or len(ids) != requests or len(draft.lengths) != requests:
        shape = f"{tuple(ids.shape)} {ids.dtype}" if isinstance(ids, torch.Tensor) else type(ids)
        raise EngineError(
            f"the drafter gave ids {shape} and {len(draft.lengths)} lengths for {requests} "
            "requests: it must give [B, G] long and B lengths"
        )
    for name, value, dims in (("probs", draft.probs, 3), ("confidence", draft.confidence, 2)):
        if value is None:
            continue
        shape = tuple(getattr(value, "shape", ()))
        good = isinstance(value, torch.Tensor) and len(shape) == dims
        if not good or shape[:2] != ids.shape:
            raise EngineError(
                f"the drafter gave {name} {shape} for ids {tuple(ids.shape)}: it must be a tensor "
                "with the same first two dimensions"
            )
    return draft


def counts_of(checks, limits: list[int]) -> list[int]:
    """`Rule.choose`'s checks of each request, none above its limit. Raises EngineError unless they
    are one number of 0 or more a request."""
    try:
        counts = [count if isinstance(count, Real) else count.item() for count in checks]
        good = all(count >= 0 for count in counts)  # not so for NaN
    except (TypeError, AttributeError, ValueError, RuntimeError):
        good = False
    if not good or len(counts) != len(limits):
        raise EngineError(
            f"the budget chose {checks!r} for {len(limits)} requests: it must be a number of "
            "checks, 0 or more, for each"
        )
    return [int(min(count, limit)) for count, limit in zip(counts, limits, strict=True)]


def known_tokens(ids: list[int], vocab: int) -> list[int]:
    """The guesses up to the first that is no token of the model: that one cannot be right."""
    for place, token in enumerate(ids):
        if not 0 <= token < vocab:
            return ids[:place]
    return ids
