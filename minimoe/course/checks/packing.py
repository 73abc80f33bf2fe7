"""Exercise 2 of 04: packing items onto ranks."""

import random

import torch

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, wrongs
from minimoe.course.compare import plain
from minimoe.parallel.eplb_naive import pack_naive


def ranks_naive(weights, ranks):
    """The rank of each item: heaviest first, to the lightest rank with room."""
    held = pack_naive(weights, ranks)
    return [next(r for r in range(ranks) if i in held[r]) for i in range(len(weights))]


def _in_turn(weights, ranks):
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    out = [0] * len(weights)
    for place, item in enumerate(order):
        out[item] = place % ranks
    return out


def _no_limit(weights, ranks):
    load, out = [0.0] * ranks, [0] * len(weights)
    for item in sorted(range(len(weights)), key=lambda i: -weights[i]):
        out[item] = load.index(min(load))
        load[out[item]] += weights[item]
    return out


def _in_sorted_order(weights, ranks):
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    return [ranks_naive(weights, ranks)[item] for item in order]


def _lightest_first(weights, ranks):
    return ranks_naive([-w for w in weights], ranks)


def _last_rank_of_equals(weights, ranks):
    return [ranks - 1 - rank for rank in ranks_naive(weights, ranks)]


def _in_order(weights, ranks):
    return [i % ranks for i in range(len(weights))]


def _side_by_side(weights, ranks):
    return [i * ranks // len(weights) for i in range(len(weights))]


def _back_and_forth(weights, ranks):
    """Heaviest first, rank 0 to the last and back again."""
    turn = [*range(ranks), *reversed(range(ranks))]
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    return [turn[order.index(i) % len(turn)] for i in range(len(weights))]


def _packed(order, best):
    """Items by order(weight, item), each to the rank of least best(load, rank) with room."""

    def answer(weights, ranks):
        room, load = [len(weights) // ranks] * ranks, [0] * ranks
        out = [0] * len(weights)
        for item in sorted(range(len(weights)), key=lambda i: order(weights[i], i)):
            able = [r for r in range(ranks) if room[r]]
            out[item] = min(able, key=lambda r: best(load[r], r))
            room[out[item]] -= 1
            load[out[item]] += weights[item]
        return out

    return answer


LEAST = "to the rank with the *least* weight so far: add each item's to what its rank has"
TURNS = "do not take turns: the next item goes to the rank that has least so far"
HEAVIEST = "take the items heaviest first: small ones fill the gaps at the end"
SLIPS = {
    _in_sorted_order: "right, but heaviest item first: give the ranks in the items' order",
    _in_turn: TURNS,
    _back_and_forth: TURNS,
    _packed(lambda w, i: i, lambda load, r: load): HEAVIEST,
    _in_order: HEAVIEST,
    _side_by_side: HEAVIEST,
    _lightest_first: "take the items heaviest first, not lightest first",
    _packed(
        lambda w, i: w, lambda load, r: load
    ): "take the items heaviest first, not lightest first",
    _packed(lambda w, i: -w, lambda load, r: -load): LEAST,
    _packed(lambda w, i: -w, lambda load, r: 0): LEAST,
    _last_rank_of_equals: "of equal ranks the first",
    _packed(lambda w, i: (-w, -i), lambda load, r: load): "of equal items the first",
}


@register
class Packing(Check):
    """Exercise of 04: copies onto ranks, so that the busiest has little."""

    name = "04-packing"
    wrong = [
        *wrongs(SLIPS),
        Wrong(_no_limit, "as many items as the others"),
        Wrong(lambda *args: torch.tensor(_no_limit(*args)), "as many items as the others"),
        Wrong(lambda *args: [rank + 1 for rank in ranks_naive(*args)], "numbers 0 to 2"),
        Wrong(lambda weights, ranks: pack_naive(weights, ranks), "the rank of each item"),
    ]

    def cases(self, rng: random.Random):
        """One rank, an item a rank, ties, a giant with idle ones, random ones."""
        yield [4, 9, 1, 7, 6, 5, 3, 2, 2], 3  # tells most known slips apart
        yield [4, 9, 1, 7, 6, 5], 3
        yield [1, 2, 3], 1
        yield [3, 1, 2], 3
        yield [4, 4, 4, 4], 2
        yield [100, 0, 0, 0, 0, 0], 2
        yield [1, 2, 3, 10, 20, 30, 100, 200], 2
        for _ in range(20):
            ranks = rng.randrange(2, 5)
            yield [rng.randrange(0, 40) for _ in range(ranks * rng.randrange(1, 5))], ranks

    def expected(self, weights, ranks):
        return ranks_naive(weights, ranks)

    def describe(self, weights, ranks):
        return f"weights {weights} on {ranks} ranks"

    def hint(self, got, weights, ranks):
        got = plain(got)
        if len(got) != len(weights):
            return "give the rank of each item, in the items' order"
        if isinstance(got, dict):
            return None
        if not set(got) <= set(range(ranks)):
            return f"ranks have the numbers 0 to {ranks - 1}"
        if any(got.count(rank) != len(weights) // ranks for rank in range(ranks)):
            return "every rank gets as many items as the others: a full rank takes no more"
        says = first_slip(SLIPS, got, weights, ranks)
        return says or (
            "heaviest first, each to the rank with the least weight so far that still has room"
        )
