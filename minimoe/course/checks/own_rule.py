"""Check of 06_acceptance_budget: a budget rule of one's own."""

import random
from functools import partial
from numbers import Real

import numpy as np

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.expected_tokens import G, table
from minimoe.course.checks.slips import told
from minimoe.course.compare import plain, shown
from minimoe.speculative.admission import survival


def problem(rule, confidence: np.ndarray, lengths: list[int]) -> str | None:
    """What is wrong with what a rule of one's own gives for one batch, or None."""
    given = plain(rule(confidence.copy(), list(lengths), 0))
    if not isinstance(given, list):
        return f"give a list, with a number for each request, not {shown(given)}"
    checks = given
    odd = next((count for count in checks if not isinstance(count, Real)), 0)
    if odd != 0:
        return f"{shown(odd)} is not a number: give checks as whole numbers"
    if any(int(count) != count for count in checks):
        return f"{checks[0]} is not a whole number: give checks as whole numbers"
    checks = [int(count) for count in checks]
    if len(checks) != len(lengths):
        return f"{len(lengths)} requests, {len(checks)} numbers: give one for each"
    for count, length in zip(checks, lengths, strict=True):
        if not 0 <= count <= length:
            return f"{count} checks of {length} drafted guesses: from 0 to {length} are possible"
    return _peeks(rule, confidence, lengths, checks)


def _peeks(rule, confidence, lengths, checks) -> str | None:
    """Other confidences behind a guess must not change whether it is checked: they tell it."""
    for r, length in enumerate(lengths):
        for place in range(length):
            for other in (0.0, 0.5, 1.0):
                changed = confidence.copy()
                changed[r, place + 1 :] = other
                again = [int(count) for count in rule(changed, list(lengths), 0)]
                if (again[r] > place) != (checks[r] > place):
                    return (
                        f"it peeks: whether guess {place + 1} of request {r} is checked changed "
                        "with the confidence of later guesses, which are made from it"
                    )
    return None


KEPT = "keeps to the rules"


def _threshold(confidence, lengths, plain_tokens):
    return np.minimum((survival(confidence, lengths) >= 0.4).sum(1), lengths).tolist()


def _last_one(confidence, lengths, plain_tokens):
    """Checks all or none, by how likely the whole draft survives."""
    a = survival(confidence, [confidence.shape[1]] * len(lengths))
    return [n if row[-1] > 0.3 else 0 for row, n in zip(a, lengths, strict=True)]


def _beyond(confidence, lengths, plain_tokens):
    return (survival(confidence, [confidence.shape[1]] * len(lengths)) > 0.01).sum(1).tolist()


def _expected_number(confidence, lengths, plain_tokens):
    """As many checks as guesses are expected to stay: no whole number."""
    return [float(sum(row[:n])) for row, n in zip(confidence, lengths, strict=True)]


def _most_at_once(confidence, lengths, plain_tokens):
    """The place up to which product times number is largest: later guesses decide, too."""
    return [
        max(range(n + 1), key=lambda k, row=row: k * float(np.prod(row[:k])))
        for row, n in zip(confidence, lengths, strict=True)
    ]


def _truth_of_a_row(confidence, lengths, plain_tokens):
    return [min(2, n) if row else 0 for row, n in zip(confidence, lengths, strict=True)]


def _first_unsure(confidence, lengths, plain_tokens):
    rows = zip(confidence, lengths, strict=True)
    return [next(k for k in range(n) if row[k] < 0.5) for row, n in rows]


ERRORS = {
    (ValueError, "truth value"): "a row is an array, neither true nor false: ask for row[0], ...",
    (StopIteration, ""): "`next` found no guess: there may be none below the limit, so give it "
    "a default",
    (IndexError, ""): "a place beyond the guesses was asked for: stop at lengths[r], and before 4",
}


@register
class OwnRule(Check):
    """Exercise of 06: a rule of your own, run in the real engine."""

    name = "06-own-rule"
    wrong = [
        Wrong(_last_one, "it peeks"),
        Wrong(_beyond, "are possible"),
        Wrong(_expected_number, "whole number"),
        Wrong(lambda confidence, lengths, plain_tokens: [1], "one for each"),
        Wrong(lambda *args: sum(_threshold(*args)), "give a list"),
        Wrong(lambda *args: dict(enumerate(_threshold(*args))), "give a list"),
        Wrong(lambda *args: [n or None for n in _threshold(*args)], "None is not a number"),
        Wrong(lambda *args: [[n] for n in _threshold(*args)], "is not a number"),
        Wrong(lambda *args: [str(n) for n in _threshold(*args)], "is not a number"),
        Wrong(_most_at_once, "it peeks"),
        Wrong(_truth_of_a_row, "a row is an array"),
        Wrong(_first_unsure, "none below the limit"),
        Wrong(lambda confidence, lengths, plain_tokens: list(lengths), "the unsure"),
    ]

    def cases(self, rng: random.Random):
        """Sure and unsure requests side by side, short drafts, and random batches."""
        yield np.array([[0.99] * G, [0.03] * G]), [G, G]
        yield np.array([[0.9] * G, [0.8] * G, [0.5] * G]), [G, 2, 0]
        yield np.array([[0.6, 0.45, 0.9, 0.9]]), [G]
        for _ in range(15):
            rows = np.array(table(rng, rng.randrange(1, 5)))
            yield rows, [rng.randrange(G + 1) for _ in rows]

    def expected(self, confidence, lengths):
        return KEPT

    def call(self, answer, confidence, lengths):
        """What the rule does wrong, in words."""
        found = told(partial(problem, answer), ERRORS, confidence, lengths)
        if found is None and confidence[0, 0] == 0.99:
            sure, unsure = answer(confidence.copy(), list(lengths), 0)
            if not sure > unsure:
                return "the sure request should get more checks than the unsure one"
        return found or KEPT

    def describe(self, confidence, lengths):
        return f"confidence {confidence.tolist()}, drafted {lengths}"

    def hint(self, got, confidence, lengths):
        return got
