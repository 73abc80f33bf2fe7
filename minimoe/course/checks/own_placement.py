"""Exercise 3 of 04: a placement of one's own, run in the real engine."""

import random

import numpy as np

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.expert_load_balance import ranks_naive
from minimoe.parallel.eplb_naive import greedy_naive, peak_naive, replicate_naive

FINE = "fine"


def judge(row, load, ranks, slots) -> str:
    """FINE, or what is wrong with a placement of one layer."""
    if not isinstance(row, list | tuple | np.ndarray) or len(row) != slots:
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
