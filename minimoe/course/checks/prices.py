"""Exercises 3 and 4 of 08: two prices."""

import math
import random

from minimoe.course.check import Check, register
from minimoe.course.checks.slips import first_slip, wrongs


def hourly(logical_tb, data, parity, dollars_per_tb, years, around):
    """Dollars per GPU-hour of SSD: its price over its life, parity and surroundings included."""
    return logical_tb * (data + parity) / data * dollars_per_tb / (years * 8766) * around


def _times(factor):
    """The right price, times factor(data, parity, years, around)."""
    return lambda t, d, p, c, y, a: hourly(t, d, p, c, y, a) * factor(d, p, y, a)


SHARDS = "parity is counted in shards, not copies: 10+2 keeps 12 for 10"
PRICE = {
    _times(lambda d, p, y, a: d / (d + p)): "parity takes space too",
    _times(lambda d, p, y, a: p / (d + p)): "the data takes space too: data + parity, over data",
    _times(lambda d, p, y, a: (d / (d + p)) ** 2): "upside down: bytes on disk per byte kept, "
    "(data + parity) / data",
    _times(lambda d, p, y, a: d): "of data shards there are as many: over `data`, once",
    _times(lambda d, p, y, a: (1 + p) * d / (d + p)): SHARDS,
    _times(lambda d, p, y, a: 8766): "years into hours: 8,766 in each",
    _times(lambda d, p, y, a: y * 8766): "over the hours of all the years",
    _times(lambda d, p, y, a: 8766**2): "divide by the hours too: / (years * 8766)",
    _times(lambda d, p, y, a: y**2): "divide by the years too",
    _times(lambda d, p, y, a: y): "the disks are used for all the years: yours pay for them in one",
    _times(lambda d, p, y, a: 8766 / 8760): "a year here has 8,766 hours, a quarter of a day more "
    "than 365 days",
    _times(lambda d, p, y, a: 1 / a): "what is around the disks is missing",
    _times(lambda d, p, y, a: 1 / a**2): "`around` multiplies the price",
    _times(lambda d, p, y, a: (1 + a) / a): "`around` multiplies the price: it has the disks in it",
    _times(lambda d, p, y, a: 100): "in dollars, not cents",
    lambda *args: round(hourly(*args), 3): "do not round",
    lambda *args: round(hourly(*args), 2): "do not round",
    lambda t, d, p, c, y, a: hourly(t, d, p, 1, y, a): "times the price of a TB",
}


@register
class SsdPrice(Check):
    """Exercise of 08: what the SSD of one GPU costs an hour."""

    name = "08-ssd-price"
    wrong = wrongs(PRICE)
    tolerance = 1e-6

    def cases(self, rng: random.Random):
        """The post's numbers, three copies, and others."""
        yield 23.7, 11, 3, 700.0, 7.0, 2.5  # tells all known slips apart
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

    def hint(self, got, *args):
        return first_slip(PRICE, got, *args)


def per_day(bytes_per_token, dollars_per_tb_day, recompute_per_million):
    """Reads a day at which a stored token is worth its space."""
    return bytes_per_token / 1e12 * dollars_per_tb_day / (recompute_per_million / 1e6)


UPSIDE_DOWN = "the other way round: cost of keeping over cost of computing"
READS = {
    lambda b, s, r: 1 / per_day(b, s, r): UPSIDE_DOWN,
    lambda b, s, r: per_day(b, s, r) / 1e6: "the price of computing is for a million tokens",
    lambda b, s, r: per_day(b, s, r) / 1e12: "the price of computing is for a million tokens: one "
    "costs a millionth of it",
    lambda b, s, r: per_day(b, s, r) * 1e12: "the price of storage is for a terabyte, 10^12 bytes",
    lambda b, s, r: per_day(b, s, r) * 1e3: "a terabyte is 10^12 bytes, not 10^9",
    lambda b, s, r: per_day(b, s, r) * 1e12 / 2**40: "a terabyte is 10^12 bytes here, not 2^40",
    lambda b, s, r: b * s / r: "storage is for a terabyte, computing for a million tokens: both "
    "down to one",
    lambda b, s, r: b / 1e12 * s: "divide what keeping costs by what computing once costs",
    lambda b, s, r: r / 1e6: "that is what computing once costs: divide what keeping costs by it",
    lambda b, s, r: b / 1e12 * s - r / 1e6: "how many reads: divide, do not subtract",
    lambda b, s, r: b / 1e12 * s * r / 1e6: "divide by what computing once costs",
    lambda b, s, r: per_day(1, s, r): "a token has bytes_per_token bytes",
    lambda b, s, r: per_day(b, s, r) * 365: "reads per day, not per year",
    lambda b, s, r: per_day(b, s, r) * 365.25: "reads per day, not per year",
    lambda b, s, r: per_day(b, s, r) / 24: "reads per day, not per hour",
    lambda b, s, r: round(per_day(b, s, r)): "do not round",
    lambda b, s, r: math.ceil(per_day(b, s, r)): "do not round",
    lambda b, s, r: round(per_day(b, s, r), 3): "do not round",
}


@register
class BreakEven(Check):
    """Exercise of 08: how often a token must be read again to pay for being kept."""

    name = "08-break-even"
    wrong = wrongs(READS)
    tolerance = 1e-6

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

    def hint(self, got, *args):
        """Most slips are powers of ten off, so their order of size counts, not the difference."""
        for slip, text in READS.items():
            if math.isclose(got, slip(*args), rel_tol=1e-4):
                return text
        return None
