"""`BlockPool`: who owns which page of the KV cache (PagedAttention, arXiv 2309.06180).

A block is `block_size` positions of every layer. Each has a count of the requests that use it.
Blocks with count 0 wait in least-recently-freed order to be handed out again; what they hold stays
readable until then, which is what prefix reuse builds on.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from minimoe.errors import EngineError


class BlockPool:
    """Blocks `0 .. num_blocks - 1` with reference counts.

    Plug-in point: `choose`, a function of the list of free blocks, longest free first, that gives
    the one to hand out (an eviction policy, since a free block may hold a prefix that others could
    find). None: the first of them.
    """

    def __init__(self, num_blocks: int):
        if num_blocks < 1:
            raise EngineError(f"a pool of {num_blocks} blocks: it needs at least 1")
        self.num_blocks = num_blocks
        self.refs = [0] * num_blocks
        self.free_order = OrderedDict.fromkeys(range(num_blocks))  # next to hand out comes first
        self.on_reuse: Callable[[int], None] | None = None  # told before a block is handed out
        self.choose: Callable[[list[int]], int] | None = None

    @property
    def num_free(self) -> int:
        """Blocks that nobody uses, cached ones included."""
        return len(self.free_order)

    def allocate(self) -> int:
        """Hand out a free block. Raises EngineError when none is, or `choose` names another."""
        if not self.free_order:
            raise EngineError(f"all {self.num_blocks} KV blocks are in use: preempt or wait")
        block = self.choose(list(self.free_order)) if self.choose else next(iter(self.free_order))
        if block not in self.free_order:
            raise EngineError(f"`choose` gave {block!r}: it must give one of the free blocks")
        del self.free_order[block]
        if self.on_reuse:
            self.on_reuse(block)
        self.refs[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more user of a block, in use or free."""
        if self.refs[block] == 0:
            del self.free_order[block]
        self.refs[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One user less of each block of a request, given first to last.

        The tail is freed first: it is handed out again before the head, so that what remains of a
        chain of blocks can still be found from its start.
        """
        for block in reversed(list(blocks)):
            if self.refs[block] < 1:
                raise EngineError(f"block {block} released more often than taken: a bug in minimoe")
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.free_order[block] = None

    def check(self) -> None:
        """Assert that each block is free or in use, and none is both or lost."""
        for block, count in enumerate(self.refs):
            assert count >= 0 and (count == 0) == (block in self.free_order), (block, count)
        assert len(self.free_order) == self.refs.count(0)
