"""Exercise 4 of 05: prompt look-up."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.speculative.prompt_lookup import find_naive


@register
class LookUp(Check):
    """Exercise 4 of 05: guess what followed the last time the text read like this."""

    name = "05-look-up"
    wrong = [
        Wrong(lambda t, n, c: _first(t, n, c), "latest"),
        Wrong(lambda t, n, c: t[-n:][:c], "after"),
        Wrong(lambda t, n, c: _with_end(t, n, c), "find themselves"),
        Wrong(lambda t, n, c: _apart(t, n, c), "overlap the last"),
        Wrong(lambda t, n, c: _not_at_the_start(t, n, c), "the very first token"),
        Wrong(lambda t, n, c: _whole_only(t, n, c), "fewer than `count`"),
        Wrong(lambda t, n, c: find_naive(t, c, 1, n), "exactly n"),
    ]

    def cases(self, rng: random.Random):
        """Two places, no place, one that overlaps, one at the start, one near the end.

        Each finds one mistake of `MISSED` that those before it do not.
        """
        yield [1, 2, 3, 1, 2, 4, 1, 2], 2, 2
        yield [1, 2, 3, 4], 2, 3
        yield [1, 7, 7, 7], 2, 1
        yield [1, 2, 9, 1, 2], 2, 2
        yield [3, 1, 2, 9, 1, 2], 2, 8
        yield [5], 1, 2
        yield [3, 5, 4, 6, 5], 2, 2
        for _ in range(30):
            size = rng.randrange(1, 16)
            yield [rng.randrange(3) for _ in range(size)], rng.randrange(1, 4), rng.randrange(1, 5)

    def expected(self, tokens, n, count):
        return look_up_naive(tokens, n, count)

    def hint(self, got, tokens, n, count):
        if list(got) == _first(tokens, n, count):
            return "take the latest earlier place, not the first"
        if list(got) == tokens[-n:][:count]:
            return "guess what came after the earlier place, not what stands there"
        for search, says in MISSED.items():
            if list(got) == search(tokens, n, count):
                return says
        if list(got) == find_naive(tokens, count, 1, n):
            return "match exactly n tokens, and only guess tokens that are there"
        return None


def look_up_naive(tokens, n, count):
    """What followed the latest earlier place where the last n tokens stood; [] if none."""
    for end in range(len(tokens) - 1, n - 1, -1):
        if tokens[end - n : end] == tokens[-n:]:
            return tokens[end : end + count]
    return []


def _first(tokens, n, count):
    return _search(tokens, n, count, range(n, len(tokens)))


def _search(tokens, n, count, ends):
    found = (end for end in ends if tokens[end - n : end] == tokens[-n:])
    return next((tokens[end : end + count] for end in found), [])


def _apart(tokens, n, count):
    return _search(tokens, n, count, range(len(tokens) - n, n - 1, -1))


def _not_at_the_start(tokens, n, count):
    return _search(tokens, n, count, range(len(tokens) - 1, n, -1))


def _whole_only(tokens, n, count):
    return _search(tokens, n, count, range(len(tokens) - count, n - 1, -1))


def _with_end(tokens, n, count):
    return _search(tokens, n, count, range(len(tokens), n - 1, -1))


MISSED = {  # searches that miss places -> what to say
    _apart: "a place was missed: it may overlap the last n tokens",
    _not_at_the_start: "a place was missed: it may begin with the very first token",
    _whole_only: "a place was missed: it may have fewer than `count` tokens behind it",
    _with_end: "the last n tokens find themselves: only places before the end count",
}
