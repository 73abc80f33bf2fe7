"""The scheduler without a model: random arrivals, lengths, aborts; every request ends."""

from hypothesis import given, settings
from hypothesis import strategies as st

from minimoe.engine.block_pool import BlockPool
from minimoe.engine.params import SamplingParams
from minimoe.engine.scheduler import Scheduler
from minimoe.engine.sequence import Sequence

BLOCK = 4


def make(number: int, prompt: int, new: int) -> Sequence:
    seq = Sequence(str(number), [7] * prompt, SamplingParams(), 0, prompt + new, arrival=number)
    return seq


def check_step(scheduler: Scheduler, scheduled, budget: int) -> None:
    scheduler.pool.check()
    assert sum(count for _, count in scheduled) <= budget
    assert len({id(seq) for seq, _ in scheduled}) == len(scheduled)
    owned = [b for seq in scheduler.running for b in seq.blocks]
    assert len(owned) == len(set(owned)), "two requests own one block"
    assert len(owned) + scheduler.pool.num_free == scheduler.pool.num_blocks, "a block is lost"
    assert not any(seq.blocks for seq in scheduler.waiting)
    for queue in (scheduler.waiting, scheduler.running):
        assert [s.arrival for s in queue] == sorted(s.arrival for s in queue)
    for seq, count in scheduled:
        assert 1 <= count <= seq.num_remaining
        assert len(seq.blocks) * BLOCK >= seq.num_computed + count


def advance(scheduler: Scheduler, scheduled) -> None:
    """What the engine does after a forward pass."""
    for seq, count in scheduled:
        seq.num_computed += count
        if seq.num_remaining == 0:
            seq.tokens.append(7)
            if len(seq.tokens) >= seq.max_total:
                scheduler.finish(seq, "length")


requests = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20)), min_size=1, max_size=9)


@settings(max_examples=150)
@given(requests, st.integers(13, 20), st.integers(1, 40), st.integers(1, 5), st.data())
def test_every_request_ends_and_no_block_is_lost(lengths, blocks, budget, seqs, data):
    scheduler = Scheduler(BlockPool(blocks), BLOCK, seqs, budget)
    sequences = [make(i, prompt, new) for i, (prompt, new) in enumerate(lengths)]
    arriving = list(sequences)
    steps = 0
    while arriving or scheduler.has_unfinished:
        while arriving and (steps % 3 == 0 or not scheduler.has_unfinished):
            scheduler.add(arriving.pop(0))
        if data.draw(st.integers(0, 19)) == 0 and scheduler.running:
            scheduler.finish(scheduler.running[-1], "abort")
        scheduled = scheduler.schedule()
        check_step(scheduler, scheduled, budget)
        if scheduler.running:
            assert scheduled, "requests run but nothing is scheduled"
            assert scheduled[0][0] is scheduler.running[0], "the oldest was not served"
        advance(scheduler, scheduled)
        steps += 1
        assert steps < 5000, "no end in sight"
    assert all(seq.finished for seq in sequences)
    assert scheduler.pool.num_free == blocks


def test_the_youngest_is_preempted_and_comes_back_first():
    scheduler = Scheduler(BlockPool(4), BLOCK, 8, 100)
    old, young, late = make(0, 8, 9), make(1, 7, 2), make(2, 1, 1)
    for seq in (old, young):
        scheduler.add(seq)
    advance(scheduler, scheduler.schedule())
    scheduler.add(late)
    scheduled = scheduler.schedule()  # old needs a third block, young holds two
    assert [seq for seq, _ in scheduled] == [old]
    assert young.metrics.preemptions == 1 and young.num_computed == 0
    assert scheduler.waiting == [young, late]


def test_long_prompts_are_cut_into_chunks_beside_decodes():
    scheduler = Scheduler(BlockPool(50), BLOCK, 8, 10)
    decode, prompt = make(0, 2, 9), make(1, 25, 1)
    scheduler.add(decode)
    advance(scheduler, scheduler.schedule())
    scheduler.add(prompt)
    counts = []
    while not prompt.finished:
        scheduled = scheduler.schedule()
        counts.append([count for _, count in scheduled])
        advance(scheduler, scheduled)
    assert counts == [[1, 9], [1, 9], [1, 7]]
