"""Exercise 4 of 07: which free block to give up, when the same documents come round and round."""

import random
from functools import partial

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import told
from minimoe.course.compare import shown
from minimoe.course.eviction_lab import FreeBlock, rounds_by_index

ROUNDS = 4
ENOUGH = 0.8  # of what giving up the deepest finds
FINE = "fine"


def deepest(free: list[FreeBlock]) -> FreeBlock:
    """Blocks that nobody can find first, then the one furthest from its prompt's beginning."""
    return max(free, key=lambda one: float("inf") if one.depth is None else one.depth)


def judge(victim, documents: list, capacity: int) -> str:
    """FINE, or what is wrong with a choice."""
    wrong = []

    def watched(free):
        one = victim(list(free))
        if one not in free:
            wrong.append(f"give one of the records in `free`, not {shown(one)}")
        elif one.depth is not None and any(other.depth is None for other in free):
            wrong.append("a block of depth None is of no use to anybody: give up those first")
        return one if one in free else free[0]

    found = sum(rounds_by_index(watched, documents, capacity, ROUNDS)[1:])
    if wrong:
        return wrong[0]
    best = sum(rounds_by_index(deepest, documents, capacity, ROUNDS)[1:])
    if found >= ENOUGH * best:
        return FINE
    if not found:
        return (
            "from the second round on nothing is found: what is given up comes next, or it was a "
            "prompt's beginning, without which the rest cannot be found"
        )
    return f"from the second round on {found} blocks are found; {best} can be"


def _head(free):
    return min(free, key=lambda one: -1 if one.depth is None else one.depth)


def _unfindable_last(free):
    return max(free, key=lambda one: -1 if one.depth is None else one.depth)


NO_DEPTH = {
    (TypeError, "NoneType"): "a depth may be None, which compares with no number: ask first"
}


@register
class FirstToGo(Check):
    """An eviction of one's own, run against the real pool and index."""

    name = "07-first-to-go"
    wrong = [
        Wrong(lambda free: free[0], "nothing is found"),
        Wrong(lambda free: free[-1], "of no use to anybody"),
        Wrong(_head, "nothing is found"),
        Wrong(_unfindable_last, "of no use to anybody"),
        Wrong(lambda free: free[0].block, "one of the records"),
        Wrong(lambda free: max(one.depth or 0 for one in free), "one of the records"),
        Wrong(lambda free: deepest(free).depth, "one of the records"),
        Wrong(lambda free: free.index(deepest(free)), "one of the records"),
        Wrong(lambda free: [deepest(free)], "one of the records"),
        Wrong(lambda free: max(free, key=lambda one: one.depth), "may be None"),
        Wrong(lambda free: max(free, key=lambda one: one.depth or 0), "of no use to anybody"),
        Wrong(lambda free: max(free, key=lambda one: one.depth or 99), "a prompt's beginning"),
    ]

    def cases(self, rng: random.Random):
        """Documents whose blocks together are more than the pool; each fits alone."""
        yield [[10 * d + i for i in range(8)] for d in range(4)], 24
        for _ in range(6):
            blocks, count = rng.randrange(4, 10), rng.randrange(3, 6)
            documents = [[100 * d + i for i in range(blocks)] for d in range(count)]
            yield documents, rng.randrange(blocks + 2, blocks * (count - 1) + 1)

    def expected(self, documents, capacity):
        return FINE

    def call(self, answer, documents, capacity):
        free = [FreeBlock(block, block) for block in range(capacity)]
        one = answer(free)
        if one is None or one is ...:
            return one
        return told(partial(judge, answer), NO_DEPTH, documents, capacity)

    def describe(self, documents, capacity):
        return f"{len(documents)} documents of {len(documents[0])} blocks, {capacity} in the pool"

    def hint(self, got, documents, capacity):
        return got
