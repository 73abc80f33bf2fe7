"""The store's write lock, and what makes a write to tables and files one whole.

SQLite undoes a killed writer's rows, but not its files. So the holder of the lock first names in
`intent.json` the segment it will write and those it will drop. Whoever takes the lock next looks:
a named segment without a row was not committed, so its files go; those named for dropping go, rows
and files. Names are never used again, so doing this twice does no harm.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from minimoe.kvstore.metadata import Metadata
from minimoe.kvstore.segments import NodeFolders


class Journal:
    """`with journal.writing():` is one atomic change; inside, `announce` comes before any file."""

    def __init__(self, folder: Path, meta: Metadata, nodes: NodeFolders):
        self.path, self.meta, self.nodes = folder / "intent.json", meta, nodes
        self._unfinished: list[str] = []

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock. An exception undoes rows and files, then goes on to the caller."""
        try:
            with self.meta.lock():
                self._recover()
                yield
        except BaseException:
            with suppress(sqlite3.Error), self.meta.lock():  # else the next writer does it
                self._recover()
            raise

    def announce(self, write: str | None, drop: Iterable[str]) -> None:
        """Say what will be written and dropped, and drop it: rows at commit, files now."""
        drop = list(drop)
        plan = {"write": write, "drop": drop + self._unfinished}
        beside = self.path.with_name(f"intent.{os.getpid()}.new")
        beside.write_text(json.dumps(plan), encoding="utf-8")
        os.replace(beside, self.path)
        self.meta.delete(drop)
        self.nodes.remove(drop)

    def _recover(self) -> None:
        """Finish what the last announcement left undone, if anything."""
        plan = self._plan()
        # Until this change commits, rows deleted here come back if we die: announce them again.
        self._unfinished = [name for name in plan["drop"] if self.meta.exists(name)]
        doomed = list(plan["drop"])
        if plan["write"] and not self.meta.exists(plan["write"]):
            doomed.append(plan["write"])
        self.meta.delete(doomed)
        self.nodes.remove(doomed)

    def _plan(self) -> dict:
        try:
            return json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {"write": None, "drop": []}
