"""Exercises 1 and 2 of 01: the batch at the knee, distinct experts."""

import math
import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, wrongs


def knee_batch_naive(rate, bandwidth, itemsize, experts, per_token):
    """Tokens at which weights of all `experts` take as long to read as to use."""
    flops_per_token = 2 * per_token  # for each weight of one expert
    bytes_in_all = itemsize * experts
    return (bytes_in_all / bandwidth) / (flops_per_token / rate)


def _knee(change):
    """A slip: the right batch, changed by change(right, rate / bandwidth, itemsize, E, K)."""
    return lambda r, b, i, e, k: change(knee_batch_naive(r, b, i, e, k), r / b, i, e, k)


ROUNDED = "the result need not be whole: do not round"
PER_BYTE = "is the knee in FLOP per byte, not tokens"
KNEE = {
    _knee(lambda knee, x, i, e, k: x): "this " + PER_BYTE,
    _knee(lambda knee, x, i, e, k: x / 2): "half the rate over the bandwidth " + PER_BYTE,
    _knee(
        lambda knee, x, i, e, k: knee * k / e
    ): "all E experts are read and each token uses K: E / K",
    _knee(
        lambda knee, x, i, e, k: 2 * knee * k / e
    ): "all E experts are read, each token uses K (E / "
    "K), and a multiply and an add are two operations",
    _knee(lambda knee, x, i, e, k: knee * (k / e) ** 2): "E / K stands upside down",
    _knee(lambda knee, x, i, e, k: 2 * knee): "a multiply and an add are two operations",
    _knee(lambda knee, x, i, e, k: 4 * knee): "the two operations of a token divide the batch: / 2",
    _knee(lambda knee, x, i, e, k: knee / i): "a weight is `itemsize` bytes",
    _knee(lambda knee, x, i, e, k: knee / i**2): "a weight is `itemsize` bytes: multiply by it",
    _knee(lambda knee, x, i, e, k: 2 * knee / i**2): "a weight is `itemsize` bytes: multiply by it",
    _knee(lambda knee, x, i, e, k: 2 * knee / i): "that is for two bytes a weight: mind `itemsize`",
    _knee(lambda knee, x, i, e, k: knee / e): "all E experts are read, not one",
    _knee(lambda knee, x, i, e, k: knee * k): "each token uses K experts: divide by K",
    _knee(lambda knee, x, i, e, k: knee * k * k): "each token uses K experts: divide by K",
    _knee(lambda knee, x, i, e, k: 3 * knee): "that an expert has three matrices cancels out",
    _knee(lambda knee, x, i, e, k: 1 / knee): "upside down: bytes over bandwidth, times rate",
    _knee(lambda knee, x, i, e, k: knee / x**2): "upside down: bytes over bandwidth, times rate",
    _knee(lambda knee, x, i, e, k: int(knee)): ROUNDED,
    _knee(lambda knee, x, i, e, k: round(knee)): ROUNDED,
    _knee(lambda knee, x, i, e, k: math.ceil(knee)): ROUNDED,
}


@register
class KneeBatch(Check):
    """Exercise 1 of 01: tokens per step at which arithmetic takes as long as memory."""

    name = "01-knee-batch"
    wrong = wrongs(KNEE)

    def cases(self, rng: random.Random):
        """First numbers that tell all known slips apart."""
        yield 1000.0, 10.0, 4, 30, 5
        yield 1000.0, 10.0, 2, 1, 1
        yield 800e12, 4e12, 2, 384, 6
        for _ in range(20):
            experts = rng.randrange(1, 400)
            chosen = rng.randrange(1, experts + 1)
            yield (
                rng.uniform(1e9, 1e15),
                rng.uniform(1e9, 1e13),
                rng.choice([1, 2, 4]),
                experts,
                chosen,
            )

    def expected(self, *args):
        return knee_batch_naive(*args)

    def describe(self, rate, bandwidth, itemsize, experts, per_token):
        return (
            f"{rate:.3g} FLOP/s, {bandwidth:.3g} bytes/s, {itemsize} bytes a weight, "
            f"E {experts}, K {per_token}"
        )

    def hint(self, got, *args):
        return first_slip(KNEE, got, *args)


def expected_hit_naive(share, tokens):
    """Each expert is missed when all tokens miss it."""
    hit = 0.0
    for part in share:
        missed = 1.0
        for _ in range(tokens):
            missed *= 1 - part
        hit += 1 - missed
    return hit


def _hit_by(chance):
    """A slip: another chance that an expert with this share is hit by so many tokens."""
    return lambda share, tokens: sum(chance(part, tokens) for part in share)


def _all_alike(share, tokens, part=None):
    part = sum(share) / len(share) if part is None else part
    return expected_hit_naive([part] * len(share), tokens)


HIT = {
    lambda share, t: len(share) - expected_hit_naive(share, t): "this counts the experts that are "
    "not hit",
    _hit_by(lambda part, t: part * t): "two tokens may choose the same expert, and it is read once",
    lambda share, t: min(
        len(share), sum(share) * t
    ): "two tokens may choose the same expert, and it is read once",
    _hit_by(lambda part, t: min(1, part * t)): "two tokens may choose the same expert, and it is "
    "read once",
    _all_alike: "shares differ: each expert is missed by its own share",
    lambda share, t: _all_alike(
        share, t, 1 / len(share)
    ): "shares differ: each expert is missed by its own share",
    _hit_by(lambda part, t: part**t): "share ** tokens: that *all* tokens hit it; one is enough",
    _hit_by(lambda part, t: 1 - part**t): "a token misses with 1 - share, so all miss with "
    "(1 - share) ** tokens",
    lambda share, t: (
        expected_hit_naive(share, t) / len(share)
    ): "add up the experts: not their mean",
    lambda share, t: expected_hit_naive([p / sum(share) for p in share], t): "share[e] is a "
    "probability as it stands: a token has several choices, so they add up to more than 1",
    lambda share, t: round(
        expected_hit_naive(share, t)
    ): "an expected number need not be whole: do not round",
    lambda share, t: sum(share): "that is for one token: all `tokens` must miss it",
    lambda share, t: expected_hit_naive(share, t + 1): "so many tokens, no more: ** tokens",
    lambda share, t: expected_hit_naive(share, t - 1): "so many tokens, no fewer: ** tokens",
}


@register
class ExpectedHit(Check):
    """Exercise 2 of 01: how many experts T tokens hit, on average."""

    name = "01-expected-hit"
    wrong = [
        *wrongs(HIT),
        Wrong(lambda share, t: [1 - (1 - part) ** t for part in share], "one number: add up"),
    ]

    def cases(self, rng: random.Random):
        """One hot expert, idle ones, no tokens, one token, and random shares."""
        yield [0.75, 0.5, 0.25, 0.25, 0.5], 3  # tells all known slips apart
        yield [0.25] * 8, 1
        yield [0.25] * 8, 10
        yield [0.5, 0.5], 0
        yield [1.0, 0.0, 0.0], 5
        yield [1.0, 0.5, 0.25, 0.25], 2
        for _ in range(20):
            experts = rng.randrange(1, 20)
            yield [rng.random() for _ in range(experts)], rng.randrange(0, 40)

    def expected(self, share, tokens):
        return expected_hit_naive(share, tokens)

    def hint(self, got, share, tokens):
        if hasattr(got, "__len__") and len(got) == len(share):
            return "give one number: add up the experts' chances"
        return first_slip(HIT, got, share, tokens)
