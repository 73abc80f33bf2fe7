"""Segment files: one folder per storage node, one shard of a segment in each.

A segment's name is random and never used again, so a file that a crashed writer left behind can
not be taken for another's. Which folder gets which shard turns with the name, so that parity, and
the work after a loss, spreads over all nodes.
"""

import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from minimoe.kvstore.erasure import Buffer

FULL = (errno.ENOSPC, errno.EDQUOT)


class NodeFolders:
    """`node_00`, `node_01`, ... under `root`. Any of them may be missing or damaged."""

    def __init__(self, root: str | Path, nodes: int):
        self.root, self.nodes = str(root), nodes
        self.folders = [os.path.join(self.root, f"node_{i:02d}") for i in range(nodes)]

    def path(self, name: str, shard: int) -> str:
        """The file of one shard; the first shard's node follows from the name."""
        node = (shard + int(name[:8], 16)) % self.nodes
        return os.path.join(self.folders[node], name)

    def write(self, name: str, shards: Sequence[Buffer], may_fail: int) -> None:
        """Write all shards; a missing folder is made again.

        Raises OSError when the disk is full, or when more than `may_fail` folders refuse.
        """
        failures = []
        for index, shard in enumerate(shards):
            try:
                self._write_one(self.path(name, index), shard)
            except OSError as error:
                failures.append(error)
                if error.errno in FULL or len(failures) > may_fail:
                    raise

    def replace(self, name: str, index: int, shard: Buffer) -> None:
        """Put one shard in place of a damaged one; readers see the old file or the new."""
        path = self.path(name, index)
        self._write_one(path + ".new", shard)
        os.replace(path + ".new", path)

    def read(self, name: str, index: int, out: memoryview) -> bool:
        """Fill `out` with one shard. False where the file is missing or of another size."""
        try:
            fd = os.open(self.path(name, index), os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except OSError:
            return False
        try:
            with os.fdopen(fd, "rb", buffering=0) as file:
                return file.readinto(out) == len(out) and not file.read(1)
        except OSError:
            return False

    def remove(self, names: Iterable[str]) -> None:
        """Delete all shards of the named segments, as far as they exist."""
        for name in names:
            for index in range(self.nodes):
                _unlink(self.path(name, index))

    def remove_strangers(self, known: set[str]) -> int:
        """Delete files that belong to no known segment, such as those of a returned node."""
        count = 0
        for folder in self.folders:
            for name in _listdir(folder):
                if name not in known:
                    count += _unlink(os.path.join(folder, name))
        return count

    def _write_one(self, path: str, shard: Buffer) -> None:
        if not os.path.isdir(os.path.dirname(path)):
            os.mkdir(os.path.dirname(path))
        with open(path, "wb", buffering=0) as file:
            if file.write(shard) != len(shard):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _listdir(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
