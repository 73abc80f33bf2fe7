"""Exercise 3 of 06: stopping in time."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.acceptance_budget import share_naive, survivals
from minimoe.course.checks.expected_tokens import G, expected_naive, table
from minimoe.course.checks.slips import first_slip, wrongs
from minimoe.speculative.admission import first_drop_naive


def drop_naive(confidence, seconds):
    """The plain rule that the exercise asks for."""
    return first_drop_naive(survivals(confidence), seconds.__getitem__)


def _whole_curve(confidence, seconds):
    """The best number of checks, later slots in view: it peeks."""
    rates = [
        expected_naive(confidence, share_naive(confidence, count)) / seconds[count]
        for count in range(len(seconds))
    ]
    return share_naive(confidence, rates.index(max(rates)))


def _one_too_many(confidence, seconds):
    return share_naive(confidence, sum(drop_naive(confidence, seconds)) + 1)


def _while_tokens_rise(confidence, seconds):
    return share_naive(confidence, len(seconds) - 1)


def _until(stops):
    """Goes on until stops(confidence, seconds, m), with m checks in all."""

    def rule(confidence, seconds):
        ends = (m for m in range(1, len(seconds)) if stops(confidence, seconds, m))
        return share_naive(confidence, next(ends, len(seconds)) - 1)

    return rule


def _tokens(confidence, count):
    return expected_naive(confidence, share_naive(confidence, count))


def _below_the_start(confidence, seconds, m):
    return _tokens(confidence, m) / seconds[m] <= len(confidence) / seconds[0]


def _falling(confidence, seconds, m):
    """Stays as it is: go on."""
    return _tokens(confidence, m) / seconds[m] < _tokens(confidence, m - 1) / seconds[m - 1]


def _not_rising(start):
    """The right rule, were the requests' own tokens so many."""

    def stops(confidence, seconds, m):
        now, before = (_tokens(confidence, n) - len(confidence) + start for n in (m, m - 1))
        return now / seconds[m] <= before / seconds[m - 1]

    return stops


def _one_too_few(confidence, seconds):
    return share_naive(confidence, max(0, sum(drop_naive(confidence, seconds)) - 1))


def _by_confidence(confidence, seconds):
    slots = sorted((-c, r) for r, row in enumerate(confidence) for c in row)
    checks, tokens = [0] * len(confidence), float(len(confidence))
    for m, (negative, request) in enumerate(slots, start=1):
        if (tokens - negative) / seconds[m] <= tokens / seconds[m - 1]:
            break
        tokens -= negative
        checks[request] += 1
    return checks


OWN_TOKENS = "each request has a token of its own, checks or none: begin with one for each"
RATE = "compare with tokens per second at the check before, not with no checks at all"
SLIPS = {
    _whole_curve: "it looked past the first drop, at slots whose survival tells a token: it peeks",
    _until(_falling): "a check that leaves the rate exactly equal does not raise it",
    _one_too_many: "stop before the first slot that does not raise tokens per second",
    _until(_not_rising(0)): OWN_TOKENS,
    _until(_not_rising(1)): OWN_TOKENS,
    _until(_below_the_start): RATE,
    _one_too_few: "one check more still raises tokens per second: stop after it, not before",
    _by_confidence: "the likeliest slot has the highest survival, not the highest confidence",
}


@register
class StopInTime(Check):
    """Exercise of 06: stop where the next check costs more than it brings."""

    name = "06-stop-in-time"
    wrong = [
        *wrongs(SLIPS),
        Wrong(_while_tokens_rise, "per second"),
        Wrong(lambda *args: sum(drop_naive(*args)), "a list is expected"),
    ]

    def cases(self, rng: random.Random):
        """Free checks, dear ones, the trap of the paper, stairs, and random costs."""
        yield (
            [[0.8, 0.6, 0.5, 0.4], [0.4, 0.4, 0.3, 0.3]],  # tells most slips apart
            [1.0, 1.1, 1.3, 1.4, 1.5, 1.65, 1.95, 2.0, 2.3],
        )
        yield [[0.9, 0.8]], [1.0, 1.1, 1.2]
        yield [[0.5, 0.8], [0.9, 0.8]], [1.0, 1.4, 1.8, 2.0, 2.4]
        yield [[0.9, 0.8]], [1.0, 5.0, 9.0]
        yield [[1.0]], [1.0, 2.0]
        yield [[0.8, 0.9]], [1.0, 2.0, 1 / 0.45]
        yield [[0.9, 0.9], [0.4, 0.9]], [1.0, 1.0, 1.0, 1.0, 1.0]
        yield [[0.5, 0.5], [0.9, 0.9]], [1.0, 1.0, 1.4, 1.4, 1.4]
        for _ in range(25):
            rows = table(rng, rng.randrange(1, 5))
            step = rng.choice([0.02, 0.1, 0.2])
            seconds = [1.0]
            for _ in range(len(rows) * G):
                seconds.append(round(seconds[-1] + step * rng.random() * 2, 4))
            yield rows, seconds

    def expected(self, confidence, seconds):
        return drop_naive(confidence, seconds)

    def describe(self, confidence, seconds):
        return f"confidence {confidence}, seconds {seconds}"

    def hint(self, got, confidence, seconds):
        says = first_slip(SLIPS, got, confidence, seconds)
        if says:
            return says
        if sum(got) > sum(self.expected(confidence, seconds)):
            return "a check must raise expected tokens per second, not only expected tokens"
        return None
