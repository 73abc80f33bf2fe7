"""Exercises 2 to 4 of 08: bring a lost shard back, and two prices."""

import random

from minimoe.course.check import Check, Wrong, register


def xor(shards: list[bytes]) -> bytes:
    """The bitwise exclusive or of shards of one length."""
    out = bytes(len(shards[0]))
    for shard in shards:
        out = bytes(a ^ b for a, b in zip(out, shard, strict=True))
    return out


def _as_integer(order, strip):
    """XOR as one integer, written with as many bytes as it happens to need."""

    def answer(shards, parity):
        x = 0
        for shard in [s for s in shards if s is not None] + [parity]:
            x ^= int.from_bytes(shard, order)
        return x.to_bytes((x.bit_length() + 7) // 8 if strip else len(parity), order)

    return answer


def _whole_list(shards, parity):
    lost = xor([shard for shard in shards if shard is not None] + [parity])
    return [lost if shard is None else shard for shard in shards]


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
            lambda shards, parity: list(xor([s for s in shards if s is not None] + [parity])),
            "give bytes",
        ),
        Wrong(_as_integer("big", strip=True), "lost its zeros"),
        Wrong(_as_integer("little", strip=True), "lost its zeros"),
        Wrong(_whole_list, "the lost shard only"),
        Wrong(lambda shards, parity: _whole_list(shards, parity) + [parity], "the lost shard only"),
    ]

    def cases(self, rng: random.Random):
        """One to ten shards, any of them lost."""
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
        return xor([shard for shard in shards if shard is not None] + [parity])

    def describe(self, shards, parity):
        return f"shards {shards}, parity {parity}"

    def hint(self, got, shards, parity):
        if isinstance(got, list) and any(isinstance(part, bytes) for part in got):
            return "return the lost shard only"
        if isinstance(got, bytes) and len(got) < len(parity):
            return f"the shard is {len(parity)} bytes long: yours lost its zeros"
        if not isinstance(got, bytes):
            return "give bytes: bytes(a ^ b for a, b in zip(...))"
        left = [shard for shard in shards if shard is not None]
        if left and got == xor(left):
            return "the parity takes part too"
        if left and got == parity:
            return "xor the parity with the shards that are left"
        return "the values differ"


def hourly(logical_tb, data, parity, dollars_per_tb, years, around):
    """Dollars per GPU-hour of SSD: its price over its life, parity and surroundings included."""
    return logical_tb * (data + parity) / data * dollars_per_tb / (years * 8766) * around


@register
class SsdPrice(Check):
    """Exercise of 08: what the SSD of one GPU costs an hour."""

    name = "08-ssd-price"
    wrong = [
        Wrong(lambda t, d, p, c, y, a: t * c / (y * 8766) * a, "parity"),
        Wrong(lambda t, d, p, c, y, a: t * (d + p) / d * c / y * a, "hours"),
        Wrong(lambda t, d, p, c, y, a: t * (d + p) / d * c / (y * 8766), "around"),
        Wrong(lambda t, d, p, c, y, a: t * (1 + p) * c / (y * 8766) * a, "not copies"),
        Wrong(lambda t, d, p, c, y, a: t * (d + p) / d * c / (y * 8760) * a, "8,766"),
        Wrong(lambda t, d, p, c, y, a: t * (d + p) / d * c / 8766 * a, "all the years"),
    ]
    tolerance = 1e-4

    def cases(self, rng: random.Random):
        """The post's numbers, three copies, and others."""
        yield 14.4, 10, 2, 500.0, 5.0, 2.0
        yield 14.4, 1, 2, 500.0, 5.0, 2.0
        for _ in range(20):
            size, price = rng.uniform(5, 100), rng.uniform(500, 5000)
            yield size, rng.randrange(2, 20), rng.randrange(1, 5), price, rng.uniform(1, 7), 1.5

    def expected(self, *args):
        return hourly(*args)

    def describe(self, logical_tb, data, parity, dollars_per_tb, years, around):
        return (
            f"{logical_tb:.4g} TB, {data}+{parity}, ${dollars_per_tb:.4g} a TB, {years:.3g} years, "
            f"times {around:.3g}"
        )

    def hint(self, got, logical_tb, data, parity, dollars_per_tb, years, around):
        want = hourly(logical_tb, data, parity, dollars_per_tb, years, around)
        causes = {
            "parity takes space too": data / (data + parity),
            "years into hours: 8,766 in each": 8766,
            "what is around the disks is missing": 1 / around,
            "parity is counted in shards, not copies: 10+2 keeps 12 for 10": (1 + parity)
            * data
            / (data + parity),
            "a year here has 8,766 hours, a quarter of a day more than 365 days": 8766 / 8760,
            "the disks are used for all the years: yours pay for them in one": years,
        }
        for words, factor in causes.items():
            if abs(got / want - factor) < 1e-4 * factor:
                return words
        return None


def per_day(bytes_per_token, dollars_per_tb_day, recompute_per_million):
    """Reads a day at which a stored token is worth its space."""
    return bytes_per_token / 1e12 * dollars_per_tb_day / (recompute_per_million / 1e6)


@register
class BreakEven(Check):
    """Exercise of 08: how often a token must be read again to pay for being kept."""

    name = "08-break-even"
    wrong = [
        Wrong(lambda b, s, r: 1 / per_day(b, s, r), "other way round"),
        Wrong(lambda b, s, r: b / 1e12 * s / r, "million"),
        Wrong(lambda b, s, r: b * s / (r / 1e6), "terabyte"),
        Wrong(lambda b, s, r: b / 1e12 * s, "divide"),
        Wrong(lambda b, s, r: per_day(b, s, r) * 365, "per day, not per year"),
        Wrong(lambda b, s, r: per_day(b, s, r) * 365.25, "per day, not per year"),
        Wrong(lambda b, s, r: b / 2**40 * s / (r / 1e6), "not 2^40"),
    ]
    tolerance = 1e-7

    def cases(self, rng: random.Random):
        """V3's and V4.1's bytes a token, and others."""
        yield 70_272, 0.5, 0.138
        yield 890, 0.5, 0.138
        for _ in range(20):
            yield rng.randrange(10_000, 300_000), rng.uniform(0.1, 1.0), rng.uniform(0.05, 0.5)

    def expected(self, *args):
        return per_day(*args)

    def describe(self, size, storage, compute):
        return f"{size:,} bytes a token, ${storage:.3g} per TB and day, ${compute:.3g} per million"

    def hint(self, got, size, storage, compute):
        want = per_day(size, storage, compute)
        causes = {
            "the other way round: cost of keeping over cost of computing": 1 / want / want,
            "the price of computing is for a million tokens": 1e-6,
            "the price of storage is for a terabyte, 10^12 bytes": 1e12,
            "divide what keeping costs by what computing once costs": compute / 1e6,
            "reads per day, not per year": 365.25,
            "a terabyte is 10^12 bytes here, not 2^40": 1e12 / 2**40,
        }
        for words, factor in causes.items():
            if abs(got / want / factor - 1) < 1e-3:
                return words
        return None
