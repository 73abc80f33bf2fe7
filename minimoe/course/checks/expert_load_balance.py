"""Exercises 1 and 2 of 04: copies of experts, and packing them onto ranks."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.parallel.eplb_naive import pack_naive, replicate_naive


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


@register
class Copies(Check):
    """Exercise of 04: which experts get copies."""

    name = "04-copies"
    wrong = [
        Wrong(_hottest_takes_all, "per copy"),
        Wrong(_one_each, "per copy"),
        Wrong(_from_nothing, "at least one"),
        Wrong(_list_of_slots, "a number for each expert"),
        Wrong(_after_the_next, "already has"),
        Wrong(_last_of_equals, "of equals"),
    ]

    def cases(self, rng: random.Random):
        """No spares, one, ties, one hot expert, idle ones, all idle."""
        yield [4, 9, 2], 4
        yield [4, 9, 2], 3
        yield [100, 1, 1, 1], 8
        yield [5, 5, 5], 5
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
        if len(got) != len(load):
            return "give a number for each expert: how many slots hold it"
        if min(got) < 1:
            return "every expert has at least one slot, however idle"
        if sum(got) != slots:
            return f"the copies add up to {sum(got)}, there are {slots} slots"
        if got == _last_of_equals(load, slots):
            return "of equals the first expert gets the copy"
        return "the next copy goes to the expert with most load per copy it already has"


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


def _unsorted(weights, ranks):
    room, load, out = [len(weights) // ranks] * ranks, [0.0] * ranks, []
    for weight in weights:
        rank = min((r for r in range(ranks) if room[r]), key=load.__getitem__)
        room[rank] -= 1
        load[rank] += weight
        out.append(rank)
    return out


def _in_sorted_order(weights, ranks):
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    return [ranks_naive(weights, ranks)[item] for item in order]


def _lightest_first(weights, ranks):
    return ranks_naive([-w for w in weights], ranks)


def _last_rank_of_equals(weights, ranks):
    return [ranks - 1 - rank for rank in ranks_naive(weights, ranks)]


@register
class Packing(Check):
    """Exercise of 04: copies onto ranks, so that the busiest has little."""

    name = "04-packing"
    wrong = [
        Wrong(_in_turn, "least so far"),
        Wrong(_no_limit, "as many items as the others"),
        Wrong(_unsorted, "heaviest first"),
        Wrong(_lightest_first, "heaviest first"),
        Wrong(_last_rank_of_equals, "of equal ranks the first"),
        Wrong(_in_sorted_order, "in the items' order"),
        Wrong(lambda weights, ranks: [i % ranks for i in range(len(weights))], "heaviest first"),
    ]

    def cases(self, rng: random.Random):
        """One rank, an item a rank, ties, a giant with idle ones, random ones."""
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
        if len(got) != len(weights):
            return "give the rank of each item, in the items' order"
        if any(got.count(rank) != len(weights) // ranks for rank in range(ranks)):
            return "every rank gets as many items as the others: a full rank takes no more"
        if got == _in_sorted_order(weights, ranks):
            return "these are the right ranks, heaviest item first: give them in the items' order"
        if got == _in_turn(weights, ranks):
            return "do not take turns: the next item goes to the rank that has least so far"
        if got == _unsorted(weights, ranks) or got == [i % ranks for i in range(len(weights))]:
            return "take the items heaviest first: small ones fill the gaps at the end"
        return "heaviest first; of equal items the first, of equal ranks the first"
