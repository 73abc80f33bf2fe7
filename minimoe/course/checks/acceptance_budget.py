"""Checks of 06_acceptance_budget: sharing checks, and stopping in time."""

import random

import numpy as np

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.expected_tokens import G, expected_naive, table
from minimoe.speculative.admission import first_drop_naive, survival


def survivals(confidence):
    """Chance that each guess and all before it are accepted."""
    return survival(np.array(confidence, dtype=float), [len(row) for row in confidence])


def share_naive(confidence, count):
    """Give each check to the likeliest slot that is left; of equals, to the earlier request."""
    checks = [0] * len(confidence)
    alive = [1.0] * len(confidence)
    for _ in range(count):
        chances = [
            alive[r] * row[checks[r]] if checks[r] < len(row) else -1.0
            for r, row in enumerate(confidence)
        ]
        best = max(range(len(chances)), key=lambda r: chances[r])  # the first of equals
        if chances[best] < 0:
            break
        alive[best] = chances[best]
        checks[best] += 1
    return checks


def _ties_to_the_later(confidence, count):
    return share_naive(confidence[::-1], count)[::-1]


def _ties_to_the_sooner_place(confidence, count):
    """Of equals, to the request with fewer checks so far."""
    a = survivals(confidence)
    slots = [(-a[r][j], j, r) for r, row in enumerate(confidence) for j in range(len(row))]
    checks = [0] * len(confidence)
    for _, _, r in sorted(slots)[:count]:
        checks[r] += 1
    return checks


def _by_confidence(confidence, count):
    """Looks at the guess alone, and not at those before it."""
    slots = [(-c, r, j) for r, row in enumerate(confidence) for j, c in enumerate(row)]
    checks = [0] * len(confidence)
    for _, r, _ in sorted(slots)[:count]:
        checks[r] += 1
    return checks


def _evenly(confidence, count):
    checks = [0] * len(confidence)
    while sum(checks) < min(count, sum(map(len, confidence))):
        least = min(
            (r for r, row in enumerate(confidence) if checks[r] < len(row)), key=checks.__getitem__
        )
        checks[least] += 1
    return checks


def _all_of_the_surest(confidence, count):
    checks = [0] * len(confidence)
    for r in sorted(range(len(confidence)), key=lambda r: -confidence[r][0]):
        checks[r] = min(len(confidence[r]), count - sum(checks))
    return checks


@register
class ShareOut(Check):
    """Exercise of 06: share a budget of checks over the batch."""

    name = "06-share-out"
    wrong = [
        Wrong(_by_confidence, "survival"),
        Wrong(_evenly, "not in equal parts"),
        Wrong(_all_of_the_surest, "one check at a time"),
        Wrong(lambda confidence, count: [1] * len(confidence), "in all"),
        Wrong(_ties_to_the_later, "earlier request"),
        Wrong(_ties_to_the_sooner_place, "earlier request"),
    ]

    def cases(self, rng: random.Random):
        """None, all, more than there are, ties, a hopeless first guess, and random batches."""
        yield [[0.9, 0.8, 0.7], [0.6, 0.9, 0.9]], 3
        yield [[0.9, 0.9, 0.9], [0.2, 0.5, 0.5]], 3
        yield [[0.9, 0.9], [0.5, 0.5]], 0
        yield [[0.9, 0.9], [0.5, 0.5]], 4
        yield [[0.9, 0.9], [0.5, 0.5]], 9
        yield [[0.5, 0.5], [0.5, 0.5], [0.25, 1.0]], 3
        yield [[0.5, 1.0], [0.5, 1.0]], 1
        yield [[0.5, 1.0], [0.5, 1.0]], 2
        yield [[0.25, 1.0, 1.0], [0.5, 0.5, 0.5]], 3
        yield [[0.95]], 1
        for _ in range(20):
            rows = table(rng, rng.randrange(1, 7))
            yield rows, rng.randrange(len(rows) * G + 2)

    def expected(self, confidence, count):
        return share_naive(confidence, count)

    def describe(self, confidence, count):
        return f"confidence {confidence}, {count} checks"

    def hint(self, got, confidence, count):
        most = min(count, sum(map(len, confidence)))
        if sum(got) != most:
            return f"{most} checks in all are expected, these are {sum(got)}"
        ties = _ties_to_the_later, _ties_to_the_sooner_place
        if list(got) in (rule(confidence, count) for rule in ties):
            return "of slots that survive alike, the one of the earlier request comes first"
        if list(got) == _by_confidence(confidence, count):
            return "a slot's worth is its survival, the product of all up to it, not its confidence"
        if list(got) == _evenly(confidence, count):
            return "not in equal parts: each check goes to the slot that survives most likely"
        if list(got) == _all_of_the_surest(confidence, count):
            return "one check at a time: after each, the next slot of that request is less likely"
        return None


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


def _while_not_falling(confidence, seconds):
    """Goes on where the rate stays as it is."""
    counts, rate = share_naive(confidence, 0), len(confidence) / seconds[0]
    for count in range(1, len(seconds)):
        more = share_naive(confidence, count)
        if sum(more) < count or expected_naive(confidence, more) / seconds[count] < rate:
            break
        counts, rate = more, expected_naive(confidence, more) / seconds[count]
    return counts


def _stop_with_tokens(start):
    """The plain rule, from so many tokens of the requests' own."""

    def rule(confidence, seconds):
        tokens, counts = start, share_naive(confidence, 0)
        for count in range(1, len(seconds)):
            more = share_naive(confidence, count)
            gained = expected_naive(confidence, more) - len(confidence) + start
            if sum(more) < count or gained / seconds[count] <= tokens / seconds[count - 1]:
                break
            counts, tokens = more, gained
        return counts

    return rule


OWN_TOKENS = "each request has a token of its own, checks or none: begin with one for each"


@register
class StopInTime(Check):
    """Exercise of 06: stop where the next check costs more than it brings."""

    name = "06-stop-in-time"
    wrong = [
        Wrong(_whole_curve, "peeks"),
        Wrong(_one_too_many, "before the first"),
        Wrong(_while_tokens_rise, "per second"),
        Wrong(_while_not_falling, "exactly equal"),
        Wrong(_stop_with_tokens(0), "a token of its own"),
        Wrong(_stop_with_tokens(1), "a token of its own"),
    ]

    def cases(self, rng: random.Random):
        """Free checks, dear ones, the trap of the paper, stairs, and random costs."""
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
        want = self.expected(confidence, seconds)
        got = list(got)
        if got == _whole_curve(confidence, seconds) != want:
            return "it looked past the first drop, at slots whose survival tells a token: it peeks"
        if got == _while_not_falling(confidence, seconds) != want:
            return "a check that leaves the rate exactly equal does not raise it: stop before it"
        if got == _one_too_many(confidence, seconds) != want:
            return "stop before the first slot that does not raise tokens per second"
        if any(got == _stop_with_tokens(n)(confidence, seconds) != want for n in (0, 1)):
            return OWN_TOKENS
        if sum(got) > sum(want):
            return "a check must raise expected tokens per second, not only expected tokens"
        return None
