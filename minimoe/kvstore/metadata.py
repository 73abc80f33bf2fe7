"""What the shared store knows about its segments and blocks, in SQLite (write-ahead log).

SQLite gives what is hard to write: many processes at once, commits that are seen whole or not at
all, and recovery after a kill. Writers queue at a file lock, which is fairer than SQLite's own;
readers never wait for them. A power cut may lose the last commits, never mix them up: shards carry
checksums and the log carries its own.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from minimoe.errors import MinimoeError
from minimoe.kvstore.file_lock import FileLock

SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS segments (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, length INTEGER NOT NULL,
    checksums BLOB NOT NULL, disk INTEGER NOT NULL, kind TEXT NOT NULL,
    expires REAL NOT NULL, uses INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS blocks (
    key BLOB PRIMARY KEY, segment INTEGER NOT NULL, slot INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS plan (name TEXT PRIMARY KEY, dropped INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS segments_by_age ON segments (expires, uses);
CREATE INDEX IF NOT EXISTS segments_by_use ON segments (uses);
CREATE INDEX IF NOT EXISTS blocks_of ON blocks (segment);
"""
FIELDS = "s.id, s.name, s.length, s.checksums"
TABLES = "metadata.sqlite"
ASK = 500  # keys in one query
LOG = 256 * 1024  # bytes of log after which it is merged into the tables


class StoreError(MinimoeError):
    """A store that cannot be opened or used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One striped segment. `checksums` holds four bytes a shard."""

    id: int
    name: str
    length: int
    checksums: bytes

    def checksum(self, shard: int) -> int:
        """CRC-32 of one shard."""
        return int.from_bytes(self.checksums[4 * shard : 4 * shard + 4], "little")


class Metadata:
    """The tables of one store. Every method is one query or one step of the caller's `lock()`."""

    def __init__(self, folder: str | Path, timeout: float = 60.0, log_bytes: int = LOG):
        self.path, self.timeout, self.log_bytes = Path(folder) / TABLES, timeout, log_bytes
        try:
            self.writers = FileLock(self.path.with_name("writers.lock"))
            self.db = sqlite3.connect(
                self.path, timeout=timeout, isolation_level=None, check_same_thread=False
            )
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=NORMAL")
            self.db.execute("PRAGMA wal_autocheckpoint=0")  # see `_shorten_log`
            self._create()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"KV store {folder}: {error}; give a folder that can be written, or remove "
                f"{self.path.name} to start afresh"
            ) from None

    def _create(self) -> None:
        with self.lock():
            for statement in SCHEMA.split(";"):
                self.db.execute(statement)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One writer at a time, one transaction."""
        with self.writers, self.transaction():
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes become visible at the end, or none. The caller holds `writers`."""
        self._shorten_log()
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            raise

    def _shorten_log(self) -> None:
        """Merge a long log into the tables. SQLite's own way never finds a moment for it while
        many processes read and write; the holder of the lock waits for short readers only."""
        if self._file_sizes()[1] > self.log_bytes:
            self.db.execute("PRAGMA busy_timeout=200")
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self.db.execute(f"PRAGMA busy_timeout={round(self.timeout * 1000)}")

    def plan(self, write: str | None, drop: Iterable[str]) -> None:
        """Note what is about to be written and dropped, for whoever finds it unfinished."""
        rows = [(name, 1) for name in drop] + ([(write, 0)] if write else [])
        self.db.executemany("INSERT OR REPLACE INTO plan VALUES (?, ?)", rows)

    def left_over(self) -> list[tuple[str, int]]:
        """(name, whether to drop it) of a plan that was not finished."""
        return self.db.execute("SELECT name, dropped FROM plan").fetchall()

    def forget_plan(self) -> None:
        """Drop the note of files that were about to be written."""
        self.db.execute("DELETE FROM plan")

    def close(self) -> None:
        """Close the database and end the writers' lock."""
        self.db.close()
        self.writers.close()

    def claim(self, name: str, value: str) -> str:
        """The store's value of a fact; ours, where it had none."""
        with self.lock():
            self.db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
        return self.fact(name)

    def fact(self, name: str) -> str | None:
        """A fact about the store, such as its fingerprint; None if it was never set."""
        row = self.db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return row and row[0]

    def note(self, name: str, value: str) -> None:
        """Set a fact."""
        self.db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def find(self, keys: Sequence[bytes]) -> dict[bytes, tuple[Segment, int]]:
        """Segment and slot of each key that is stored."""
        found, segments = {}, {}
        for start in range(0, len(keys), ASK):
            part = keys[start : start + ASK]
            rows = self.db.execute(
                f"SELECT b.key, b.slot, {FIELDS} FROM blocks b JOIN segments s ON s.id = b.segment "
                f"WHERE b.key IN ({','.join('?' * len(part))})",
                part,
            )
            for key, slot, *fields in rows:
                segment = segments.setdefault(fields[0], Segment(*fields))
                found[key] = (segment, slot)
        return found

    def insert(
        self, name: str, length: int, checksums: bytes, disk: int, kind: str, expires: float
    ):
        """A new segment, as the most recently used; returns its id."""
        row = (name, length, checksums, disk, kind, expires, self.next_use())
        return self.db.execute(
            "INSERT INTO segments (name, length, checksums, disk, kind, expires, uses) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            row,
        ).lastrowid

    def place(self, segment: int, slots: Iterable[tuple[bytes, int]]) -> None:
        """Point (key, slot) pairs at a segment. A key that is stored already keeps its place."""
        rows = [(key, segment, slot) for key, slot in slots]
        self.db.executemany("INSERT OR IGNORE INTO blocks VALUES (?, ?, ?)", rows)

    def slots_of(self, segment: int) -> list[tuple[bytes, int]]:
        """(key, slot) pairs of one segment."""
        return self.db.execute(
            "SELECT key, slot FROM blocks WHERE segment = ?", (segment,)
        ).fetchall()

    def delete(self, names: Iterable[str]) -> None:
        """Delete segments by name, and the blocks in them."""
        for name in names:
            self.db.execute(
                "DELETE FROM blocks WHERE segment IN (SELECT id FROM segments WHERE name = ?)",
                (name,),
            )
            self.db.execute("DELETE FROM segments WHERE name = ?", (name,))

    def next_use(self) -> int:
        """A number that grows with every use: order by it, whatever the clock does."""
        return 1 + (self.db.execute("SELECT MAX(uses) FROM segments").fetchone()[0] or 0)

    def touch(self, segment: int, expires: float) -> None:
        """Most recently used now; lives until `expires`, or longer if that was promised before."""
        self.db.execute(
            "UPDATE segments SET uses = ?, expires = MAX(expires, ?) WHERE id = ?",
            (self.next_use(), expires, segment),
        )

    def oldest_first(self) -> Iterator[tuple[str, int]]:
        """(name, bytes on disk) of all segments, the one that expires first, first."""
        return self.db.execute("SELECT name, disk FROM segments ORDER BY expires, uses")

    def expired(self, now: float) -> list[str]:
        """Names of segments whose time was over at `now`, in seconds since 1970."""
        rows = self.db.execute("SELECT name FROM segments WHERE expires < ?", (now,))
        return [name for (name,) in rows]

    def all_segments(self) -> list[Segment]:
        """Every segment that the store knows."""
        return [Segment(*row) for row in self.db.execute(f"SELECT {FIELDS} FROM segments s")]

    def small_segments(self, below: int) -> dict[str, list[Segment]]:
        """Segments shorter than `below` bytes, by class, oldest first."""
        rows = self.db.execute(
            f"SELECT s.kind, {FIELDS} FROM segments s WHERE s.length < ? ORDER BY s.uses", (below,)
        )
        groups: dict[str, list[Segment]] = {}
        for kind, *fields in rows:
            groups.setdefault(kind, []).append(Segment(*fields))
        return groups

    def exists(self, name: str) -> bool:
        """Does the store know a segment of this name?"""
        row = self.db.execute("SELECT 1 FROM segments WHERE name = ?", (name,)).fetchone()
        return row is not None

    def expiry(self, segment: int) -> float:
        """When a segment's time is over, in seconds since 1970."""
        row = self.db.execute("SELECT expires FROM segments WHERE id = ?", (segment,))
        return row.fetchone()[0]

    def totals(self) -> tuple[int, int, int]:
        """Segments, blocks, bytes of their shards on disk."""
        segments, disk = self.db.execute(
            "SELECT COUNT(*), COALESCE(SUM(disk), 0) FROM segments"
        ).fetchone()
        return segments, self.db.execute("SELECT COUNT(*) FROM blocks").fetchone()[0], disk

    def used(self) -> int:
        """Bytes that count against the quota: shards, tables and log."""
        tables, log = self._file_sizes()
        return tables + log + self._disk()

    def reserved(self) -> int:
        """The same, with the log as long as it may grow within a write or two."""
        tables, log = self._file_sizes()
        return tables + max(log, self.log_bytes) + LOG + self._disk()

    def _disk(self) -> int:
        return self.db.execute("SELECT COALESCE(SUM(disk), 0) FROM segments").fetchone()[0]

    def _file_sizes(self) -> tuple[int, int]:
        log = self.path.with_name(self.path.name + "-wal")
        return self.path.stat().st_size, log.stat().st_size if log.exists() else 0
