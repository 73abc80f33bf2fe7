"""Exercise 2 of 02: blocks of requests, and what is empty in them."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, wrongs
from minimoe.perf.cache_size import blocks_for
from minimoe.perf.kv_cost import paged


def waste_naive(lengths, block_size):
    """Whole blocks for each request, and the positions in them that hold no token."""
    blocks = sum(blocks_for(length, block_size) for length in lengths)
    return blocks, paged(lengths, block_size) - sum(lengths)


def _one_more(lengths, block_size):
    blocks = sum(length // block_size + 1 for length in lengths)
    return blocks, blocks * block_size - sum(lengths)


def _joined(lengths, block_size):
    return waste_naive([sum(lengths)], block_size)


def _rounds_down(lengths, block_size):
    return sum(length // block_size for length in lengths), waste_naive(lengths, block_size)[1]


def _one_for_none(lengths, block_size):
    return waste_naive([max(1, length) for length in lengths], block_size)


def _counts_tokens(lengths, block_size):
    return waste_naive(lengths, block_size)[0], sum(lengths)


def _waste(change):
    """The right blocks, and as waste change(lengths, block size, blocks)."""

    def answer(lengths, block_size):
        blocks, _ = waste_naive(lengths, block_size)
        return blocks, change(lengths, block_size, blocks)

    return answer


SLIPS = {
    _waste(
        lambda lengths, size, blocks: sum(size - length % size for length in lengths)
    ): "a request that exactly fills its blocks leaves nothing empty",
    _waste(lambda lengths, size, blocks: sum(length % size for length in lengths)): "that is what "
    "the last blocks hold: count the positions that hold no token",
    _waste(lambda lengths, size, blocks: blocks * size): "these are all positions: subtract the "
    "tokens, and count those that hold no token",
    _counts_tokens: "these are the tokens: count the positions that hold no token",
    _waste(lambda lengths, size, blocks: -sum(lengths) % size): "a request shares no block with "
    "another: add up what each leaves empty",
    _waste(
        lambda lengths, size, blocks: 1 - sum(lengths) / (blocks * size)
    ): "give empty positions, not their share",
    _waste(lambda lengths, size, blocks: blocks - sum(lengths) / size): "give empty positions, not "
    "blocks",
    lambda *args: waste_naive(*args)[::-1]: "give the blocks first, then the empty positions",
    lambda lengths, size: waste_naive(lengths, 16): "blocks are not always of 16 tokens",
    lambda lengths, size: _waste(lambda *_: 16 * waste_naive(lengths, size)[0] - sum(lengths))(
        lengths, size
    ): "blocks are not always of 16 tokens",
}


def _of_the_longest(lengths, block_size):
    return waste_naive([max(lengths, default=0)] * len(lengths), block_size)


@register
class BlocksAndWaste(Check):
    """Exercise 2 of 02: blocks that requests take, and positions in them that hold no token."""

    name = "02-blocks-and-waste"
    wrong = [
        *wrongs(SLIPS),
        Wrong(_one_more, "exactly fills its blocks"),
        Wrong(_joined, "shares no block"),
        Wrong(_rounds_down, "the last block is begun"),
        Wrong(_one_for_none, "without tokens needs no block"),
        Wrong(_of_the_longest, "its own number of blocks"),
        Wrong(lambda *args: waste_naive(*args)[0], "a pair of numbers"),
        Wrong(lambda lengths, size: [waste_naive([n], size) for n in lengths], "a pair of numbers"),
    ]

    def cases(self, rng: random.Random):
        """No request, no tokens, exact multiples and their neighbours, and other block sizes."""
        yield [17, 40], 16  # tells most known slips apart
        yield [17], 16
        yield [16], 16
        yield [15, 1], 16
        yield [], 16
        yield [0], 16
        yield [32, 80, 16], 16
        yield [7, 8, 9], 1
        for _ in range(20):
            size = rng.choice([1, 4, 16, 64])
            edges = [size * rng.randrange(6) + rng.choice([-1, 0, 1]) for _ in range(4)]
            yield [max(0, length) for length in edges], size

    def expected(self, lengths, block_size):
        return waste_naive(lengths, block_size)

    def hint(self, got, lengths, block_size):
        if not hasattr(got, "__len__") or len(got) != 2 or hasattr(got[0], "__len__"):
            return "give a pair of numbers, for all requests together: blocks, empty positions"
        blocks, waste = self.expected(lengths, block_size)
        says = first_slip(SLIPS, got, lengths, block_size)
        if says:
            return says
        if 0 in lengths and got[0] == _one_for_none(lengths, block_size)[0]:
            return "a request without tokens needs no block"
        if got[0] == _one_more(lengths, block_size)[0] > blocks:
            return "a request that exactly fills its blocks needs no further one"
        if got[0] == _joined(lengths, block_size)[0] < blocks:
            return "a request shares no block with another: round up for each"
        if got[0] == _of_the_longest(lengths, block_size)[0] > blocks:
            return "each request has its own number of blocks, not that of the longest"
        if got[0] < blocks:
            return "the last block is begun and counts as a whole one: round up"
        if got[0] == blocks:
            return "waste is the positions in these blocks that hold no token"
        return "too many blocks: round up for each request, and add up"
