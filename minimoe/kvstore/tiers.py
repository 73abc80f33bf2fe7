"""Where KV blocks are kept: the pool in memory, then the shared store on disk.

Both tiers answer to the same three calls, with the keys of a chain of blocks:
`lookup(keys)` says how many leading blocks are there; `load(keys)` gives pool blocks that hold
them, owned by the caller; `save(keys, blocks)` keeps blocks that were just computed.
"""

import sqlite3
import time
import warnings
from collections.abc import Sequence

import numpy as np

from minimoe.kvstore.block_bytes import Planes, finite, pack, unpack
from minimoe.kvstore.line_fit import LineFit
from minimoe.kvstore.prefix_index import BlockKey, PrefixIndex

SAVE_BLOCKS = 32  # blocks that are handed to the writer at once
SAVE_WITHIN = 0.5  # seconds that a block waits for others at most
TOUCH_EVERY = 5.0  # seconds between reports of what was used
KNOWN = 1 << 16  # keys remembered as stored already
PAUSE = 10.0  # seconds without the store after it failed
TRY_AGAIN = 16  # lookups that found a load too slow, before one loads all the same


class MemoryTier:
    """The block pool, seen through the prefix index. A hit shares the block by reference."""

    def __init__(self, pool, index: PrefixIndex):
        self.pool, self.index = pool, index

    def lookup(self, keys: list[BlockKey]) -> int:
        """How many leading blocks are in memory."""
        return len(self.index.run(keys))

    def load(self, keys: list[BlockKey]) -> list[int]:
        """Share the leading blocks that are in memory: their ids, each with one more user."""
        blocks = self.index.run(keys)
        for block in blocks:
            self.pool.share(block)
        return blocks

    def save(self, keys: Sequence[BlockKey], blocks: Sequence[int]) -> list[int]:
        """Make blocks findable; returns the positions of those that were not findable before."""
        pairs = zip(keys, blocks, strict=True)
        return [i for i, (key, block) in enumerate(pairs) if self.index.insert(key, block)]


class DiskTier:
    """The shared store. Loads into the pool at once; saves through another process.

    `observe_compute` tells it what computing costs, so that it loads only where that is quicker.
    A disk that was slow is tried again now and then: what is never loaded is never measured.
    """

    def __init__(self, memory: MemoryTier, store, planes: Planes, handoff, kind: str = "chat"):
        """`store` is a `BlockStore`, `handoff` a `HandOff`, `kind` the class of what is saved."""
        self.memory, self.store, self.planes, self.kind = memory, store, planes, kind
        self.handoff = handoff
        self.block_size = memory.index.block_size
        self.loading = LineFit(guess=(1e-3, store.block_bytes / 500e6))  # by blocks
        self.computing = LineFit()  # by tokens
        self.pending: dict[int, BlockKey] = {}  # computed blocks not handed over yet
        self.known: dict[bytes, None] = {}  # in the store, as far as we know
        self.touched: dict[bytes, None] = {}
        self.counts = {"loaded": 0, "saved": 0, "not_worth_loading": 0}
        self._oldest = self._told = time.monotonic()
        self._off_until = -1e9
        self._declined = 0  # times in a row that loading was judged too slow

    def lookup(self, keys: Sequence[BlockKey]) -> int:
        """Leading blocks in the store, or 0 where computing them again is quicker."""
        found = self._guarded(self.store.lookup, [key.digest for key in keys]) or 0
        self._remember(keys[:found])
        self._missing(keys[found:])
        if found and not self._loads(found):
            self.counts["not_worth_loading"] += found
            return 0
        return found

    def _loads(self, blocks: int) -> bool:
        """What `worth_loading` says; but after many refusals in a row, load once to measure it."""
        due = self._declined >= TRY_AGAIN
        self._declined = 0 if due or self.worth_loading(blocks) else self._declined + 1
        return not self._declined

    def worth_loading(self, blocks: int) -> bool:
        """The rule: load when that is expected to be quicker than computing the same tokens."""
        compute = self.computing.seconds(blocks * self.block_size)
        return compute is None or self.loading.seconds(blocks) < compute

    def crossover_tokens(self) -> float | None:
        """Prefix length from which loading is quicker; None before computing was measured."""
        load, compute = self.loading.line(), self.computing.line()
        if compute is None:
            return None
        gain = compute[1] - load[1] / self.block_size  # seconds saved per token
        return max(0.0, load[0] - compute[0]) / gain if gain > 0 else float("inf")

    def observe_compute(self, tokens: int, seconds: float) -> None:
        """Learn from a prefill of `tokens` that took `seconds`."""
        self.computing.add(tokens, seconds)

    def load(self, keys: Sequence[BlockKey]) -> list[int]:
        """Read blocks into the pool; fewer where the store turns out to be damaged or full."""
        start, keys = time.perf_counter(), keys[: self.memory.pool.num_free]
        data = np.empty((len(keys), self.store.block_bytes), np.uint8)
        result = self._guarded(self.store.get, [key.digest for key in keys], data)
        count, unreadable = result or (0, [])
        self._missing(keys[count:])
        if unreadable:
            self.handoff.note(unreadable=unreadable)
        if not count:
            return []
        blocks = [self.memory.pool.allocate() for _ in range(count)]
        unpack(self.planes, blocks, data[:count])
        self.memory.save(keys[:count], blocks)
        self.loading.add(count, time.perf_counter() - start)
        self.counts["loaded"] += count
        return blocks

    def save(self, keys: Sequence[BlockKey], blocks: Sequence[int]) -> None:
        """Queue blocks for the writer. They are copied before the pool can use them again."""
        for key, block in zip(keys, blocks, strict=True):
            if key.digest not in self.known:
                self._oldest = self._oldest if self.pending else time.monotonic()
                self.pending[block] = key
        if len(self.pending) >= SAVE_BLOCKS:
            self.hand_over()

    def touch(self, keys: Sequence[BlockKey]) -> None:
        """Note a use, last block first; the store hears of it later."""
        for key in reversed(keys):
            self.touched.pop(key.digest, None)
            self.touched[key.digest] = None

    def before_reuse(self, block: int) -> None:
        """The pool is about to give a block to someone else."""
        if block in self.pending:
            self.hand_over()

    def discard(self, blocks: Sequence[int]) -> None:
        """These blocks hold nothing worth keeping."""
        for block in blocks:
            self.pending.pop(block, None)

    def hand_over(self) -> None:
        """Copy the queued blocks out of the pool and pass them on."""
        blocks, keys = list(self.pending), list(self.pending.values())
        self.pending = {}
        if not blocks:
            return
        data = pack(self.planes, blocks)
        good = finite(self.planes, data)
        if not good.all():
            keys, data = [key for key, fine in zip(keys, good, strict=True) if fine], data[good]
        if keys and self.handoff.save([key.digest for key in keys], data, self.kind):
            self._remember(keys)
            self.counts["saved"] += len(keys)

    def tick(self, idle: bool) -> None:
        """Once a step: pass on what has waited long enough, or all when there is no more work."""
        now = time.monotonic()
        if self.pending and (idle or now - self._oldest > SAVE_WITHIN):
            self.hand_over()
        if self.touched and now - self._told > TOUCH_EVERY:
            self._tell_touched(now)

    def flush(self, timeout: float = 30.0) -> bool:
        """Everything computed so far is in the store when this returns True."""
        self.hand_over()
        self._tell_touched(time.monotonic())
        return self.handoff.flush(timeout)

    def close(self) -> None:
        """Hand over what waits, then end the writing process and close the store."""
        self.flush()
        self.handoff.close()
        self.store.close()

    def _tell_touched(self, now: float) -> None:
        keys = [key for key in self.touched if key in self.known]
        self.handoff.note(touched=list(reversed(keys)), kind=self.kind)
        self.touched, self._told = {}, now

    def _remember(self, keys: Sequence[BlockKey]) -> None:
        for key in keys:
            self.known[key.digest] = None
        while len(self.known) > KNOWN:
            del self.known[next(iter(self.known))]

    def _missing(self, keys: Sequence[BlockKey]) -> None:
        """Not in the store after all, or not any more: save them again when they are computed."""
        for key in keys:
            self.known.pop(key.digest, None)

    def _guarded(self, read, *args):
        """A store that fails costs hits, never requests: say so once, and rest for a while."""
        if time.monotonic() < self._off_until:
            return None
        try:
            return read(*args)
        except (sqlite3.Error, OSError) as error:
            self._off_until = time.monotonic() + PAUSE
            message = f"KV store {self.store.folder}: {error}; computing instead of loading"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return None
