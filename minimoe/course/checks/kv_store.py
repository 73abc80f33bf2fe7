"""Exercise 2 of 08: bring a lost shard back."""

import functools
import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import told


def xor(shards: list[bytes]) -> bytes:
    """The bitwise exclusive or of shards of one length."""
    out = bytes(len(shards[0]))
    for shard in shards:
        out = bytes(a ^ b for a, b in zip(out, shard, strict=True))
    return out


def _rebuilt(shards, parity):
    return xor([shard for shard in shards if shard is not None] + [parity])


def _as_integer(order, strip):
    """XOR as one integer, written with as many bytes as it happens to need."""

    def answer(shards, parity):
        x = 0
        for shard in [s for s in shards if s is not None] + [parity]:
            x ^= int.from_bytes(shard, order)
        return x.to_bytes((x.bit_length() + 7) // 8 if strip else len(parity), order)

    return answer


def _whole_list(shards, parity):
    lost = _rebuilt(shards, parity)
    return [lost if shard is None else shard for shard in shards]


def _folded(step):
    """The shards that are left, then the parity, by another operation than XOR."""

    def answer(shards, parity):
        left = [shard for shard in shards if shard is not None] + [parity]
        return bytes(functools.reduce(step, column) for column in zip(*left, strict=True))

    return answer


def _first_left_only(shards, parity):
    return xor([shard for shard in shards if shard is not None][:1] + [parity])


LOST = {(TypeError, "NoneType"): "the lost shard is None: leave it out"}


@register
class Rebuild(Check):
    """Exercise of 08: a lost shard from those that are left and the parity."""

    name = "08-rebuild"
    wrong = [
        Wrong(lambda shards, parity: parity, "the shards that are left"),
        Wrong(
            lambda shards, parity: xor([s for s in shards if s is not None] or [parity]), "parity"
        ),
        Wrong(lambda shards, parity: bytes(len(parity)), "values differ"),
        Wrong(
            lambda *args: list(_rebuilt(*args)),
            "give bytes",
        ),
        Wrong(_as_integer("big", strip=True), "lost its zeros"),
        Wrong(_as_integer("little", strip=True), "lost its zeros"),
        Wrong(_whole_list, "the lost shard only"),
        Wrong(lambda shards, parity: _whole_list(shards, parity) + [parity], "the lost shard only"),
        Wrong(lambda *args: tuple(_whole_list(*args)), "the lost shard only"),
        Wrong(lambda shards, parity: xor([*shards, parity]), "leave it out"),
        Wrong(_folded(lambda a, b: a & b), "`^` of the bytes"),
        Wrong(_folded(lambda a, b: a | b), "`^` of the bytes"),
        Wrong(_folded(lambda a, b: (b - a) % 256), "`^` of the bytes"),
        Wrong(
            lambda shards, parity: b"".join([s or b"" for s in shards] + [parity]), "byte by byte"
        ),
        Wrong(_first_left_only, "all shards that are left"),
        Wrong(lambda *args: bytearray(_rebuilt(*args))[::-1], "order of the bytes"),
    ]

    def cases(self, rng: random.Random):
        """One to ten shards, any of them lost."""
        yield [None, b"\x35\x0f", b"\x62\x11"], b"\xc6\x5a"
        yield [None, b"\x0f"], b"\xff"
        yield [None], b"abc"
        yield [b"\x00\x01", None], b"\x00\x03"
        yield [None, b"\x01\x05"], b"\x02\x05"
        yield [b"\x07\x05", None], b"\x07\x05"
        for _ in range(25):
            size, count = rng.randrange(1, 6), rng.randrange(1, 11)
            shards = [rng.randbytes(size) for _ in range(count)]
            parity = xor(shards)
            shards[rng.randrange(count)] = None
            yield shards, parity

    def expected(self, shards, parity):
        return _rebuilt(shards, parity)

    def call(self, answer, shards, parity):
        """A bytearray is as right as bytes."""
        got = told(answer, LOST, shards, parity)
        return bytes(got) if isinstance(got, bytearray) else got

    def describe(self, shards, parity):
        return f"shards {shards}, parity {parity}"

    def hint(self, got, shards, parity):
        if isinstance(got, str) and got in LOST.values():
            return got
        if isinstance(got, list | tuple) and any(isinstance(part, bytes) for part in got):
            return "return the lost shard only"
        if not isinstance(got, bytes):
            return "give bytes: bytes(a ^ b for a, b in zip(...))"
        if len(got) > len(parity):
            return "xor byte by byte: the result is as long as one shard"
        left = [shard for shard in shards if shard is not None]
        if len(got) < len(parity):
            return f"the shard is {len(parity)} bytes long: yours lost its zeros"
        if left and got == xor(left):
            return "the parity takes part too"
        if left and got == parity:
            return "xor the parity with the shards that are left"
        if got == _first_left_only(shards, parity):
            return "xor all shards that are left, not one"
        if got == self.expected(shards, parity)[::-1]:
            return "keep the order of the bytes"
        return "the values differ: take `^` of the bytes of all that is left, parity included"
