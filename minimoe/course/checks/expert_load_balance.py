"""Checks of 04_expert_load_balance: copies, packing, a placement of one's own, the slow rank."""

import random
import statistics

from minimoe.course.check import Check, Wrong, register
from minimoe.parallel.eplb_naive import greedy_naive, pack_naive, peak_naive, replicate_naive


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
        if got == _in_turn(weights, ranks):
            return "do not take turns: the next item goes to the rank that has least so far"
        if got == _unsorted(weights, ranks) or got == [i % ranks for i in range(len(weights))]:
            return "take the items heaviest first: small ones fill the gaps at the end"
        return "heaviest first; of equal items the first, of equal ranks the first"


FINE = "fine"


def judge(row, load, ranks, slots) -> str:
    """FINE, or what is wrong with a placement of one layer."""
    if not isinstance(row, list | tuple) or len(row) != slots:
        return f"give a list of {slots} experts, one for each slot"
    row = [int(expert) for expert in row]
    if not set(row) <= set(range(len(load))):
        return "a slot holds an expert that does not exist"
    if len(set(row)) < len(load):
        return "an expert has no slot: its tokens would have nowhere to go"
    held = [row[first : first + slots // ranks] for first in range(0, slots, slots // ranks)]
    peak, plain = peak_naive(load, held), peak_naive(load, greedy_naive(load, slots, ranks))
    if peak > 1.15 * plain:
        found = f"the busiest rank has {peak:.2f} times the mean; {1.15 * plain:.2f} will do"
        same = row == _undivided(load, ranks, slots)
        return found + (": copies share an expert's load, so pack load / copies" if same else "")
    return FINE


def _undivided(load, ranks, slots):
    """Copies packed as if each had all of its expert's load."""
    experts, _ = replicate_naive(load, slots)
    rank = ranks_naive([load[e] for e in experts], ranks)
    return [experts[i] for r in range(ranks) for i in range(slots) if rank[i] == r]


def _greedy(load, ranks, slots):
    return [expert for rank in greedy_naive(load, slots, ranks) for expert in rank]


@register
class OwnPlacement(Check):
    """Exercise of 04: a placement of your own, run in the real engine."""

    name = "04-placement"
    wrong = [
        Wrong(lambda load, ranks, slots: [i % len(load) for i in range(slots)], "will do"),
        Wrong(lambda load, ranks, slots: [load.index(max(load))] * slots, "no slot"),
        Wrong(lambda load, ranks, slots: list(range(len(load))), "one for each slot"),
        Wrong(lambda load, ranks, slots: sorted(_greedy(load, ranks, slots)), "will do"),
        Wrong(_undivided, "pack load / copies"),
    ]

    def cases(self, rng: random.Random):
        """No spare, one and two a rank; even, hot and drawn loads."""
        yield [10] * 8, 4, 8
        yield [90, 10, 10, 10, 10, 10, 10, 10], 4, 12
        yield [1, 2, 3, 4, 5, 6, 7, 8], 2, 10
        yield [60, 50, 1, 1, 1, 1], 3, 9
        yield [50, 2, 1, 1, 2, 1, 50, 50, 1, 1, 100, 100, 50, 2, 5, 50], 8, 24
        for _ in range(12):
            ranks = rng.choice([2, 3, 4])
            per_rank, spare = rng.randrange(4, 9), rng.randrange(0, 3)
            load = [int(100 / (1 + e) ** rng.uniform(0.2, 0.9)) for e in range(ranks * per_rank)]
            rng.shuffle(load)
            yield load, ranks, ranks * (per_rank + spare)

    def expected(self, *args):
        return FINE

    def call(self, answer, load, ranks, slots):
        row = answer(load, ranks, slots)
        return row if row is None or row is ... else judge(row, load, ranks, slots)

    def describe(self, load, ranks, slots):
        return f"load {load}, {ranks} ranks, {slots} slots"

    def hint(self, got, *args):
        return got


def slow_naive(seconds, rows):
    """(rank, factor): most seconds per row, over the median of all."""
    each = [took / count for took, count in zip(seconds, rows, strict=True)]
    rank = each.index(max(each))
    return rank, each[rank] / statistics.median(each)


def _by_time(seconds, rows):
    rank = seconds.index(max(seconds))
    return rank, seconds[rank] / statistics.median(seconds)


def _by_rows(seconds, rows):
    rank = rows.index(max(rows))
    return rank, rows[rank] / statistics.median(rows)


def _over_fastest(seconds, rows):
    each = [took / count for took, count in zip(seconds, rows, strict=True)]
    return each.index(max(each)), max(each) / min(each)


def _upside_down(seconds, rows):
    rank, factor = slow_naive(seconds, rows)
    return rank, 1 / factor


def _over_mean(seconds, rows):
    each = [took / count for took, count in zip(seconds, rows, strict=True)]
    return each.index(max(each)), max(each) / statistics.mean(each)


def _over_middle(seconds, rows):
    each = [took / count for took, count in zip(seconds, rows, strict=True)]
    return each.index(max(each)), max(each) / sorted(each)[len(each) // 2]


def _over_others(seconds, rows):
    each = [took / count for took, count in zip(seconds, rows, strict=True)]
    rank = each.index(max(each))
    return rank, each[rank] / statistics.median(each[:rank] + each[rank + 1 :])


def _by_rate(seconds, rows):
    rate = [count / took for took, count in zip(seconds, rows, strict=True)]
    return rate.index(min(rate)), statistics.median(rate) / min(rate)


_SLIPS = {
    _over_mean: "compare with the median of all ranks, not their mean: the slow one is in that",
    _over_others: "the median of all ranks, its own too; of an even number, between the middle two",
    _by_rate: "take the median of seconds per row: that of rows per second is another number",
    _over_middle: "the median of an even number of ranks lies between the middle two",
}


@register
class SlowRank(Check):
    """Exercise of 04: find the slow rank from its times."""

    name = "04-slow-rank"
    wrong = [
        Wrong(_by_time, "had more rows"),
        Wrong(_by_rows, "rows alone"),
        Wrong(_over_fastest, "median"),
        Wrong(_over_mean, "not their mean"),
        Wrong(_over_middle, "middle two"),
        Wrong(_over_others, "its own too"),
        Wrong(_by_rate, "rows per second"),
        Wrong(lambda *args: slow_naive(*args)[0], "a pair"),
        Wrong(_upside_down, "above 1"),
    ]

    def cases(self, rng: random.Random):
        """Equal rows, a busy rank that is not slow, a slow one with few rows, random ones."""
        yield [1.0, 1.0, 2.0], [10, 10, 10]
        yield [3.0, 1.0, 1.0, 1.5], [30, 10, 10, 10]
        yield [1.0, 1.0, 1.0], [20, 20, 10]
        yield [5.0, 4.0, 4.2, 2.1, 4.1], [50, 40, 42, 7, 41]
        for _ in range(20):
            ranks = rng.randrange(3, 9)
            rows = [rng.randrange(10, 100) for _ in range(ranks)]
            slow = rng.randrange(ranks)
            speed = [rng.uniform(0.95, 1.05) * (0.4 if r == slow else 1) for r in range(ranks)]
            yield [count / v for count, v in zip(rows, speed, strict=True)], rows

    def expected(self, seconds, rows):
        return slow_naive(seconds, rows)

    def describe(self, seconds, rows):
        return f"seconds {[round(s, 2) for s in seconds]}, rows {rows}"

    def hint(self, got, seconds, rows):
        if not isinstance(got, tuple | list) or len(got) != 2:
            return "give a pair: the rank, and how many times as slow it is"
        rank, factor = self.expected(seconds, rows)
        if got[0] != rank and got[0] == seconds.index(max(seconds)):
            return "this rank took long because it had more rows: compare seconds per row"
        if got[0] != rank and got[0] == rows.index(max(rows)):
            return "rows alone say who is busy, not who is slow: divide seconds by them"
        if got[0] != rank:
            return "the slow rank has the most seconds per row"
        if abs(got[1] * factor - 1) < 1e-6:
            return "the factor says how many times as slow it is: above 1"
        for slip, text in _SLIPS.items():
            if abs(got[1] / slip(seconds, rows)[1] - 1) < 1e-6:
                return text
        if got[1] > factor:
            return "compare with the median of all ranks: the fastest may be a lucky one"
        return "the factor is its seconds per row over the median of all ranks'"
