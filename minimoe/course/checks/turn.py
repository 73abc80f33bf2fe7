"""Exercise 4 of 02: who goes first when a place gets free."""

import heapq
import math
import random
from numbers import Real

from minimoe.course.check import Check, Wrong, register

LONGEST, LATE = 64, 100  # tokens of the longest request; arrivals after which nobody may pass
OLD = (0, 7, 99, 450, 1000, 12345)  # requests that must not starve
SOONER = 0.9  # of the mean end of first come, first served
FINE = "fine"


def mean_end(lengths: list[int], slots: int, turn) -> float:
    """Steps until a request ends, on average, when the lowest `turn` starts first."""
    order = sorted(range(len(lengths)), key=lambda i: (turn(lengths[i], i), i))
    free, ends = [0] * slots, 0
    for i in order:
        end = heapq.heappop(free) + lengths[i]
        heapq.heappush(free, end)
        ends += end
    return ends / len(lengths)


def judge(turn, lengths: list[int], slots: int) -> str:
    """FINE, or what is wrong with an order."""
    for i, length in enumerate(lengths):
        place = turn(length, i)
        place = place.item() if hasattr(place, "item") else place
        if not isinstance(place, Real) or math.isnan(place):
            return f"give a number: turn({length}, {i}) is {place!r}"
    plain = mean_end(lengths, slots, lambda new_tokens, arrival: arrival)
    mine = mean_end(lengths, slots, turn)
    if mine > SOONER * plain:
        what = "later" if mine > plain else "hardly sooner"
        return (
            f"a request ends at step {mine:.1f} on average, {what} than first come, first served "
            f"({plain:.1f}): let those go first that will soon be out of the way"
        )
    return next(filter(None, (_starves(turn, old) for old in OLD)), FINE)


def _starves(turn, old: int) -> str | None:
    for mine in (LONGEST, 1):
        for newcomer in (1, LONGEST):
            if not turn(mine, old) < turn(newcomer, old + LATE):
                return (
                    f"in a longer queue number {old}, with {mine} tokens, is passed by number "
                    f"{old + LATE}, with {newcomer}: in a service that never ends it might wait "
                    "for ever, so let `arrival` count, and enough"
                )
    return None


@register
class Turn(Check):
    """An order of one's own, sooner on average and fair to all."""

    name = "02-turn"
    wrong = [
        Wrong(lambda new_tokens, arrival: arrival, "first come, first served"),
        Wrong(lambda new_tokens, arrival: -new_tokens, "later than first come"),
        Wrong(lambda new_tokens, arrival: new_tokens, "wait for ever"),
        Wrong(lambda new_tokens, arrival: new_tokens * arrival, "wait for ever"),
        Wrong(lambda new_tokens, arrival: -arrival, "wait for ever"),
        Wrong(lambda new_tokens, arrival: arrival + new_tokens / 100, "hardly sooner"),
        Wrong(lambda new_tokens, arrival: (new_tokens, arrival), "give a number"),
    ]

    def cases(self, rng: random.Random):
        """Few long requests among short ones; the long ones come first, and anywhere."""
        yield [4] * 4 + [LONGEST] * 2 + [4] * 10, 2
        for _ in range(8):
            lengths = [rng.randrange(4, 17) for _ in range(24)] + [rng.randrange(40, 64)] * 8
            rng.shuffle(lengths)
            yield lengths, rng.choice([2, 4])

    def expected(self, lengths, slots):
        return FINE

    def call(self, answer, lengths, slots):
        place = answer(lengths[0], 0)
        return place if place is None or place is ... else judge(answer, lengths, slots)

    def describe(self, lengths, slots):
        return f"requests that make {lengths} tokens, {slots} places"

    def hint(self, got, lengths, slots):
        return got
