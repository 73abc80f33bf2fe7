"""`Scheduler`: which tokens of which requests go into the next step (continuous batching).

Every step has a budget of tokens. Requests that run come first, oldest first: one token each in
decode, a chunk of the prompt in prefill (Orca, OSDI'22; Sarathi, arXiv 2308.16369). What is left of
the budget starts waiting requests. When the pool runs out, the youngest running request gives its
blocks back and is computed again later.

Drafts to check (`Sequence.draft`) take tokens of the budget before chunks of prompts do, but none
that a running request needs for its next token. `Speculation` sees to that, and to their blocks.
"""

from bisect import insort

from minimoe.engine.block_pool import BlockPool
from minimoe.engine.sequence import Sequence

Scheduled = list[tuple[Sequence, int]]  # a request and how many of its tokens to compute


def by_arrival(seq: Sequence) -> int:
    """First come, first served."""
    return seq.arrival


class Scheduler:
    """Holds the waiting and the running requests, both in the order in which they start.

    Plug-in point: `order`, a function of a waiting request; the lowest starts first, of equals the
    one that came first. Set it while none waits. The order of requests changes no text.
    """

    def __init__(self, pool: BlockPool, block_size: int, max_num_seqs: int, token_budget: int):
        self.pool, self.block_size = pool, block_size
        self.max_num_seqs, self.token_budget = max_num_seqs, token_budget
        self.reuse = None  # a `KVReuse`, where prefixes are to be shared
        self.order = by_arrival
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self._new_blocks: list[int] = []

    def add(self, seq: Sequence) -> None:
        """Queue a request where its `order` puts it."""
        insort(self.waiting, seq, key=self.order)

    @property
    def has_unfinished(self) -> bool:
        """Is any request waiting or running?"""
        return bool(self.waiting or self.running)

    def schedule(self) -> Scheduled:
        """The next step: pairs of a request and its number of new tokens, blocks provided for."""
        scheduled: Scheduled = []
        budget = self._schedule_running(scheduled, self.token_budget)
        self._start_waiting(scheduled, budget)
        return scheduled

    def _schedule_running(self, scheduled: Scheduled, budget: int) -> int:
        index = 0
        while index < len(self.running) and budget > 0:  # preemption shortens the list
            seq = self.running[index]
            count = min(seq.num_remaining, budget)
            if not self._make_room(seq, count):
                break  # the request itself was the youngest and went back to wait
            count += len(seq.draft)
            scheduled.append((seq, count))
            budget -= count
            index += 1
        return budget

    def _start_waiting(self, scheduled: Scheduled, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            seq = self.waiting[0]
            self.reuse_prefix(seq)
            count = min(seq.num_remaining, budget)
            if self._blocks_missing(seq, count) > self.pool.num_free:
                self._give_back(seq)
                break
            self.waiting.pop(0)
            self.running.append(seq)
            self._grow(seq, count)
            scheduled.append((seq, count))
            budget -= count

    def reuse_prefix(self, seq: Sequence) -> None:
        """Before a start: share cached blocks and set `num_computed`."""
        if self.reuse:
            self.reuse.start(seq)

    def look_ahead(self, seq: Sequence, positions: int) -> int:
        """Give `seq` blocks for its first `positions` if that leaves one for every running request.
        Returns the positions that its blocks hold then."""
        missing = -(-positions // self.block_size) - len(seq.blocks)
        if 0 < missing <= self.pool.num_free - len(self.running):
            self._grow(seq, positions - seq.num_computed)
        return len(seq.blocks) * self.block_size

    def _make_room(self, seq: Sequence, count: int) -> bool:
        """Get the blocks for `count` more tokens, preempting younger requests if need be."""
        while self._blocks_missing(seq, count) > self.pool.num_free:
            youngest = self.running[-1]
            self._preempt(youngest)
            if youngest is seq:
                return False
        self._grow(seq, count)
        return True

    def _blocks_missing(self, seq: Sequence, count: int) -> int:
        return -(-(seq.num_computed + count) // self.block_size) - len(seq.blocks)

    def _grow(self, seq: Sequence, count: int) -> None:
        for _ in range(self._blocks_missing(seq, count)):
            seq.blocks.append(self.pool.allocate())
            self._new_blocks.append(seq.blocks[-1])

    def take_new_blocks(self) -> list[int]:
        """Blocks handed out since the last call, which still hold what their last owner wrote."""
        blocks, self._new_blocks = self._new_blocks, []
        return blocks

    def _preempt(self, seq: Sequence) -> None:
        """Take the blocks away; the tokens made so far are kept and computed again later."""
        self.add(seq)  # first: a user's `order` may raise, and nothing is lost then
        self.running.remove(seq)
        self._give_back(seq)
        seq.metrics.preemptions += 1

    def _give_back(self, seq: Sequence) -> None:
        blocks, seq.blocks = seq.blocks, []
        self._new_blocks = [block for block in self._new_blocks if block not in blocks]
        self.pool.release(blocks)
        seq.num_computed = seq.num_named = 0
        seq.draft = []

    def finish(self, seq: Sequence, reason: str) -> None:
        """End a request, waiting or running, and free its blocks."""
        seq.finish_reason = reason
        queue = self.running if seq in self.running else self.waiting
        queue.remove(seq)
        self._give_back(seq)
