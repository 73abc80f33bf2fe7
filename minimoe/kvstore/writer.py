"""The process that writes to the store: `python -m minimoe.kvstore.writer STORE SPOOL SETTINGS`.

Started by `HandOff`; reads a line on stdin when there is work, and ends when stdin closes. It takes
hand-off files, gathers their blocks into segments of useful size, and commits them. It also notes
uses, drops what cannot be read, ends lifetimes and joins small segments.
"""

import json
import os
import sqlite3
import sys
import threading
import time
from pathlib import Path

from minimoe.errors import MinimoeError
from minimoe.kvstore.handoff import read_header
from minimoe.kvstore.repair import drop_unreadable, join_small
from minimoe.kvstore.store import MIN_SEGMENT, BlockStore, open_store

LINGER = 1.0  # seconds that blocks wait for company before they make a small segment
HOUSEKEEPING = 30.0  # seconds between sweeps
ORPHAN = 10.0  # seconds after which another engine's file is taken over


class Gathered:
    """Blocks of one class that will make a segment, one after another, and where they came from."""

    def __init__(self, size: int):
        self.buffer = memoryview(bytearray(size))
        self.keys: list[bytes] = []
        self.files: list[Path] = []
        self.used = 0

    def room(self) -> int:
        """Bytes that still fit."""
        return len(self.buffer) - self.used

    def empty(self) -> None:
        """Forget the blocks; the buffer is used again."""
        self.keys, self.files, self.used = [], [], 0


class Writer:
    """Turns hand-off files into segments. A file goes once all its blocks are committed."""

    def __init__(self, store: BlockStore, spool: Path):
        self.store, self.spool = store, spool
        self.gathered: dict[str, Gathered] = {}  # by class
        self.taken: set[str] = set()  # files whose blocks are gathered
        self.since: float | None = None  # when the oldest gathered block came
        self.status = {"stored": 0, "files": 0, "problem": None}

    def collect(self, folder: Path) -> None:
        """Take up the files of one spool folder, in order, that are not taken up yet."""
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        for name in names:
            path = folder / name
            if name.endswith(".blocks") and str(path) not in self.taken:
                self._take(path)

    def _take(self, path: Path) -> None:
        try:
            with open(path, "rb", buffering=0) as file:
                header = read_header(file)
                self._gather(path, header, file, os.fstat(file.fileno()).st_size - file.tell())
        except FileNotFoundError:
            return  # another writer was quicker
        except (OSError, ValueError) as error:
            self._problem(f"{path.name} is damaged ({error}) and was dropped")
            path.unlink(missing_ok=True)

    def _gather(self, path: Path, header: dict, file, size: int) -> None:
        kind = header.get("kind", "chat")
        keys = [bytes.fromhex(key) for key in header.get("keys", [])]
        if size != len(keys) * self.store.block_bytes:
            raise ValueError(f"{size} bytes for {len(keys)} blocks")
        self._guarded(self._notes, header, kind)
        into = self._room_for(kind, size)
        if file.readinto(into.buffer[into.used : into.used + size]) != size:
            raise ValueError("cut while it was read")
        into.keys += keys
        into.used += size
        into.files.append(path)
        self.taken.add(str(path))
        self.since = self.since or time.monotonic()

    def _room_for(self, kind: str, size: int) -> Gathered:
        """The buffer of a class, emptied into the store first where `size` more do not fit."""
        into = self.gathered.get(kind)
        if into and into.room() < size:
            self.commit(kind)
        if into is None or into.room() < size:
            whole = self.store.segment_blocks * self.store.block_bytes
            into = self.gathered[kind] = Gathered(max(size, whole))
        return into

    def _notes(self, header: dict, kind: str) -> None:
        if header.get("touch"):
            self.store.touch([bytes.fromhex(key) for key in header["touch"]], kind)
        if header.get("unreadable"):
            drop_unreadable(self.store, header["unreadable"])

    def commit(self, kind: str) -> None:
        """Store what was gathered of one class, then delete its files."""
        group = self.gathered[kind]
        if group.keys:
            data = group.buffer[: group.used]
            self.status["stored"] += self._guarded(self.store.put_run, group.keys, data, kind) or 0
        for path in group.files:
            path.unlink(missing_ok=True)
            self.taken.discard(str(path))
        self.status["files"] += len(group.files)
        group.empty()
        if not self.taken:
            self.since = None

    def commit_all(self) -> None:
        """Write what was gathered of every class."""
        for kind in list(self.gathered):
            self.commit(kind)

    def wait(self) -> float | None:
        """Seconds until the oldest gathered block has waited long enough."""
        if self.since is None:
            return HOUSEKEEPING
        return max(0.0, self.since + LINGER - time.monotonic())

    def keep_house(self) -> None:
        """Take over what dead engines left, end lifetimes, join small segments."""
        for folder in self.spool.parent.glob("*/"):
            if folder != self.spool and _age(folder) > ORPHAN:
                self.collect(folder)
                self.commit_all()
                _remove_leftovers(folder)
        self._guarded(self.store.sweep)
        self._guarded(join_small, self.store, MIN_SEGMENT)

    def _guarded(self, work, *args):
        """Whatever fails here costs a few blocks, never the service."""
        try:
            return work(*args)
        except (OSError, sqlite3.Error, MinimoeError) as error:
            self._problem(getattr(error, "strerror", None) or str(error))
            return None

    def _problem(self, problem: str) -> None:
        self.status["problem"] = problem
        self._tell()
        print(f"KV store {self.store.folder}: {problem}", file=sys.stderr, flush=True)

    def _tell(self) -> None:
        beside = self.spool / "status.part"
        try:
            beside.write_text(json.dumps(self.status))
            os.replace(beside, self.spool / "status.json")
        except OSError:
            return  # a full disk: stderr has it


def _age(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0


def _remove_leftovers(folder: Path) -> None:
    """Remove a spool folder that holds no hand-off. An engine that is alive makes it again."""
    for path in [*folder.glob("*.part"), folder / "status.json"]:
        path.unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:
        return


class Doorbell:
    """Lines on stdin, as an event; `closed` once the engine is gone."""

    def __init__(self, stream):
        self.rung, self.closed, self.flush = threading.Event(), False, False
        threading.Thread(target=self._listen, args=(stream,), daemon=True).start()

    def _listen(self, stream) -> None:
        for line in stream:
            self.flush |= line.strip() == b"flush"
            self.rung.set()
        self.closed = True
        self.rung.set()


def serve(writer: Writer, bell: Doorbell) -> None:
    """Work until the bell is closed and everything handed over is committed."""
    writer.keep_house()
    tidy = time.monotonic()
    bell.rung.set()  # an earlier writer of this engine may have left files
    while True:
        bell.rung.wait(writer.wait())
        bell.rung.clear()
        flush, bell.flush, closed = bell.flush, False, bell.closed
        writer.collect(writer.spool)
        if flush or closed or writer.wait() == 0:
            writer.commit_all()
        if closed:
            return _remove_leftovers(writer.spool)
        if time.monotonic() - tidy > HOUSEKEEPING:
            writer.keep_house()
            tidy = time.monotonic()


def step_back() -> None:
    """Decoding comes first: take what is left of the cores, and never interrupt to take it."""
    if hasattr(os, "nice"):
        os.nice(19)
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main(argv: list[str]) -> None:
    folder, spool, settings = argv
    step_back()
    try:
        Path(spool).mkdir(parents=True, exist_ok=True)
        store = open_store(folder, **json.loads(settings))
    except (OSError, MinimoeError) as error:
        raise SystemExit(f"KV store writer: {error}") from None
    serve(Writer(store, Path(spool)), Doorbell(sys.stdin.buffer))
    store.close()


if __name__ == "__main__":
    main(sys.argv[1:])
