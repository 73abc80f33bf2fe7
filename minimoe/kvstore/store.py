"""`BlockStore`: KV blocks on disk, shared by any number of processes.

Blocks are gathered in segments, segments are striped over node folders (`segments.py`), and SQLite
says which key is where (`metadata.py`). A put is seen whole or not at all (`journal.py`). A read
verifies every shard it uses, rebuilds what is missing, and otherwise is a miss: never wrong bytes.
"""

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from minimoe.kvstore import shape
from minimoe.kvstore.erasure import Buffer, StripeCode, checksum, library
from minimoe.kvstore.journal import Journal
from minimoe.kvstore.metadata import LOG, Metadata, Segment, StoreError
from minimoe.kvstore.retention import RETENTION
from minimoe.kvstore.segments import NodeFolders
from minimoe.kvstore.shape import Shape
from minimoe.kvstore.shard_reader import ShardReader

MIN_SEGMENT = 256 * 1024  # bytes; below this, opening twelve files costs more than reading them
SEGMENT = 4 * 1024 * 1024
QUOTA = 1024**3
LEAST_QUOTA = 4 * 1024**2
PAGE = 4096  # a file takes a multiple of this on disk


class BlockStore:
    """Keys are digests, values `block_bytes` each. `fingerprint` names what made them.

    Args:
        quota_bytes: shards, tables and log together stay below this.
        retention: seconds that a block lives after its last use, by class of traffic.
        segment_bytes: how much a put gathers in one segment at most.
        code: how segments are striped; one folder a shard.
        clock: seconds; may step back, which only delays the end of a lifetime.

    Raises StoreError for a folder that cannot be used or belongs to another fingerprint.
    """

    def __init__(
        self,
        folder: str | Path,
        fingerprint: str,
        block_bytes: int,
        quota_bytes: int = QUOTA,
        retention: Mapping[str, float] = RETENTION,
        segment_bytes: int = SEGMENT,
        code: StripeCode = StripeCode(),  # noqa: B008 (frozen)
        clock=time.time,
    ):
        if quota_bytes < LEAST_QUOTA:
            raise StoreError(f"a quota of {quota_bytes} bytes: give at least {LEAST_QUOTA}")
        self.folder, self.block_bytes, self.quota_bytes = Path(folder), block_bytes, quota_bytes
        self.retention, self.code, self.clock = dict(retention), code, clock
        self.segment_blocks = max(1, min(segment_bytes, quota_bytes // 8) // block_bytes)
        library()  # say so now if it is not installed
        _make_folder(self.folder)
        # A merge waits for the disk, so a large store may let its log grow to a 256th of it.
        self.meta = Metadata(self.folder, log_bytes=max(LOG, quota_bytes // 256))
        shape.claim(self.meta, self.folder, Shape(fingerprint, block_bytes, code.data, code.parity))
        self.nodes = NodeFolders(self.folder, code.shards)
        self.reader = ShardReader(self.nodes, code)
        self.journal = Journal(self.meta, self.nodes)

    def close(self) -> None:
        """Close the metadata; the files need no closing."""
        self.meta.close()

    def lookup(self, keys: Sequence[bytes]) -> int:
        """How many leading keys are stored. A later `get` may still find fewer."""
        found = self.meta.find(keys)
        return next((i for i, key in enumerate(keys) if key not in found), len(keys))

    def get(self, keys: Sequence[bytes], out: np.ndarray) -> tuple[int, list[str]]:
        """Read leading keys into `out [len(keys), block_bytes]` of uint8, up to the first miss.

        Returns how many were read, and the names of segments found unreadable.
        """
        found, unreadable = self.meta.find(keys), []
        count = next((i for i, key in enumerate(keys) if key not in found), len(keys))
        for segment, places in _by_segment([found[key] for key in keys[:count]]):
            if places[0][0] < count and not self._copy(segment, places, out):
                unreadable.append(segment.name)
                count = places[0][0]
        return count, unreadable

    def _copy(self, segment: Segment, places: list[tuple[int, int]], out: np.ndarray) -> bool:
        """Copy the slots of (row, slot) pairs to their rows of `out`. False: unreadable."""
        rows, slots = np.array(places).T
        first, last = int(slots.min()), int(slots.max()) + 1
        span = self.reader.read(segment, first * self.block_bytes, last * self.block_bytes)
        if span is None:
            return False
        blocks = np.frombuffer(span, np.uint8).reshape(-1, self.block_bytes)
        if (np.diff(rows) == 1).all() and (np.diff(slots) == 1).all():
            out[rows[0] : rows[0] + len(rows)] = blocks
        else:
            out[rows] = blocks[slots - first]
        return True

    def put(self, blocks: Iterable[tuple[bytes, Buffer]], kind: str = "chat") -> int:
        """Store the blocks that are not stored yet; returns how many were new.

        Raises OSError when the disk is full: what was committed before stays, the rest is undone.
        """
        lifetime, blocks, stored = self.lifetime(kind), dict(blocks), 0
        if any(len(value) != self.block_bytes for value in blocks.values()):
            raise StoreError(f"a block of another size: this store's have {self.block_bytes} bytes")
        known = self.meta.find(list(blocks))
        fresh = [key for key in blocks if key not in known]
        for start in range(0, len(fresh), self.segment_blocks):
            keys = fresh[start : start + self.segment_blocks]
            segment = b"".join(blocks[key] for key in keys)
            stored += self._put_segment(keys, segment, kind, lifetime)
        return stored

    def put_run(self, keys: Sequence[bytes], data: memoryview, kind: str = "chat") -> int:
        """Like `put`, for blocks that lie one after another: stored without copying, if all new."""
        size = self.block_bytes
        if len(data) != len(keys) * size:
            raise StoreError(f"{len(data)} bytes for {len(keys)} blocks of {size} bytes")
        if len(set(keys)) < len(keys) or len(keys) > self.segment_blocks or self.meta.find(keys):
            blocks = [data[i * size : (i + 1) * size] for i in range(len(keys))]
            return self.put(zip(keys, blocks, strict=True), kind)
        return self._put_segment(keys, data, kind, self.lifetime(kind))

    def _put_segment(
        self, keys: Sequence[bytes], segment: Buffer, kind: str, lifetime: float
    ) -> int:
        """One segment; returns how many of its blocks were new, 0 where the quota has no room."""
        shards = self.code.encode(segment)  # before the lock is taken
        with self.journal.writing():
            new = len(keys) - len(self.meta.find(keys))  # another process may have been quicker
            slots = [(key, slot) for slot, key in enumerate(keys)]
            expires = self.now() + lifetime
            added = new and self.add_segment(shards, len(segment), slots, kind, expires)
        return new if added else 0

    def add_segment(self, shards, length: int, slots, kind: str, expires: float, drop=()) -> bool:
        """Inside the write lock: make room, write shards and rows. False where there is no room.

        `slots` holds (key, slot) pairs; `drop` names segments that this one replaces.
        """
        disk = self.disk_bytes(len(shards[0]))
        victims = self._victims(disk)
        if victims is None:
            return False
        sums = b"".join(checksum(shard).to_bytes(4, "little") for shard in shards)
        name = secrets.token_hex(8)
        with self.journal.change(name, [*victims, *drop]):
            self.nodes.write(name, shards, may_fail=self.code.parity)
            row = self.meta.insert(name, length, sums, disk, kind, expires)
            self.meta.place(row, slots)
            self.meta.note("clock", repr(self.now()))
        return True

    def disk_bytes(self, shard_bytes: int) -> int:
        """What a segment takes on disk, in whole pages."""
        return self.code.shards * -(-shard_bytes // PAGE) * PAGE

    def _victims(self, need: int) -> list[str] | None:
        """Whom to drop so that `need` more bytes fit: what expires first. None: they never fit."""
        excess, victims = self.meta.reserved() + need - self.quota_bytes, []
        for name, disk in self.meta.oldest_first():
            if excess <= 0:
                break
            victims.append(name)
            excess -= disk
        return victims if excess <= 0 else None

    def touch(self, keys: Sequence[bytes], kind: str = "chat") -> None:
        """Note a use. The last block's segment first, so that a chain's head stays newest."""
        lifetime = self.lifetime(kind)
        with self.meta.lock():
            found = self.meta.find(keys)
            rows = dict.fromkeys(found[key][0].id for key in reversed(keys) if key in found)
            for row in rows:
                self.meta.touch(row, self.now() + lifetime)

    def sweep(self) -> int:
        """Drop segments past their retention; returns how many."""
        with self.journal.writing():
            names = self.meta.expired(self.now())
            self.drop(names)
        return len(names)

    def drop(self, names: Iterable[str]) -> None:
        """Inside the write lock: forget segments, rows and files."""
        with self.journal.change(None, names):
            pass

    def stats(self) -> dict:
        """Counts, payload bytes, bytes on disk, and what counts against the quota."""
        segments, blocks, disk = self.meta.totals()
        return {
            "segments": segments,
            "blocks": blocks,
            "bytes": blocks * self.block_bytes,
            "disk_bytes": disk,
            "used_bytes": self.meta.used(),
            "quota_bytes": self.quota_bytes,
        }

    def lifetime(self, kind: str) -> float:
        """Seconds that a block of this class lives after a use. Raises StoreError if unknown."""
        if kind not in self.retention:
            known = ", ".join(self.retention)
            raise StoreError(f"unknown retention class {kind!r}: choose one of {known}")
        return self.retention[kind]

    def now(self) -> float:
        """The store's time: the clock, or the latest that it showed at a write."""
        return max(self.clock(), float(self.meta.fact("clock") or 0))


def open_store(folder: str | Path, **settings) -> BlockStore:
    """An existing store, of whatever shape it is. Raises StoreError where there is none."""
    found = shape.read(folder)
    code = StripeCode(found.data, found.parity)
    return BlockStore(folder, found.fingerprint, found.block_bytes, code=code, **settings)


def _by_segment(places: Sequence[tuple[Segment, int]]) -> Iterator[tuple[Segment, list]]:
    """(segment, [(row, slot), ...]) in order of each segment's first row."""
    groups: dict[Segment, list[tuple[int, int]]] = {}
    for row, (segment, slot) in enumerate(places):
        groups.setdefault(segment, []).append((row, slot))
    yield from groups.items()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"KV store {folder}: {error.strerror}; give a folder that can be made and written"
        ) from None
