"""Check of 06_acceptance_budget: the tokens that a batch of guesses is expected to give."""

import random

import numpy as np

from minimoe.course.check import Check, register
from minimoe.course.checks.slips import first_slip, wrongs

G = 4


def table(rng: random.Random, requests: int, length: int = G) -> list[list[float]]:
    """Confidences as a drafter might give them: mostly sure, sometimes not at all."""
    return [[round(rng.betavariate(3, 1), 3) for _ in range(length)] for _ in range(requests)]


def expected_naive(confidence, checks):
    """One token each, and the survivals of what is checked."""
    total = float(len(confidence))
    for row, count in zip(confidence, checks, strict=True):
        alive = 1.0
        for c in row[:count]:
            alive *= c
            total += alive
    return total


def _no_bonus(confidence, checks):
    return expected_naive(confidence, checks) - len(confidence)


def _sum_of_confidences(confidence, checks):
    rows = zip(confidence, checks, strict=True)
    return len(confidence) + sum(sum(row[:count]) for row, count in rows)


def _all_or_nothing(confidence, checks):
    rows = zip(confidence, checks, strict=True)
    return len(confidence) + sum(count * float(np.prod(row[:count])) for row, count in rows)


def _one_for_the_batch(confidence, checks):
    return expected_naive(confidence, checks) - len(confidence) + 1


def _all_checked(confidence, checks):
    return expected_naive(confidence, [len(row) for row in confidence])


def _carried_on(confidence, checks):
    """Survival that goes on from one request to the next."""
    total, alive = float(len(confidence)), 1.0
    for row, count in zip(confidence, checks, strict=True):
        for c in row[:count]:
            alive *= c
            total += alive
    return total


def _from_the_first(confidence, checks):
    """Adds before it multiplies: each guess with the survival of the one before it."""
    rows = zip(confidence, checks, strict=True)
    return len(confidence) + sum(
        float(np.prod(row[:j])) for row, count in rows for j in range(count)
    )


def _last_survival(confidence, checks):
    rows = zip(confidence, checks, strict=True)
    return len(confidence) + sum(float(np.prod(row[:count])) for row, count in rows if count)


def _fewer(by):
    return lambda confidence, checks: expected_naive(confidence, [max(0, n - by) for n in checks])


SLIPS = {
    _no_bonus: "every request gets one token of its own, whatever is accepted",
    lambda c, checks: _no_bonus(c, checks) + sum(n > 0 for n in checks): "every request gets one "
    "token of its own, checked or not",
    _sum_of_confidences: "a guess only counts if all before it are accepted: multiply",
    _all_or_nothing: "the guesses before a wrong one are kept: add up each survival",
    _last_survival: "the guesses before a wrong one are kept: add up each survival",
    _one_for_the_batch: "every request gets one token of its own, not the batch",
    _all_checked: "only so many guesses of a request as `checks` says can be accepted",
    _fewer(-1): "only so many guesses of a request as `checks` says can be accepted",
    _fewer(1): "so many guesses as `checks` says, not one fewer: row[:count]",
    _carried_on: "each request's survival starts at 1",
    _from_the_first: "multiply first, then add: a guess must survive itself",
    lambda c, checks: expected_naive(c, checks) / len(c): "of the whole pass, not of a request",
    lambda c, checks: expected_naive(c[:1], checks[:1]): "add up over all requests",
    lambda c, checks: (
        len(c) + sum(checks)
    ): "a checked guess may be wrong: it counts by its survival",
    lambda c, checks: [
        expected_naive([row], [n]) for row, n in zip(c, checks, strict=True)
    ]: "one number: add up over all requests",
}


@register
class ExpectedTokens(Check):
    """Exercise of 06: tokens that a block of guesses is expected to give."""

    name = "06-expected-tokens"
    wrong = wrongs(SLIPS)

    def cases(self, rng: random.Random):
        """Nothing checked, one request, sure and hopeless guesses, and random batches."""
        yield [[0.9, 0.8, 0.6, 0.7], [0.5, 0.7, 0.4, 0.2], [0.3, 0.6, 0.1, 0.8]], [3, 2, 0]
        yield [[0.5, 0.5, 0.5]], [2]
        yield [[0.9, 0.8], [0.5, 0.5]], [2, 1]
        yield [[0.9, 0.9]], [0]
        yield [], []
        yield [[1.0, 1.0, 1.0]], [3]
        yield [[0.0, 1.0, 1.0]], [3]
        for _ in range(15):
            rows = table(rng, rng.randrange(1, 6))
            yield rows, [rng.randrange(G + 1) for _ in rows]

    def expected(self, confidence, checks):
        return expected_naive(confidence, checks)

    def hint(self, got, confidence, checks):
        return first_slip(SLIPS, got, confidence, checks)
