"""Exercise 4 of 04: find the slow rank from its times."""

import random
import statistics

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, wrongs


def _each(seconds, rows):
    return [took / count for took, count in zip(seconds, rows, strict=True)]


def slow_naive(seconds, rows):
    """(rank, factor): most seconds per row, over the median of all."""
    each = _each(seconds, rows)
    rank = each.index(max(each))
    return rank, each[rank] / statistics.median(each)


def _by_time(seconds, rows):
    rank = seconds.index(max(seconds))
    return rank, seconds[rank] / statistics.median(seconds)


def _by_rows(seconds, rows):
    rank = rows.index(max(rows))
    return rank, rows[rank] / statistics.median(rows)


def _last_of_equals(seconds, rows):
    rank, factor = slow_naive(seconds[::-1], rows[::-1])
    return len(rows) - 1 - rank, factor


def _upside_down(seconds, rows):
    rank, factor = slow_naive(seconds, rows)
    return rank, 1 / factor


def _by_rate(seconds, rows):
    rate = _each(rows, seconds)
    return rate.index(min(rate)), statistics.median(rate) / min(rate)


def _fastest(seconds, rows):
    rate = _each(rows, seconds)
    return rate.index(max(rate)), max(rate) / statistics.median(rate)


def _factor(change):
    """The right rank, with change(its seconds per row, those of all) as the factor."""

    def answer(seconds, rows):
        each = _each(seconds, rows)
        return each.index(max(each)), change(max(each), each)

    return answer


def _over_others(own, each):
    others = list(each)
    others.remove(own)
    return own / statistics.median(others)


def _over_median_seconds(seconds, rows):
    rank, _ = slow_naive(seconds, rows)
    return rank, seconds[rank] / statistics.median(seconds)


SLIPS = {
    lambda *args: slow_naive(*args)[::-1]: "give the rank first, then the factor",
    lambda *args: (slow_naive(*args)[0] + 1, slow_naive(*args)[1]): "ranks are counted from 0",
    _fastest: "this is the fastest rank: compare seconds per row, not rows per second",
    _upside_down: "the factor says how many times as slow it is: above 1",
    _factor(
        lambda own, each: own / statistics.mean(each)
    ): "compare with the median of all ranks, not their mean: the slow one is in that",
    _factor(lambda own, each: own / statistics.median_low(each)): "the median of an even number of "
    "ranks lies between the middle two (that of torch is the lower one)",
    _factor(_over_others): "the median of all ranks, its own too",
    _by_rate: "take the median of seconds per row: that of rows per second is another number",
    _factor(
        lambda own, each: own / sorted(each)[len(each) // 2]
    ): "the median of an even number of ranks lies between the middle two",
    _factor(lambda own, each: own / each[len(each) // 2]): "the median is the middle one when all "
    "are sorted",
    _factor(
        lambda own, each: own / min(each)
    ): "compare with the median of all ranks: the fastest may be a lucky one",
    _factor(lambda own, each: own): "how many times the median: divide by the median of all ranks",
    _factor(
        lambda own, each: own - statistics.median(each)
    ): "how many times the median: divide by it, do not subtract",
    _factor(
        lambda own, each: own / statistics.median(each) - 1
    ): "how many times the median, not how many times more",
    _over_median_seconds: "take the median of seconds per row, not of the seconds",
}


@register
class SlowRank(Check):
    """Exercise of 04: find the slow rank from its times."""

    name = "04-slow-rank"
    wrong = [
        *wrongs(SLIPS),
        Wrong(_by_time, "had more rows"),
        Wrong(_by_rows, "rows alone"),
        Wrong(_last_of_equals, "of equals, the first"),
        Wrong(lambda *args: slow_naive(*args)[0], "a pair"),
    ]

    def cases(self, rng: random.Random):
        """Equal rows, a busy rank that is not slow, a slow one with few rows, two alike, random."""
        yield [1.0, 3.0, 2.9, 1.8, 0.8], [12, 25, 30, 10, 8]  # tells most known slips apart
        yield [1.0, 1.3, 3.0, 2.0], [10, 10, 20, 10]
        yield [1.0, 1.0, 2.0], [10, 10, 10]
        yield [3.0, 1.0, 1.0, 1.5], [30, 10, 10, 10]
        yield [1.0, 1.0, 1.0], [20, 20, 10]
        yield [2.0, 4.0, 1.0], [10, 20, 10]
        yield [5.0, 4.0, 4.2, 2.1, 4.1], [50, 40, 42, 7, 41]
        for _ in range(20):
            ranks = rng.randrange(3, 9)
            rows = [rng.randrange(10, 100) for _ in range(ranks)]
            slow = rng.randrange(ranks)
            speed = [rng.uniform(0.95, 1.05) * (0.4 if r == slow else 1) for r in range(ranks)]
            yield [count / v for count, v in zip(rows, speed, strict=True)], rows

    def expected(self, seconds, rows):
        return slow_naive(seconds, rows)

    def describe(self, seconds, rows):
        return f"seconds {[round(s, 2) for s in seconds]}, rows {rows}"

    def hint(self, got, seconds, rows):
        if not hasattr(got, "__len__") or len(got) != 2:
            return "give a pair: the rank, and how many times as slow it is"
        rank, _ = self.expected(seconds, rows)
        if tuple(got) == _last_of_equals(seconds, rows):
            return "two ranks are as slow: of equals, the first"
        says = first_slip(SLIPS, got, seconds, rows)
        if says:
            return says
        if got[0] != rank and got[0] == seconds.index(max(seconds)):
            return "this rank took long because it had more rows: compare seconds per row"
        if got[0] != rank and got[0] == rows.index(max(rows)):
            return "rows alone say who is busy, not who is slow: divide seconds by them"
        if got[0] != rank:
            return "the slow rank has the most seconds per row"
        return "the factor is its seconds per row over the median of all ranks'"
