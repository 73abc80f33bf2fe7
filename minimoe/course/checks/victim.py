"""Exercise 1 of 08: an eviction policy of one's own, in the real replay."""

import random
from functools import partial
from operator import floordiv, truediv

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import told
from minimoe.kvstore.replay import replay
from minimoe.kvstore.retention import Choice
from minimoe.kvstore.trace import Request


def hyperbolic(blocks: dict):
    """The block with the fewest uses per touch since it came in; of equals the least recent."""
    now = max(use.last for use in blocks.values())

    def worth(block):
        use = blocks[block]
        return use.count / (now - use.first + 1), use.last

    return min(blocks, key=worth)


def requests_of(prompts: list[list[int]]) -> list[Request]:
    """Requests a second apart, one for each list of block ids."""
    return [Request(i * 1000, 0, 0, blocks) for i, blocks in enumerate(prompts)]


def _scanned(rng: random.Random) -> list[list[int]]:
    """Popular prompts between a stream of prompts that nobody repeats."""
    prompts, new = [], 1000
    for _ in range(rng.randrange(8, 30)):
        if rng.random() < 0.5:
            first = 100 * rng.randrange(3)
            prompts.append(list(range(first, first + rng.randrange(1, 5))))
        else:
            count = rng.randrange(1, 5)
            prompts.append(list(range(new, new + count)))
            new += count
    return prompts


def by(order):
    """A choice that takes the block whose `Use` is least in some order."""
    return lambda blocks: min(blocks, key=lambda block: order(blocks[block]))


def _ratio(blocks, since=lambda use: use.first, tie=lambda use: use.last, divide=truediv):
    """`hyperbolic`, or with a part of it another."""
    now = max(use.last for use in blocks.values())
    return by(lambda use: (divide(use.count, now - since(use) + 1), tie(use)))(blocks)


_later_first = partial(_ratio, tie=lambda use: -use.last)
_any_of_equals = partial(_ratio, tie=lambda use: 0)
_since_last = partial(_ratio, since=lambda use: use.last)
_rounded = partial(_ratio, divide=floordiv)


def _without_one(blocks):
    now = max(use.last for use in blocks.values())
    return by(lambda use: (use.count / (now - use.first or 1), use.last))(blocks)


def _until_last_use(use):
    return use.count / (use.last - use.first + 1), use.last


SLIPS = [
    (by(_until_last_use), "the time runs to `now`, not to the block's own last use"),
    (_without_one, "the + 1 is missing: a block that came in last is divided by 1"),
    (_later_first, "of equal ratios the block with the lowest `last` goes"),
    (_any_of_equals, "of equal ratios the block with the lowest `last` goes"),
    (_since_last, "the time runs from `first`, when the block came in, not from its last use"),
]


ONE_MISSING = "the + 1 is missing: a block that came in last is divided by 1"
ERRORS = {
    (ZeroDivisionError, ""): ONE_MISSING,
    (AttributeError, "has no attribute 'count'"): "`blocks` maps a block to its record: "
    "blocks[block].count",
    (AttributeError, "has no attribute 'last'"): "`blocks` maps a block to its record: "
    "blocks[block].last",
}


@register
class Victim(Check):
    """The reader's function is put into the replay; what it drops is compared block by block."""

    name = "08-victim"
    wrong = [
        Wrong(by(lambda use: use.last), "so far that is LRU"),
        Wrong(by(lambda use: (use.count, use.last)), "so far that is LFU"),
        Wrong(by(lambda use: use.first), "so far that is FIFO"),
        Wrong(by(_until_last_use), "runs to `now`"),
        Wrong(_without_one, "+ 1 is missing"),
        Wrong(_later_first, "lowest `last`"),
        Wrong(_any_of_equals, "lowest `last`"),
        Wrong(_since_last, "runs from `first`"),
        Wrong(_rounded, "not `//`"),
        Wrong(lambda blocks: max(blocks, key=lambda b: blocks[b].last), "another block"),
        Wrong(lambda blocks: _ratio(blocks, divide=lambda a, b: a / (b - 1)), "+ 1 is missing"),
        Wrong(lambda blocks: _ratio(blocks, divide=lambda a, b: -a / b), "another block"),
        Wrong(lambda blocks: _ratio(blocks, divide=lambda a, b: b / a), "another block"),
        Wrong(lambda blocks: _ratio(blocks, divide=lambda a, b: a * b), "another block"),
        Wrong(lambda blocks: min(blocks, key=lambda b: b.count), "maps a block to its record"),
        Wrong(lambda blocks: blocks[hyperbolic(blocks)].last, "no resident block"),
    ]

    def cases(self, rng: random.Random):
        """First one that tells all known orders apart; then a capacity of one, equal worth, prompts
        larger than the cache, and scans."""
        yield [[3, 4, 5], [3, 4], [0], [3, 4, 5], [0, 1, 2], [7, 8, 9]], 4
        yield [[1], [1], [2], [1]], 1
        yield [[1, 2], [1, 2], [3], [4], [1, 2]], 3
        yield [[1], [1], [2], [2], [2], [3], [1], [2]], 2
        yield [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5]], 3
        for _ in range(40):
            yield _scanned(rng), rng.randrange(2, 12)

    def expected(self, prompts, capacity):
        return self.call(hyperbolic, prompts, capacity)

    def call(self, answer, prompts, capacity):
        """The blocks dropped, in order."""
        dropped = []

        def choose(blocks):
            dropped.append(answer(blocks))
            return dropped[-1]

        found = told(replay, ERRORS, requests_of(prompts), lambda: Choice(choose), capacity)
        return found if isinstance(found, str) else dropped

    def describe(self, prompts, capacity):
        return f"prompts of blocks {prompts}, room for {capacity}; the blocks dropped, in order"

    def hint(self, got, prompts, capacity):
        if isinstance(got, str):
            return got
        known = {
            "LRU": by(lambda use: use.last),
            "FIFO": by(lambda use: use.first),
            "LFU": by(lambda use: (use.count, use.last)),
        }
        for slip, says in SLIPS:
            if got == self.call(slip, prompts, capacity):
                return says
        for name, order in known.items():
            if got == self.call(order, prompts, capacity):
                return f"so far that is {name}: uses / time since it came in, with `/`, not `//`"
        return "another block should go: the one of the *lowest* uses / time since it came in"
