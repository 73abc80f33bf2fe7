"""What makes a change to tables and files one whole.

SQLite undoes a killed writer's rows, but not its files. So the holder of the write lock first
commits a plan: the segment it will write and those it will drop. Files and rows come next, and the
commit that shows them erases the plan. Whoever takes the lock and finds a plan knows that its
author died: files without a row go, and what was to be dropped goes, rows and files. Names are
never used again, so nothing else can be hit.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from minimoe.kvstore.metadata import Metadata
from minimoe.kvstore.segments import NodeFolders


class Journal:
    """`with journal.change(write, drop):` is one atomic change, seen whole or not at all."""

    def __init__(self, meta: Metadata, nodes: NodeFolders):
        self.meta, self.nodes = meta, nodes

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the write lock, with nothing left over from writers before."""
        with self.meta.writers:
            self._finish_left_over()
            yield

    @contextmanager
    def change(self, write: str | None, drop: Iterable[str]) -> Iterator[None]:
        """Inside `writing`: the named segments are dropped at once, `write` may be written inside.

        An exception undoes all of it but the drops, and goes on to the caller.
        """
        drop = list(drop)
        with self.meta.transaction():
            self.meta.plan(write, drop)
        try:
            self.nodes.remove(drop)
            with self.meta.transaction():
                self.meta.delete(drop)
                yield
                self.meta.forget_plan()
        except BaseException:
            with suppress(sqlite3.Error):  # else the next writer does it
                self._finish_left_over()
            raise

    def _finish_left_over(self) -> None:
        plan = self.meta.left_over()
        if not plan:
            return
        doomed = [name for name, drop in plan if drop or not self.meta.exists(name)]
        self.nodes.remove(doomed)
        with self.meta.transaction():
            self.meta.delete(doomed)
            self.meta.forget_plan()
