"""Hand blocks to a writer process: `HandOff` in the engine, files in between, `writer.py` beyond.

The engine copies blocks into a file of the store's `spool` folder, renames it into sight and goes
on; hashing, coding and commits happen in the other process. A file is deleted once its blocks are
committed, and committing it twice does no harm, so a killed writer loses nothing that was handed
over: the next writer, of any engine, finds the file.
"""

import json
import os
import struct
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

SPOOL_LIMIT = 64 * 1024**2  # bytes that may wait for the writer; beyond, blocks are not saved
RESTART_EVERY = 5.0  # seconds between attempts to start a writer that died
HEADER_LIMIT = 64 * 1024**2  # bytes; a header that says it is longer is none
PAUSE = 10.0  # seconds without saving after the disk was full


def write_message(path: Path, header: dict, payload: bytes | np.ndarray = b"") -> None:
    """One hand-off file: length and JSON of the header, then the blocks. Seen whole or not."""
    text = json.dumps(header).encode()
    beside = path.with_suffix(".part")
    with open(beside, "wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if len(payload) and file.write(payload) != payload.nbytes:
            raise OSError(28, os.strerror(28), str(path))
    os.replace(beside, path)


def read_header(file) -> dict:
    """Header of an open hand-off file; its blocks come next. Raises ValueError where damaged."""
    first = file.read(8)
    length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
    if not 0 < length <= HEADER_LIMIT:
        raise ValueError("no header")
    header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("no header")
    return header


class HandOff:
    """The engine's end. `save` returns at once; nothing here raises because of the disk."""

    def __init__(self, folder: str | Path, settings: dict, spool_limit: int = SPOOL_LIMIT):
        self.folder, self.settings, self.spool_limit = Path(folder), settings, spool_limit
        self.spool = self.folder / "spool" / uuid.uuid4().hex[:12]
        self.waiting: dict[Path, int] = {}  # files the writer has not finished, and their bytes
        self.count = self.dropped = 0
        self.process: subprocess.Popen | None = None
        self._started = self._paused_until = -1e9
        self._warned: set[str] = set()
        self._wake()

    def save(self, keys: Sequence[bytes], blocks: np.ndarray, kind: str) -> bool:
        """Hand over `blocks [len(keys), block_bytes]`; False where they are dropped instead."""
        self._forget_done()
        waiting = sum(self.waiting.values())
        if time.monotonic() < self._paused_until or waiting + blocks.nbytes > self.spool_limit:
            self.dropped += len(keys)
            return False
        return self._send({"keys": [key.hex() for key in keys], "kind": kind}, blocks)

    def note(self, touched: Sequence[bytes] = (), kind: str = "chat", unreadable=()) -> None:
        """Tell the writer which keys were used and which segments could not be read."""
        if touched or unreadable:
            touch = [key.hex() for key in touched]
            self._send({"touch": touch, "kind": kind, "unreadable": list(unreadable)})

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until everything handed over is committed. False when it took too long."""
        end = time.monotonic() + timeout
        while True:
            self._forget_done()
            if not self.waiting:
                self._report()
                return True
            if time.monotonic() > end or self._refused():
                return False
            self._ring(b"flush\n")
            time.sleep(0.005)

    def close(self, timeout: float = 30.0) -> None:
        """Let the writer finish and end."""
        if self.process is None:
            return
        self.flush(timeout)
        try:
            self.process.stdin.close()
            self.process.wait(timeout)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self._report()
        self.process = None

    def _send(self, header: dict, payload: np.ndarray | bytes = b"") -> bool:
        path = self.spool / f"{self.count:09d}.blocks"
        self.count += 1
        try:
            if not self.spool.is_dir():
                self.spool.mkdir(parents=True, exist_ok=True)
            write_message(path, header, payload)
        except OSError as error:
            path.with_suffix(".part").unlink(missing_ok=True)
            self._pause(f"{error.strerror or error}")
            return False
        self.waiting[path] = len(payload) and payload.nbytes
        self._wake()
        self._ring(b"\n")
        return True

    def _pause(self, reason: str) -> None:
        self._paused_until = time.monotonic() + PAUSE
        self._warn(f"KV store {self.folder}: {reason}; blocks are not saved for {PAUSE:.0f} s, "
                   "requests go on")  # fmt: skip

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _forget_done(self) -> None:
        self.waiting = {path: size for path, size in self.waiting.items() if path.exists()}

    def _report(self) -> None:
        """Pass on what the writer could not do."""
        try:
            problem = json.loads((self.spool / "status.json").read_text())["problem"]
        except (OSError, ValueError, KeyError):
            return
        if problem:
            self._pause(problem)

    def _wake(self) -> None:
        """Start the writer, or start it again if it died; not more often than every few seconds."""
        if self.process is not None and self.process.poll() is None:
            return
        if time.monotonic() < self._started + RESTART_EVERY:
            return
        self._started = time.monotonic()
        root = Path(__file__).resolve().parents[2]
        paths = [str(root), os.environ.get("PYTHONPATH", "")]
        command = [
            sys.executable,
            "-m",
            "minimoe.kvstore.writer",
            str(self.folder),
            str(self.spool),
        ]
        self.process = subprocess.Popen(
            [*command, json.dumps(self.settings)],
            stdin=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            start_new_session=True,  # Ctrl-C is for the engine; the writer ends with the pipe
        )
        if hasattr(os, "set_blocking") and os.name == "posix":
            os.set_blocking(self.process.stdin.fileno(), False)

    def _refused(self) -> bool:
        """The writer ended by itself, with an error: it could not open the store."""
        if not (self.process.poll() or 0) > 0:
            return False
        self._pause("its writer cannot work, as it says on stderr")
        return True

    def _ring(self, bell: bytes) -> None:
        try:
            os.write(self.process.stdin.fileno(), bell)
        except BlockingIOError:
            pass  # it has plenty of bells to read already
        except (OSError, ValueError):
            self._wake()
