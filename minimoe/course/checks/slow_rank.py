"""Exercise 4 of 04: find the slow rank from its times."""

import random
import statistics

from minimoe.course.check import Check, Wrong, register


def slow_naive(seconds, rows):
    """(rank, factor): most seconds per row, over the median of all."""
    each = [took / count for took, count in zip(seconds, rows, strict=True)]
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


def _over_fastest(seconds, rows):
    each = [took / count for took, count in zip(seconds, rows, strict=True)]
    return each.index(max(each)), max(each) / min(each)


def _upside_down(seconds, rows):
    rank, factor = slow_naive(seconds, rows)
    return rank, 1 / factor


def _over_mean(seconds, rows):
    each = [took / count for took, count in zip(seconds, rows, strict=True)]
    return each.index(max(each)), max(each) / statistics.mean(each)


def _over_middle(seconds, rows):
    each = [took / count for took, count in zip(seconds, rows, strict=True)]
    return each.index(max(each)), max(each) / sorted(each)[len(each) // 2]


def _over_others(seconds, rows):
    each = [took / count for took, count in zip(seconds, rows, strict=True)]
    rank = each.index(max(each))
    return rank, each[rank] / statistics.median(each[:rank] + each[rank + 1 :])


def _by_rate(seconds, rows):
    rate = [count / took for took, count in zip(seconds, rows, strict=True)]
    return rate.index(min(rate)), statistics.median(rate) / min(rate)


_SLIPS = {
    _over_mean: "compare with the median of all ranks, not their mean: the slow one is in that",
    _over_others: "the median of all ranks, its own too; of an even number, between the middle two",
    _by_rate: "take the median of seconds per row: that of rows per second is another number",
    _over_middle: "the median of an even number of ranks lies between the middle two",
}


@register
class SlowRank(Check):
    """Exercise of 04: find the slow rank from its times."""

    name = "04-slow-rank"
    wrong = [
        Wrong(_by_time, "had more rows"),
        Wrong(_by_rows, "rows alone"),
        Wrong(_over_fastest, "median"),
        Wrong(_over_mean, "not their mean"),
        Wrong(_over_middle, "middle two"),
        Wrong(_over_others, "its own too"),
        Wrong(_by_rate, "rows per second"),
        Wrong(_last_of_equals, "of equals, the first"),
        Wrong(lambda *args: slow_naive(*args)[0], "a pair"),
        Wrong(_upside_down, "above 1"),
    ]

    def cases(self, rng: random.Random):
        """Equal rows, a busy rank that is not slow, a slow one with few rows, two alike, random."""
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
        if not isinstance(got, tuple | list) or len(got) != 2:
            return "give a pair: the rank, and how many times as slow it is"
        rank, factor = self.expected(seconds, rows)
        if tuple(got) == _last_of_equals(seconds, rows):
            return "two ranks are as slow: of equals, the first"
        if got[0] != rank and got[0] == seconds.index(max(seconds)):
            return "this rank took long because it had more rows: compare seconds per row"
        if got[0] != rank and got[0] == rows.index(max(rows)):
            return "rows alone say who is busy, not who is slow: divide seconds by them"
        if got[0] != rank:
            return "the slow rank has the most seconds per row"
        if abs(got[1] * factor - 1) < 1e-6:
            return "the factor says how many times as slow it is: above 1"
        for slip, text in _SLIPS.items():
            if abs(got[1] / slip(seconds, rows)[1] - 1) < 1e-6:
                return text
        if got[1] > factor:
            return "compare with the median of all ranks: the fastest may be a lucky one"
        return "the factor is its seconds per row over the median of all ranks'"
