"""The block pool against a plain model: dictionaries of counts."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from minimoe.engine.block_pool import BlockPool
from minimoe.errors import EngineError


class PoolMachine(RuleBasedStateMachine):
    """Requests take, share and give back blocks in any order."""

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(6)
        self.owners: list[list[int]] = []

    def counts(self) -> dict[int, int]:
        out = dict.fromkeys(range(6), 0)
        for blocks in self.owners:
            for block in blocks:
                out[block] += 1
        return out

    @precondition(lambda self: self.pool.num_free)
    @rule(new=st.booleans())
    def allocate(self, new):
        before = self.counts()
        block = self.pool.allocate()
        assert before[block] == 0, "a block in use was handed out"
        if new or not self.owners:
            self.owners.append([])
        self.owners[-1].append(block)

    @precondition(lambda self: not self.pool.num_free)
    @rule()
    def allocate_from_empty(self):
        with pytest.raises(EngineError, match="all 6 KV blocks are in use"):
            self.pool.allocate()

    @rule(block=st.integers(0, 5))
    def share(self, block):
        """A prefix hit: the block may be in use or free."""
        self.pool.share(block)
        self.owners.append([block])

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def release(self, data):
        self.pool.release(self.owners.pop(data.draw(st.integers(0, len(self.owners) - 1))))

    @invariant()
    def counts_agree(self):
        self.pool.check()
        assert self.pool.refs == list(self.counts().values())
        assert self.pool.num_free == list(self.counts().values()).count(0)


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_pool_machine = PoolMachine.TestCase


def test_the_tail_of_a_chain_is_handed_out_before_its_head():
    pool = BlockPool(3)
    blocks = [pool.allocate() for _ in range(3)]
    pool.release(blocks)
    assert [pool.allocate() for _ in range(3)] == blocks[::-1]


def test_releasing_twice_is_an_error():
    pool = BlockPool(2)
    block = pool.allocate()
    pool.release([block])
    with pytest.raises(EngineError, match="released more often"):
        pool.release([block])


def test_a_pool_needs_a_block():
    with pytest.raises(EngineError, match="at least 1"):
        BlockPool(0)
