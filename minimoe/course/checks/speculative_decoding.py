"""Exercises 1 and 2 of 05: tokens a pass, and which they are."""

import math
import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, wrongs
from minimoe.course.compare import plain


def tokens_per_pass_naive(rates):
    """One token for sure; draft k adds one if it and all before it stand."""
    expected = 1.0
    for k in range(1, len(rates) + 1):
        survive = 1.0
        for rate in rates[:k]:
            survive *= rate
        expected += survive
    return expected


def _products(rates):
    return [math.prod(rates[: k + 1]) for k in range(len(rates))]


SLIPS = {
    lambda rates: sum(_products(rates)): "a pass also makes one token of its own, whatever stands",
    lambda rates: 1 + sum(rates): "a draft counts only if all before it stand too: multiply",
    lambda rates: 1 + sum(min(rates[: k + 1]) for k in range(len(rates))): "a draft counts only if "
    "all before it stand too: multiply",
    lambda rates: tokens_per_pass_naive([sum(rates) / len(rates)] * len(rates)): "the mean rate "
    "hides which position is weak: use each position's own",
    lambda rates: tokens_per_pass_naive([rates[0]] * len(rates)): "each position has its own rate",
    lambda rates: 1 + len(rates) * math.prod(rates): "drafts before the first that falls stay: add "
    "up the products, one for each draft",
    lambda rates: 1 + math.prod(rates): "drafts before the first that falls stay: add up the "
    "products, one for each draft",
    lambda rates: math.prod(
        rates
    ): "this is the chance that all stand: add up the products, and one token of its own",
    lambda rates: 2 + sum(_products(rates[:-1])): "multiply first, then add: draft k needs its own "
    "rate too",
    lambda rates: tokens_per_pass_naive(rates[:-1]): "the last draft counts too",
    lambda rates: 1 + len(rates): "a draft does not stay for sure: add its chance",
}


@register
class TokensPerPass(Check):
    """Exercise 1 of 05: expected tokens of a pass from the acceptance by position."""

    name = "05-tokens-per-pass"
    wrong = [
        *wrongs(SLIPS),
        Wrong(lambda rates: tokens_per_pass_naive(rates) if rates else 0, "one token of its own"),
    ]

    def cases(self, rng: random.Random):
        """The chart's 3 drafts at 75 %, no drafts, sure ones, one that never stands."""
        yield ([0.8, 0.5, 0.7],)  # tells all known slips apart
        yield ([0.75, 0.75, 0.75],)
        yield ([],)
        yield ([1.0, 1.0],)
        yield ([0.9, 0.0, 1.0],)
        for _ in range(20):
            yield ([rng.random() for _ in range(rng.randrange(1, 8))],)

    def expected(self, rates):
        return tokens_per_pass_naive(rates)

    def hint(self, got, rates):
        return first_slip(SLIPS, got, rates)


def tokens_of_pass_naive(draft, said, eos):
    """Drafts up to the first that differs, then the model's token; nothing behind an end token."""
    made = []
    for guess, own in zip(draft, said, strict=False):
        made.append(own)
        if own == eos or guess != own:
            return made
    return [*made, said[len(draft)]]


def _last_said(draft, said, eos):
    """The drafts that stand, and the last token of `said`, wherever the first miss is."""
    made = tokens_of_pass_naive(draft, said, eos)
    return made if made[-1] == eos else [*made[:-1], said[-1]]


def _draft_kept(draft, said, eos):
    """The guess that differs, not the model's token."""
    made = tokens_of_pass_naive(draft, said, eos)
    return [*made[:-1], draft[len(made) - 1]] if len(made) <= len(draft) else made


@register
class TokensOfPass(Check):
    """Exercise 2 of 05: what a greedy pass adds to the text."""

    name = "05-tokens-of-pass"
    wrong = [
        Wrong(lambda d, s, e: tokens_of_pass_naive(d, s, -1), "end token"),
        Wrong(lambda d, s, e: tokens_of_pass_naive(d, s, e)[:-1], "own token ends"),
        Wrong(lambda d, s, e: [a for a, b in zip(d, s, strict=False) if a == b], "own token ends"),
        Wrong(lambda d, s, e: list(s), "worthless"),
        Wrong(lambda d, s, e: [t for t in tokens_of_pass_naive(d, s, e) if t != e], "itself"),
        Wrong(lambda d, s, e: iter(tokens_of_pass_naive(d, s, e)), "a list is expected"),
        Wrong(lambda d, s, e: [*tokens_of_pass_naive(d, s, e), s[-1]], "nothing comes after"),
        Wrong(_last_said, "take the model's token there"),
        Wrong(_draft_kept, "take the model's token there"),
    ]

    def cases(self, rng: random.Random):
        """All stand, none does, a later match behind a miss, the end inside and at the end."""
        yield [5, 6, 7], [5, 6, 7, 8], 1
        yield [5, 6, 7], [4, 6, 7, 8], 1
        yield [5, 6, 7], [5, 9, 7, 8], 1
        yield [5, 1, 7], [5, 1, 7, 8], 1
        yield [5, 6, 1], [5, 6, 1, 8], 1
        yield [1], [6, 2], 1
        yield [], [3], 1
        for _ in range(30):
            said = [rng.randrange(4) for _ in range(rng.randrange(1, 7))]
            draft = [t if rng.random() < 0.8 else rng.randrange(4) for t in said[:-1]]
            yield draft, said, 1

    def expected(self, draft, said, eos):
        return tokens_of_pass_naive(draft, said, eos)

    def describe(self, draft, said, eos):
        return f"draft {draft}, the model says {said}, end token {eos}"

    def hint(self, got, draft, said, eos):
        if not hasattr(got, "__len__"):
            return None
        want, got = tokens_of_pass_naive(draft, said, eos), plain(got)
        if want[-1] == eos and got == want[:-1]:
            return "the end token itself belongs to the text: only nothing may follow it"
        if got == tokens_of_pass_naive(draft, said, -1):
            return "nothing follows the end token, even inside a block"
        if got == want[:-1]:
            return "the model's own token ends the pass: it was computed anyway"
        if list(got) == list(said):
            return "what the model says behind a wrong guess is worthless: it read that guess"
        if len(got) < len(want) or got[: len(want)] != want:
            return "stop at the first guess that differs, and take the model's token there"
        return "nothing comes after the first guess that differs, nor after the model's last token"
