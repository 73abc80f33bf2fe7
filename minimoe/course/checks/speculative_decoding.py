"""Checks of 05_speculative_decoding: tokens per pass, keeping drafts, the residual."""

import random

from minimoe.course.check import Check, Wrong, register


def tokens_per_pass_naive(rates):
    """One token for sure; draft k adds one if it and all before it stand."""
    expected = 1.0
    for k in range(1, len(rates) + 1):
        survive = 1.0
        for rate in rates[:k]:
            survive *= rate
        expected += survive
    return expected


@register
class TokensPerPass(Check):
    """Exercise 1 of 05: expected tokens of a pass from the acceptance by position."""

    name = "05-tokens-per-pass"
    wrong = [
        Wrong(lambda rates: 1 + sum(rates), "all before it"),
        Wrong(lambda rates: tokens_per_pass_naive(rates) - 1, "one token of its own"),
        Wrong(
            lambda rates: tokens_per_pass_naive([sum(rates) / max(1, len(rates))] * len(rates)),
            "mean",
        ),
    ]

    def cases(self, rng: random.Random):
        """The chart's 3 drafts at 75 %, no drafts, sure ones, one that never stands."""
        yield ([0.75, 0.75, 0.75],)
        yield ([],)
        yield ([1.0, 1.0],)
        yield ([0.9, 0.0, 1.0],)
        for _ in range(20):
            yield ([rng.random() for _ in range(rng.randrange(1, 8))],)

    def expected(self, rates):
        return tokens_per_pass_naive(rates)

    def hint(self, got, rates):
        want = tokens_per_pass_naive(rates)
        if abs(got - (want - 1)) < self.tolerance:
            return "a pass also makes one token of its own, whatever stands"
        if abs(got - 1 - sum(rates)) < self.tolerance:
            return "a draft counts only if all before it stand too: multiply"
        mean = sum(rates) / max(1, len(rates))
        if abs(got - tokens_per_pass_naive([mean] * len(rates))) < self.tolerance:
            return "the mean rate hides which position is weak: use each position's own"
        return None


def tokens_of_pass_naive(draft, said, eos):
    """Drafts up to the first that differs, then the model's token; nothing behind an end token."""
    made = []
    for guess, own in zip(draft, said, strict=False):
        made.append(own)
        if own == eos or guess != own:
            return made
    return [*made, said[len(draft)]]


@register
class TokensOfPass(Check):
    """Exercise 2 of 05: what a greedy pass adds to the text."""

    name = "05-tokens-of-pass"
    wrong = [
        Wrong(lambda d, s, e: tokens_of_pass_naive(d, s, -1), "end token"),
        Wrong(lambda d, s, e: tokens_of_pass_naive(d, s, e)[:-1], "own token ends"),
        Wrong(lambda d, s, e: [a for a, b in zip(d, s, strict=False) if a == b], "own token ends"),
        Wrong(lambda d, s, e: list(s), "worthless"),
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
        want = tokens_of_pass_naive(draft, said, eos)
        if got == tokens_of_pass_naive(draft, said, -1):
            return "nothing follows the end token, even inside a block"
        if got == want[:-1]:
            return "the model's own token ends the pass: it was computed anyway"
        if list(got) == list(said):
            return "what the model says behind a wrong guess is worthless: it read that guess"
        if len(got) < len(want) or got[: len(want)] != want:
            return "stop at the first guess that differs, and take the model's token there"
        return None


def residual_naive(p, q):
    """max(p - q, 0), rescaled to 1."""
    left = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
    total = sum(left)
    return [value / total for value in left]


@register
class Residual(Check):
    """Exercise 3 of 05: chance that a draft stays, and where its replacement comes from."""

    name = "05-chance-and-residual"
    wrong = [
        Wrong(lambda p, q: (_kept(p, q), list(p)), "already"),
        Wrong(
            lambda p, q: (_kept(p, q), [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]),
            "sum to 1",
        ),
        Wrong(lambda p, q: (_kept(p, q), residual_naive(q, p)), "upside down"),
        Wrong(
            lambda p, q: (sum(a * b for a, b in zip(p, q, strict=True)), residual_naive(p, q)),
            "by chance",
        ),
    ]

    def cases(self, rng: random.Random):
        """The notebook's pair, a sure draft that is wrong, one token that q never draws."""
        yield [0.2, 0.3, 0.5], [0.5, 0.3, 0.2]
        yield [0.0, 1.0], [1.0, 0.0]
        yield [0.5, 0.25, 0.25], [0.5, 0.5, 0.0]
        for _ in range(20):
            size = rng.randrange(2, 7)
            yield _distribution(rng, size), _distribution(rng, size)

    def expected(self, p, q):
        return _kept(p, q), residual_naive(p, q)

    def hint(self, got, p, q):
        if not isinstance(got, tuple | list) or len(got) != 2:
            return "give a pair: the chance, then the list"
        chance, left = got
        agree = sum(a * b for a, b in zip(p, q, strict=True))
        if abs(chance - agree) < self.tolerance and abs(agree - _kept(p, q)) > self.tolerance:
            return "that is how often two separate draws agree by chance"
        if _same(left, p) and not _same(p, residual_naive(p, q)):
            return "drafts that stay have already given each token min(p, q): only the rest is due"
        if _same(left, residual_naive(q, p)):
            return "upside down: tokens that the draft gives too seldom are due"
        if _same(left, [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]):
            return "the residual must sum to 1"
        return None


def _kept(p, q) -> float:
    return sum(min(a, b) for a, b in zip(p, q, strict=True))


def _same(a, b) -> bool:
    return len(a) == len(b) and all(abs(x - y) < 1e-6 for x, y in zip(a, b, strict=True))


def _distribution(rng: random.Random, size: int) -> list[float]:
    weights = [rng.random() ** 2 + 1e-3 for _ in range(size)]
    return [weight / sum(weights) for weight in weights]
