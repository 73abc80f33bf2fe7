"""Exercise 2 of 06: sharing checks."""

import math
import random

import numpy as np

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.expected_tokens import G, table
from minimoe.course.checks.slips import first_slip, told, wrongs
from minimoe.speculative.admission import survival


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


def _first(slots, confidence, count):
    """Checks of each request, where the first of the sorted slots get them."""
    checks = [0] * len(confidence)
    for _, request in sorted(slots)[:count]:
        checks[request] += 1
    return checks


def _ties_to_the_later(confidence, count):
    return share_naive(confidence[::-1], count)[::-1]


def _ties_to_the_sooner_place(confidence, count):
    """Of equals, to the request with fewer checks so far."""
    a = survivals(confidence)
    slots = [((-a[r][j], j), r) for r, row in enumerate(confidence) for j in range(len(row))]
    return _first(slots, confidence, count)


def _by_confidence(confidence, count):
    """Looks at the guess alone, and not at those before it."""
    slots = [(-c, r) for r, row in enumerate(confidence) for c in row]
    return _first(slots, confidence, count)


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


def _survival_before(confidence, count):
    slots = [(-math.prod(row[:j]), r) for r, row in enumerate(confidence) for j in range(len(row))]
    return _first(slots, confidence, count)


def _least_likely(confidence, count):
    slots = [(a, r) for r, row in enumerate(survivals(confidence)) for a in row]
    return _first(slots, confidence, count)


def _carried_on(confidence, count):
    alive, slots = 1.0, []
    for r, row in enumerate(confidence):
        for c in row:
            alive *= c
            slots.append((-alive, r))
    return _first(slots, confidence, count)


def _in_order(confidence, count):
    checks = []
    for row in confidence:
        checks.append(min(len(row), count - sum(checks)))
    return checks


def _no_end(confidence, count):
    """Takes `count` slots, though there may be fewer."""
    slots = sorted((-a, r) for r, row in enumerate(survivals(confidence)) for a in row)
    checks = [0] * len(confidence)
    for place in range(count):
        checks[slots[place][1]] += 1
    return share_naive(confidence, count)


REQUEST_BY_REQUEST = (  # a survival that is carried on falls from request to request
    "these fill request by request: the likeliest of all slots come first, and each request's "
    "survival starts at 1"
)
EARLIER = "of slots that survive alike, the one of the earlier request comes first"
SLIPS = {
    _ties_to_the_later: EARLIER,
    _ties_to_the_sooner_place: EARLIER,
    _by_confidence: "a slot's worth is its survival, the product of all up to it",
    _evenly: "not in equal parts: each check goes to the slot that survives most likely",
    _all_of_the_surest: "one check at a time: the next slot of that request is less likely",
    _survival_before: "a slot's survival has its own confidence in it: multiply first",
    _least_likely: "the likeliest first: sort by *falling* survival",
    _carried_on: REQUEST_BY_REQUEST,
    _in_order: REQUEST_BY_REQUEST,
}
TOO_FEW = {(IndexError, ""): "where there are fewer guesses than `count`, all of them are checked"}


@register
class ShareOut(Check):
    """Exercise of 06: share a budget of checks over the batch."""

    name = "06-share-out"
    wrong = [
        *wrongs(SLIPS),
        Wrong(lambda confidence, count: [1] * len(confidence), "in all"),
        Wrong(lambda *args: dict(enumerate(share_naive(*args))), "a list is expected"),
        Wrong(lambda *args: [n for n in share_naive(*args) if n], "for each request"),
        Wrong(_no_end, "fewer guesses than `count`"),
    ]

    def cases(self, rng: random.Random):
        """Slips apart, none, all, more than there are, ties, a hopeless guess, random ones."""
        yield [[0.2, 0.9, 0.5, 0.1], [0.5, 0.5, 0.9, 0.4], [0.7, 0.7, 0.5, 0.7]], 6
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

    def call(self, answer, confidence, count):
        few = count > sum(map(len, confidence))
        return told(answer, TOO_FEW if few else {}, confidence, count)

    def hint(self, got, confidence, count):
        if isinstance(got, str):
            return got
        if isinstance(got, dict):
            return None
        if len(got) != len(confidence):
            return "give a number of checks for each request, also where it is 0"
        most = min(count, sum(map(len, confidence)))
        if sum(got) != most:
            return f"{most} checks in all are expected, these are {sum(got)}"
        return first_slip(SLIPS, got, confidence, count)
