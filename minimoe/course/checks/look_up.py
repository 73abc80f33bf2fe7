"""Exercise 4 of 05: prompt look-up."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.speculative.prompt_lookup import find_naive


def look_up_naive(tokens, n, count):
    """What followed the latest earlier place where the last n tokens stood; [] if none."""
    for end in range(len(tokens) - 1, n - 1, -1):
        if tokens[end - n : end] == tokens[-n:]:
            return tokens[end : end + count]
    return []


def _search(tokens, n, count, ends):
    found = (end for end in ends if tokens[end - n : end] == tokens[-n:])
    return next((tokens[end : end + count] for end in found), [])


def _first(tokens, n, count):
    return _search(tokens, n, count, range(n, len(tokens)))


def _shifted(tokens, n, count, by):
    """So many tokens from `by` after the right place."""
    ends = range(len(tokens) - 1, n - 1, -1)
    end = next((end for end in ends if tokens[end - n : end] == tokens[-n:]), None)
    return [] if end is None else tokens[end + by : end + by + count]


def _as_text(tokens, n, count):
    """What a search in the tokens written side by side finds, one digit a token."""
    text, end = "".join(map(str, tokens)), "".join(map(str, tokens[-n:]))
    at = text.rfind(end, 0, len(text) - 1)
    return [] if at < 0 else [int(digit) for digit in text[at + len(end) :][:count]]


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
    _with_end: "nothing was found, and there is a place: try every one before the end, where the "
    "last n tokens find themselves",
}


@register
class LookUp(Check):
    """Exercise 4 of 05: guess what followed the last time the text read like this."""

    name = "05-look-up"
    wrong = [
        Wrong(_first, "latest"),
        Wrong(lambda t, n, c: t[-n:][:c], "after"),
        Wrong(_with_end, "find themselves"),
        Wrong(_apart, "overlap the last"),
        Wrong(_not_at_the_start, "the very first token"),
        Wrong(_whole_only, "fewer than `count`"),
        Wrong(lambda t, n, c: find_naive(t, c, 1, n), "exactly n"),
        Wrong(lambda t, n, c: iter(look_up_naive(t, n, c)), "a list is expected"),
        Wrong(lambda t, n, c: look_up_naive(t, n, c + 1), "at most `count`"),
        Wrong(lambda t, n, c: look_up_naive(t, n, len(t)), "at most `count`"),
        Wrong(lambda t, n, c: look_up_naive(t, n, c - 1), "`count` tokens, where there are"),
        Wrong(lambda t, n, c: look_up_naive(t, n, n), "`count` tokens, where there are"),
        Wrong(lambda t, n, c: _shifted(t, n, c, -n), "not what stands there"),
        Wrong(lambda t, n, c: _shifted(t, n, n + c, -n), "not what stands there"),
        Wrong(lambda t, n, c: _shifted(t, n, c, 1), "one too far"),
        Wrong(_as_text, "not their digits"),
    ]

    def cases(self, rng: random.Random):
        """Two places, no place, one that overlaps, one at the start, one near the end.

        Each finds one mistake of `MISSED` that those before it do not.
        """
        yield [1, 2, 3, 1, 2, 4, 5, 6, 1, 2], 2, 3
        yield [1, 2, 3, 1, 2, 4, 1, 2], 2, 2
        yield [2, 9, 12, 4, 2], 1, 1
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
        if not hasattr(got, "__len__"):
            return None
        want = look_up_naive(tokens, n, count)
        if want and list(got) in (_shifted(tokens, n, size, -n) for size in (count, n + count)):
            return "guess what came after the earlier place, not what stands there"
        if len(got) and list(got) == _shifted(tokens, n, count, 1):
            return "one too far: the first token right after the place counts too"
        if want and list(got[:count]) == want:
            return "give at most `count` tokens"
        if want and list(got) == want[: len(got)] and len(got):
            return "give `count` tokens, where there are so many"
        if list(got) == _as_text(tokens, n, count):
            return "compare tokens, not their digits: 12 does not end with the token 2"
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
