"""Bring the store back to full strength: `python -m minimoe.kvstore.repair FOLDER`.

Rebuilds lost and damaged shards, drops what cannot be rebuilt so that it can be put again, removes
files that belong to nothing, and joins small segments.
"""

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from minimoe.kvstore.metadata import Segment, StoreError
from minimoe.kvstore.store import MIN_SEGMENT, BlockStore, open_store


@dataclass
class Repair:
    """What a repair found and did."""

    segments: int = 0
    shards_rebuilt: int = 0
    segments_dropped: int = 0
    strangers_removed: int = 0


def repair(store: BlockStore) -> Repair:
    """Check every shard of every segment; afterwards each stored segment has all of them."""
    report = Repair()
    for segment in store.meta.all_segments():
        report.segments += 1
        if len(store.reader.good_shards(segment)) < store.code.shards:
            _repair_segment(store, segment, report)
    with store.journal.writing():  # nobody writes now, so a file without a row is nobody's
        known = {segment.name for segment in store.meta.all_segments()}
        report.strangers_removed = store.nodes.remove_strangers(known)
    return report


def _repair_segment(store: BlockStore, segment: Segment, report: Repair) -> None:
    """Under the write lock, so that nobody evicts the segment meanwhile."""
    with store.journal.writing():
        if not store.meta.exists(segment.name):
            return
        good = store.reader.good_shards(segment)
        if len(good) < store.code.data:
            store.drop([segment.name])
            report.segments_dropped += 1
            return
        plain = store.code.decode(good)
        whole = b"".join(plain[i] for i in range(store.code.data))
        for index, shard in enumerate(store.code.encode(whole)):
            if index not in good:
                store.nodes.replace(segment.name, index, shard)
                report.shards_rebuilt += 1


def drop_unreadable(store: BlockStore, names: Iterable[str]) -> int:
    """Drop those of the named segments that really cannot be rebuilt, so they can be put anew."""
    names, dropped = set(names), 0
    for segment in [s for s in store.meta.all_segments() if s.name in names]:
        with store.journal.writing():
            exists = store.meta.exists(segment.name)
            if exists and len(store.reader.good_shards(segment)) < store.code.data:
                store.drop([segment.name])
                dropped += 1
    return dropped


def join_small(store: BlockStore, below: int = MIN_SEGMENT) -> int:
    """Join segments shorter than `below` bytes, class by class; returns how many were joined."""
    joined = 0
    for kind, segments in store.meta.small_segments(below).items():
        batch: list[Segment] = []
        for segment in segments:
            batch.append(segment)
            if sum(one.length for one in batch) >= below:
                joined += _join(store, kind, batch)
                batch = []
    return joined


def _join(store: BlockStore, kind: str, batch: list[Segment]) -> int:
    with store.journal.writing():
        parts, slots, shift = [], [], 0
        for segment in batch:
            part = store.reader.read(segment, 0, segment.length)
            if part is None or not store.meta.exists(segment.name):
                return 0  # evicted or damaged meanwhile: leave it to a read or a repair
            parts.append(bytes(part))
            slots += [(key, slot + shift) for key, slot in store.meta.slots_of(segment.id)]
            shift += segment.length // store.block_bytes
        whole, names = b"".join(parts), [segment.name for segment in batch]
        expires = max(store.meta.expiry(segment.id) for segment in batch)
        shards = store.code.encode(whole)
        added = store.add_segment(shards, len(whole), slots, kind, expires, drop=names)
        return len(batch) if added else 0


def main() -> None:
    parser = argparse.ArgumentParser(description="rebuild what a KV store has lost")
    parser.add_argument("folder")
    folder = parser.parse_args().folder
    try:
        report = repair(open_store(folder))
    except StoreError as error:
        raise SystemExit(f"error: {error}") from None
    print(", ".join(f"{name.replace('_', ' ')} {count}" for name, count in asdict(report).items()))


if __name__ == "__main__":
    main()
