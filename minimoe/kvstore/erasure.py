"""Stripe a segment over nodes so that any `parity` of them may vanish.

A segment is cut into `data` equal shards, and `parity` more are computed from them (Reed-Solomon
over GF(2^8), by the `zfec` library). The code is systematic: with all nodes up, reading is plain
concatenation, and only a lost shard costs arithmetic. A CRC-32 a shard tells which ones to trust.

10+2 costs 1.2 times the space and survives two losses; three copies cost 3 times for the same.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import comb

from minimoe.errors import MinimoeError

Buffer = bytes | bytearray | memoryview


def library():
    """`zfec`, imported late: an engine without a store does not need it."""
    try:
        import zfec
    except ImportError:
        raise MinimoeError("a KV store needs the library zfec: run `pip install zfec`") from None
    return zfec


class ShardsLost(MinimoeError):
    """Fewer whole shards than it takes to rebuild a segment."""


@dataclass(frozen=True)
class StripeCode:
    """`data` shards hold the segment, `parity` more can each stand in for a lost one."""

    data: int = 10
    parity: int = 2

    def __post_init__(self):
        if self.data < 1 or self.parity < 0 or self.data + self.parity > 256:
            raise MinimoeError(f"{self.data}+{self.parity} shards: needs 1 to 256 of them in all")

    @property
    def shards(self) -> int:
        """Shards of a stripe, data and parity."""
        return self.data + self.parity

    @property
    def space(self) -> float:
        """Bytes on disk per byte kept: 1.2 for 10+2."""
        return self.shards / self.data

    def shard_bytes(self, length: int) -> int:
        """Size of each shard of a segment of `length` bytes; the last one is padded with zeros."""
        return -(-length // self.data)

    def encode(self, segment: Buffer) -> list[Buffer]:
        """All shards of a segment, data first."""
        size = self.shard_bytes(len(segment))
        padding = size * self.data - len(segment)
        view = memoryview(bytes(segment) + bytes(padding)) if padding else memoryview(segment)
        plain = [view[i * size : (i + 1) * size] for i in range(self.data)]
        if not self.parity:
            return plain
        coder = library().Encoder(self.data, self.shards)
        return plain + coder.encode(plain, tuple(range(self.data, self.shards)))

    def decode(self, shards: Mapping[int, Buffer]) -> dict[int, Buffer]:
        """The data shards, from any `data` shards by number. Raises ShardsLost below that."""
        if len(shards) < self.data:
            raise ShardsLost(
                f"{len(shards)} of {self.shards} shards are readable, {self.data} are needed: "
                "the segment is lost"
            )
        have = {i: shards[i] for i in sorted(shards)[: self.data]}
        if max(have) < self.data:
            return have
        plain = library().Decoder(self.data, self.shards).decode(*_in_place(have, self.data))
        return dict(enumerate(plain))


def _in_place(shards: Mapping[int, Buffer], data: int) -> tuple[list[Buffer], list[int]]:
    """Data shards at their own places, parity in the gaps: what the library decodes fastest."""
    spare = [i for i in shards if i >= data]
    order = [i if i in shards else spare.pop(0) for i in range(data)]
    return [shards[i] for i in order], order


def checksum(shard: Buffer) -> int:
    """CRC-32: not against an adversary, but against a bad disk, a torn write, a stray edit."""
    return zlib.crc32(shard)


def unreadable_share(nodes: int, survives: int, p: float) -> float:
    """Chance that more than `survives` of `nodes` are down, each alone with probability `p`."""
    return sum(
        comb(nodes, down) * p**down * (1 - p) ** (nodes - down)
        for down in range(survives + 1, nodes + 1)
    )
