"""Read part of a segment from its shards: verify each, rebuild what is missing, or say so."""

from minimoe.kvstore.erasure import ShardsLost, StripeCode, checksum
from minimoe.kvstore.metadata import Segment
from minimoe.kvstore.segments import NodeFolders


class ShardReader:
    """Reads into one buffer that the next read uses again: fresh pages cost as much as the read."""

    def __init__(self, nodes: NodeFolders, code: StripeCode):
        self.nodes, self.code = nodes, code
        self._buffer = memoryview(bytearray(0))

    def read(self, segment: Segment, start: int, end: int) -> memoryview | None:
        """Bytes `start:end` of a segment; None if they cannot be had. Valid until the next read."""
        size = self.code.shard_bytes(segment.length)
        views = self._views(size)
        wanted = range(start // size, (end - 1) // size + 1)
        good = {i: views[i] for i in wanted if self._verified(segment, i, views[i])}
        missing = [i for i in wanted if i not in good]
        if missing and not self._rebuild(segment, views, good, missing):
            return None
        return self._buffer[start:end]

    def good_shards(self, segment: Segment) -> dict[int, memoryview]:
        """Every shard that is there and right, by number. Valid until the next read."""
        views = self._views(self.code.shard_bytes(segment.length))
        return {i: v for i, v in enumerate(views) if self._verified(segment, i, v)}

    def _verified(self, segment: Segment, index: int, out: memoryview) -> bool:
        return self.nodes.read(segment.name, index, out) and checksum(out) == segment.checksum(
            index
        )

    def _rebuild(self, segment: Segment, views: list, good: dict, missing: list[int]) -> bool:
        """Fill the views of missing data shards from other shards. False if too few are left."""
        for index, view in enumerate(views):
            if len(good) == self.code.data:
                break
            if index not in good and index not in missing and self._verified(segment, index, view):
                good[index] = view
        try:
            plain = self.code.decode(good)
        except ShardsLost:
            return False
        for index in missing:
            views[index][:] = plain[index]
        return True

    def _views(self, size: int) -> list[memoryview]:
        """One view a shard; the data shards lie one after another, as in the segment."""
        if len(self._buffer) < size * self.code.shards:
            self._buffer = memoryview(bytearray(size * self.code.shards))
        return [self._buffer[i * size : (i + 1) * size] for i in range(self.code.shards)]
