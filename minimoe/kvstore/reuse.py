"""`KVReuse`: what the engine calls so that no prefix is computed twice.

Four calls: `start` gives a request the blocks of its cached prefix, `name_blocks` makes the blocks
a step has filled findable, `discard` takes back blocks of a request that went wrong, `end_step`
lets the store do its part. The pool calls `before_reuse` when it hands a block to someone else.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from minimoe.errors import MinimoeError
from minimoe.kvstore.block_bytes import Planes, block_bytes
from minimoe.kvstore.prefix_index import PrefixIndex
from minimoe.kvstore.tiers import DiskTier, MemoryTier

STORE_OPTIONS = {"folder", "quota_bytes", "retention", "kind"}
PREFILL = 32  # tokens in a step from which its time says what prefill costs


class KVReuse:
    """Prefix reuse over a pool, and over a shared store where one is given.

    A request is anything with `tokens`, `params.cache_salt`, `blocks`, `num_computed`,
    `num_cached`, `block_keys`, `num_named` and `prompt_ids`; the engine's `Sequence` is one.
    """

    def __init__(self, pool, index: PrefixIndex, disk: DiskTier | None = None):
        self.pool, self.index, self.disk = pool, index, disk
        self.block_size = index.block_size
        self.memory = disk.memory if disk else MemoryTier(pool, index)
        pool.on_reuse = self.before_reuse

    def start(self, seq) -> None:
        """Give `seq` the blocks of its longest cached prefix.

        At least its last token stays to be computed: it is what the next one is drawn from.
        """
        keys = self._keys(seq, (len(seq.tokens) - 1) // self.block_size)
        found = self.memory.lookup(keys)
        blocks = self.memory.load(keys[:found])
        if self.disk:
            blocks += self._from_disk(keys[len(blocks) :])
            self.disk.touch(keys[: len(blocks)])
        seq.blocks, seq.num_named = blocks, len(blocks)
        seq.num_computed = len(blocks) * self.block_size
        if not seq.metrics.preemptions:
            seq.num_cached = seq.num_computed

    def _from_disk(self, keys: list) -> list[int]:
        """Blocks loaded from the store, where the pool has room for all of them and one more:
        a request that has to wait would lose them and load them again."""
        found = self.disk.lookup(keys) if keys and self.pool.num_free > 1 else 0
        return self.disk.load(keys[:found]) if found < self.pool.num_free else []

    def name_blocks(self, seqs: Sequence) -> None:
        """Make every block that is now full findable, before its request can finish."""
        for seq in seqs:
            full = seq.num_computed // self.block_size
            if full > seq.num_named:
                keys = self._keys(seq, full)[seq.num_named : full]
                blocks = seq.blocks[seq.num_named : full]
                new = self.memory.save(keys, blocks)
                if self.disk:
                    self.disk.save([keys[i] for i in new], [blocks[i] for i in new])
                seq.num_named = full

    def _keys(self, seq, count: int) -> list:
        """Keys of the first `count` blocks; a request's tokens never change, so they are kept."""
        keys, size = seq.block_keys, self.block_size
        for i in range(len(keys), count):
            parent = keys[-1] if keys else None
            tokens = seq.tokens[i * size : (i + 1) * size]
            keys.append(self.index.child(parent, tokens, seq.params.cache_salt))
        return keys if len(keys) == count else keys[:count]

    def before_reuse(self, block: int) -> None:
        """The block's old contents go: copy them if they are still to be saved, forget the key."""
        if self.disk:
            self.disk.before_reuse(block)
        self.index.forget(block)

    def discard(self, blocks: Sequence[int]) -> None:
        """These blocks hold wrong numbers: nobody may find or keep them."""
        for block in blocks:
            self.index.forget(block)
        if self.disk:
            self.disk.discard(blocks)

    def end_step(self, tokens: int, seconds: float, idle: bool) -> None:
        """After each step: its tokens, how long it took, and whether no request is left."""
        if self.disk:
            if tokens >= PREFILL:
                self.disk.observe_compute(tokens, seconds)
            self.disk.tick(idle)

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until all computed blocks are in the store."""
        return self.disk.flush(timeout) if self.disk else True

    def close(self) -> None:
        """Hand over what waits and close the disk tier, if there is one."""
        if self.disk:
            self.disk.close()


def make_reuse(pool, planes: Planes, fingerprint: str, block_size: int, kv_store=None) -> KVReuse:
    """Reuse in memory, and on disk where `kv_store` is a folder, or a dict with `folder` and any of
    `quota_bytes`, `retention` (seconds by class) and `kind` (the class of this engine's requests).

    Raises StoreError for a folder that cannot be used or holds blocks of another fingerprint.
    """
    memory = MemoryTier(pool, PrefixIndex(fingerprint, block_size))
    if kv_store is None:
        return KVReuse(pool, memory.index)
    options = dict(kv_store) if isinstance(kv_store, Mapping) else {"folder": kv_store}
    unknown = set(options) - STORE_OPTIONS
    if unknown or "folder" not in options:
        raise MinimoeError(
            f"kv_store has {sorted(options)}: give a folder, or a dict with 'folder' and any of "
            f"{sorted(STORE_OPTIONS - {'folder'})}"
        )
    folder, kind = Path(options.pop("folder")), options.pop("kind", "chat")
    from minimoe.kvstore.handoff import HandOff
    from minimoe.kvstore.store import BlockStore

    store = BlockStore(folder, fingerprint, block_bytes(planes), **options)
    store.lifetime(kind)  # refuse an unknown class before the first save
    return KVReuse(
        pool, memory.index, DiskTier(memory, store, planes, HandOff(folder, options), kind)
    )
