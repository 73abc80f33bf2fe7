"""Exercise 1 of 04: copies of experts."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, wrongs
from minimoe.parallel.eplb_naive import replicate_naive


def copies_naive(load, slots):
    """Copies of each expert: every spare slot to the one with most load per copy."""
    return replicate_naive(load, slots)[1]


def _hottest_takes_all(load, slots):
    copies = [1] * len(load)
    copies[load.index(max(load))] += slots - len(load)
    return copies


def _one_each(load, slots):
    order = sorted(range(len(load)), key=lambda e: -load[e])
    copies = [1] * len(load)
    for i in range(slots - len(load)):
        copies[order[i % len(order)]] += 1
    return copies


def _from_nothing(load, slots):
    copies = [0] * len(load)
    for _ in range(slots):
        hottest = max(range(len(load)), key=lambda e: load[e] / (copies[e] + 1))
        copies[hottest] += 1
    return copies


def _list_of_slots(load, slots):
    return replicate_naive(load, slots)[0]


def _after_the_next(load, slots):
    copies = [1] * len(load)
    for _ in range(slots - len(load)):
        copies[max(range(len(load)), key=lambda e: load[e] / (copies[e] + 1))] += 1
    return copies


def _last_of_equals(load, slots):
    return copies_naive(load[::-1], slots)[::-1]


def _by(worth):
    """Spare slots to the expert of the most worth(load, copies)."""

    def answer(load, slots):
        copies = [1] * len(load)
        for _ in range(slots - len(load)):
            copies[max(range(len(load)), key=lambda e: worth(load[e], copies[e]))] += 1
        return copies

    return answer


def _halved(load, slots):
    left, copies = list(load), [1] * len(load)
    for _ in range(slots - len(load)):
        hottest = left.index(max(left))
        left[hottest] /= 2
        copies[hottest] += 1
    return copies


SLIPS = {
    _last_of_equals: "of equals the first expert gets the copy",
    _hottest_takes_all: "load per copy: an expert that has two copies has half its load on each",
    _by(lambda load, copies: -load / copies): "to the expert with the *most* load per copy",
    _by(lambda load, copies: load // copies): "divide with `/`, not `//`: a rest is load too",
    _halved: "copies share evenly: three have a third of the load each, so divide load by copies",
    _after_the_next: "load per copy it already has: not that after the next",
    lambda load, slots: sorted(copies_naive(load, slots), reverse=True): "give the numbers in the "
    "order of `load`",
}


@register
class Copies(Check):
    """Exercise of 04: which experts get copies."""

    name = "04-copies"
    wrong = [
        Wrong(_hottest_takes_all, "per copy"),
        Wrong(_one_each, "per copy"),
        Wrong(_from_nothing, "at least one"),
        Wrong(_list_of_slots, "a number for each expert"),
        Wrong(lambda *args: dict(enumerate(copies_naive(*args))), "not a dict"),
        Wrong(lambda *args: [n - 1 for n in copies_naive(*args)], "at least one"),
        Wrong(lambda load, slots: copies_naive(load, slots + len(load)), "copies add up to"),
        Wrong(_by(lambda load, copies: load - copies), "most load per copy it already has"),
        *wrongs(SLIPS),
    ]

    def cases(self, rng: random.Random):
        """No spares, one, ties, one hot expert, idle ones, all idle."""
        yield [4, 9, 2], 4
        yield [4, 9, 2], 3
        yield [100, 1, 1, 1], 8
        yield [5, 5, 5], 5
        yield [9, 4, 4], 5
        yield [4, 19, 3], 6
        yield [0, 0], 4
        yield [7], 3
        for _ in range(20):
            load = [rng.choice([0, 1, 5, 30, 100]) for _ in range(rng.randrange(2, 10))]
            yield load, len(load) + rng.randrange(0, 12)

    def expected(self, load, slots):
        return copies_naive(load, slots)

    def describe(self, load, slots):
        return f"load {load}, {slots} slots"

    def hint(self, got, load, slots):
        if isinstance(got, dict):
            return "give a list, not a dict"
        if len(got) != len(load):
            return "give a number for each expert: how many slots hold it"
        if min(got) < 1:
            return "every expert has at least one slot, however idle"
        if sum(got) != slots:
            return f"the copies add up to {sum(got)}, there are {slots} slots"
        says = first_slip(SLIPS, got, load, slots)
        return says or "the next copy goes to the expert with most load per copy it already has"
