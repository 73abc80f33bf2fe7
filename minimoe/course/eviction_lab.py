"""A reader's own eviction in the engine: what an exercise of 07 plugs into the block pool."""

from collections.abc import Callable
from dataclasses import dataclass

from minimoe import LLM, SamplingParams
from minimoe.engine.block_pool import BlockPool
from minimoe.kvstore.prefix_index import PrefixIndex


@dataclass(frozen=True)
class FreeBlock:
    """A block that no request uses. `depth` is its place in its prompt, 0 for the first block;
    None if nobody could find it, so that its loss costs nothing."""

    block: int
    depth: int | None


def chooser(index: PrefixIndex, victim: Callable) -> Callable[[list[int]], int]:
    """`BlockPool.choose` by a reader's `victim(free)`, which gets and gives a `FreeBlock`."""
    return lambda free: victim([FreeBlock(block, depth(index, block)) for block in free]).block


def depth(index: PrefixIndex, block: int) -> int | None:
    """The block's place in its prompt, or None where no key leads to it."""
    key = index.key_of(block)
    if key is None:
        return None
    hops = 0
    while key.parent is not index.root:
        key, hops = key.parent, hops + 1
    return hops


def rounds_by_index(victim: Callable, documents: list, capacity: int, rounds: int) -> list[int]:
    """Blocks found in each round over `documents`, by the pool and index alone, without a model.

    A document is a list of block contents; each is served when the one before has ended.
    """
    pool, index = BlockPool(capacity), PrefixIndex(block_size=1)
    pool.choose, pool.on_reuse = chooser(index, victim), index.forget
    found = []
    for _ in range(rounds):
        found.append(0)
        for document in documents:
            keys = index.chain(document)
            held = index.run(keys)
            for block in held:
                pool.share(block)
            found[-1] += len(held)
            for key in keys[len(held) :]:
                held.append(pool.allocate())
                index.insert(key, held[-1])
            pool.release(held)
    return found


def rounds_in_engine(llm: LLM, prompts: list, rounds: int, victim: Callable | None) -> list[int]:
    """Prompt tokens found in the cache in each round over `prompts`, one request at a time.

    victim: the reader's choice as long as this runs; None: the engine's own, longest free first.
    """
    engine, one = llm.engine, SamplingParams(max_tokens=1, temperature=0.0)
    engine.reuse.index.clear()
    engine.pool.choose = victim and chooser(engine.reuse.index, victim)
    try:
        return [
            sum(llm.generate([ids], one)[0].num_cached_tokens for ids in prompts)
            for _ in range(rounds)
        ]
    finally:
        engine.pool.choose = None
