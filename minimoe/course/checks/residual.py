"""Exercise 3 of 05: what stays, and what is due."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, told


def residual_naive(p, q):
    """max(p - q, 0), rescaled to 1."""
    left = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
    total = sum(left)
    return [value / total for value in left]


def _kept(p, q) -> float:
    return sum(min(a, b) for a, b in zip(p, q, strict=True))


def _divided(p, q):
    return sum(b * min(1, a / b) for a, b in zip(p, q, strict=True)), residual_naive(p, q)


def _due(change):
    """Scaled to sum to 1: change(p, q) of each token."""

    def due(p, q):
        left = [change(a, b) for a, b in zip(p, q, strict=True)]
        return [value / sum(left) for value in left]

    return due


def _chances(change):
    return lambda p, q: sum(change(a, b) for a, b in zip(p, q, strict=True))


def _left(p, q):
    """Part of p that is due: 1 less the chance that a guess stays."""
    return 1 - _kept(p, q)


CHANCES = {
    _chances(lambda a, b: a * b): "that is how often two separate draws agree by chance",
    lambda p, q: 1 - _kept(p, q): "the chance that a guess stays, not that it goes",
    lambda p, q: 1 - _chances(lambda a, b: abs(a - b))(p, q): "1 less *half* the distance: what q "
    "has too much, p has elsewhere",
    _chances(
        lambda a, b: min(1, a / b)
    ): "a guess of x is drawn with q(x): weigh min(1, p / q) by it",
    lambda p, q: _chances(lambda a, b: min(1, a / b))(p, q) / len(p): "a guess of x is drawn with "
    "q(x): weigh min(1, p / q) by it",
    _chances(lambda a, b: a * min(1, a / b)): "a guess of x is drawn with q(x), not with p(x)",
    _chances(max): "the smaller of the two, for each token",
    lambda p, q: [min(a, b) for a, b in zip(p, q, strict=True)]: "one chance: add up the tokens'",
}
CUT = "what q gives too often is not due: no less than 0"
RESIDUALS = {
    lambda p, q: list(p): "drafts that stay have already given each token min(p, q): only the rest "
    "is due",
    lambda p, q: [a / _left(p, q) for a in p]: "subtract min(p, q) first: only the rest is due",
    _due(lambda a, b: a if a > b else 0): "of a token only the part above q is due",
    _due(lambda a, b: max(b - a, 0)): "upside down: tokens that the draft gives too seldom are due",
    _due(lambda a, b: abs(a - b)): CUT,
    lambda p, q: [(a - b) / _left(p, q) for a, b in zip(p, q, strict=True)]: CUT,
    lambda p, q: [a - b for a, b in zip(p, q, strict=True)]: CUT,
    _due(min): "that is what stays: due is what p has more than q",
    lambda p, q: [max(a - b, 0) for a, b in zip(p, q, strict=True)]: "the residual must sum to 1",
}
NO_DIVISION = {(ZeroDivisionError, ""): "q(x) may be 0: q min(1, p / q) is min(p, q), undivided"}


@register
class Residual(Check):
    """Exercise 3 of 05: chance that a draft stays, and where its replacement comes from."""

    name = "05-chance-and-residual"
    wrong = [
        *(
            Wrong(lambda p, q, chance=chance: (chance(p, q), residual_naive(p, q)), says)
            for chance, says in CHANCES.items()
        ),
        *(
            Wrong(lambda p, q, due=due: (_kept(p, q), due(p, q)), says)
            for due, says in RESIDUALS.items()
        ),
        Wrong(_divided, "q(x) may be 0"),
        Wrong(lambda p, q: (residual_naive(p, q), _kept(p, q)), "the chance first"),
        Wrong(_kept, "a pair"),
    ]

    def cases(self, rng: random.Random):
        """The notebook's pair, a sure draft that is wrong, one token that q never draws."""
        yield [0.1, 0.2, 0.45, 0.25], [0.4, 0.3, 0.2, 0.1]  # tells all known slips apart
        yield [0.2, 0.3, 0.5], [0.5, 0.3, 0.2]
        yield [0.0, 1.0], [1.0, 0.0]
        yield [0.5, 0.25, 0.25], [0.5, 0.5, 0.0]
        for _ in range(20):
            size = rng.randrange(2, 7)
            yield _distribution(rng, size), _distribution(rng, size)

    def expected(self, p, q):
        return _kept(p, q), residual_naive(p, q)

    def call(self, answer, p, q):
        return told(answer, NO_DIVISION, p, q)

    def hint(self, got, p, q):
        if isinstance(got, str):
            return got
        if not isinstance(got, tuple | list) or len(got) != 2:
            return "give a pair: the chance, then the list"
        chance, left = got
        if hasattr(chance, "__len__") and not hasattr(left, "__len__"):
            return "give the chance first, then the list"
        return first_slip(CHANCES, chance, p, q) or first_slip(RESIDUALS, left, p, q)


def _distribution(rng: random.Random, size: int) -> list[float]:
    weights = [rng.random() ** 2 + 1e-3 for _ in range(size)]
    return [weight / sum(weights) for weight in weights]
