"""Exercise 3 of 04: a placement of one's own, run in the real engine."""

import random
from numbers import Real

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.packing import ranks_naive
from minimoe.course.compare import plain
from minimoe.parallel.eplb_naive import greedy_naive, peak_naive, replicate_naive

FINE = "fine"


def judge(row, load, ranks, slots) -> str:
    """FINE, or what is wrong with a placement of one layer."""
    row = plain(row)
    if not isinstance(row, list) or len(row) != slots:
        nested = isinstance(row, list) and len(row) == ranks and isinstance(row[0], list)
        more = ": one list, that of rank 0 first, then that of rank 1" if nested else ""
        return f"give a list of {slots} experts, one for each slot" + more
    if not all(isinstance(expert, Real) and expert in range(len(load)) for expert in row):
        return f"a slot holds an expert that does not exist: they are 0 to {len(load) - 1}"
    if len(set(row)) < len(load):
        ids = ": these look like ranks; give the expert in each slot" if max(row) < ranks else ""
        return "an expert has no slot: its tokens would have nowhere to go" + ids
    peak, plain_peak = _peak(row, load, ranks), peak_naive(load, greedy_naive(load, slots, ranks))
    if peak > 1.15 * plain_peak:
        found = f"the busiest rank has {peak:.2f} times the mean; {1.15 * plain_peak:.2f} will do"
        return found + _cause([int(expert) for expert in row], peak, load, ranks)
    return FINE


def _peak(row, load, ranks) -> float:
    size = len(row) // ranks
    held = [[int(e) for e in row[size * rank : size * (rank + 1)]] for rank in range(ranks)]
    return peak_naive(load, held)


def _cause(row, peak, load, ranks) -> str:
    """What has made the busiest rank so busy, or nothing."""
    slots = len(row)
    if row == sorted(row) or row == replicate_naive(load, slots)[0]:
        return ": the experts lie in order, not packed; list what rank 0 holds, then rank 1, ..."
    if (
        _peak([row[i] for r in range(ranks) for i in range(r, slots, ranks)], load, ranks)
        < peak / 1.1
    ):
        return f": rank 0 owns the first {slots // ranks} slots, not every {ranks}th"
    undivided = _undivided(load, ranks, slots), _undivided(load, ranks, slots, by_expert=True)
    if row in undivided:
        return ": copies share an expert's load, so pack load / copies"
    return ""


def _undivided(load, ranks, slots, by_expert=False):
    """Copies packed as if each had all of its expert's load."""
    experts, _ = replicate_naive(load, slots)
    experts = sorted(experts) if by_expert else experts
    rank = ranks_naive([load[e] for e in experts], ranks)
    return [experts[i] for r in range(ranks) for i in range(slots) if rank[i] == r]


def _greedy(load, ranks, slots):
    return [expert for rank in greedy_naive(load, slots, ranks) for expert in rank]


def _strided(load, ranks, slots):
    """The greedy, written as if slot i were of rank i modulo ranks."""
    held = greedy_naive(load, slots, ranks)
    return [held[i % ranks][i // ranks] for i in range(slots)]


def _rank_of_each_copy(load, ranks, slots):
    experts, copies = replicate_naive(load, slots)
    return ranks_naive([load[e] / copies[e] for e in experts], ranks)


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
        Wrong(lambda *args: _undivided(*args, by_expert=True), "pack load / copies"),
        Wrong(lambda load, ranks, slots: replicate_naive(load, slots)[0], "not packed"),
        Wrong(lambda load, ranks, slots: sorted(replicate_naive(load, slots)[0]), "not packed"),
        Wrong(lambda load, ranks, slots: greedy_naive(load, slots, ranks), "that of rank 0 first"),
        Wrong(_strided, "rank 0 owns the first"),
        Wrong(_rank_of_each_copy, "these look like ranks"),
        Wrong(lambda load, ranks, slots: replicate_naive(load, slots)[1], "one for each slot"),
        Wrong(lambda *args: [e + 1 for e in _greedy(*args)], "they are 0 to"),
        Wrong(lambda *args: [*_greedy(*args)[:-1], None], "does not exist"),
        Wrong(lambda *args: iter(_greedy(*args)), "give a list"),
    ]

    def cases(self, rng: random.Random):
        """No spare, one and two a rank; even, hot and drawn loads."""
        yield [90, 10, 10, 10, 10, 10, 10, 10], 4, 12
        yield [10] * 8, 4, 8
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
