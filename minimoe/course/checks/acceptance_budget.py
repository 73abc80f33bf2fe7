"""Checks of 06_acceptance_budget: expected tokens, sharing checks, stopping in time, own rules."""

import random

import numpy as np

from minimoe.course.check import Check, Wrong, register
from minimoe.speculative.admission import first_drop_naive, survival

G = 4


def table(rng: random.Random, requests: int, length: int = G) -> list[list[float]]:
    """Confidences as a drafter might give them: mostly sure, sometimes not at all."""
    return [[round(rng.betavariate(3, 1), 3) for _ in range(length)] for _ in range(requests)]


def expected_naive(confidence, checks):
    """One token each, and the survivals of what is checked."""
    total = float(len(confidence))
    for row, count in zip(confidence, checks, strict=True):
        alive = 1.0
        for c in row[:count]:
            alive *= c
            total += alive
    return total


def _no_bonus(confidence, checks):
    return expected_naive(confidence, checks) - len(confidence)


def _sum_of_confidences(confidence, checks):
    rows = zip(confidence, checks, strict=True)
    return len(confidence) + sum(sum(row[:count]) for row, count in rows)


def _all_or_nothing(confidence, checks):
    rows = zip(confidence, checks, strict=True)
    return len(confidence) + sum(count * float(np.prod(row[:count])) for row, count in rows)


@register
class ExpectedTokens(Check):
    """Exercise of 06: tokens that a block of guesses is expected to give."""

    name = "06-expected-tokens"
    wrong = [
        Wrong(_no_bonus, "one token of its own"),
        Wrong(_sum_of_confidences, "all before it"),
        Wrong(_all_or_nothing, "the guesses before a wrong one"),
    ]

    def cases(self, rng: random.Random):
        """Nothing checked, one request, sure and hopeless guesses, and random batches."""
        yield [[0.5, 0.5, 0.5]], [2]
        yield [[0.9, 0.8], [0.5, 0.5]], [2, 1]
        yield [[0.9, 0.9]], [0]
        yield [], []
        yield [[1.0, 1.0, 1.0]], [3]
        yield [[0.0, 1.0, 1.0]], [3]
        for _ in range(15):
            rows = table(rng, rng.randrange(1, 6))
            yield rows, [rng.randrange(G + 1) for _ in rows]

    def expected(self, confidence, checks):
        return expected_naive(confidence, checks)

    def hint(self, got, confidence, checks):
        mistakes = [
            (_no_bonus, "every request gets one token of its own, whatever is accepted"),
            (_sum_of_confidences, "a guess only counts if all before it are accepted: multiply"),
            (_all_or_nothing, "the guesses before a wrong one are kept: add up each survival"),
        ]
        for mistake, says in mistakes:
            if abs(got - mistake(confidence, checks)) < 1e-9:
                return says
        return None


def survivals(confidence):
    """Chance that each guess and all before it are accepted."""
    return survival(np.array(confidence, dtype=float), [len(row) for row in confidence])


def share_naive(confidence, count):
    """Give each check to the likeliest slot that is left; of equals, to the earlier request."""
    checks = [0] * len(confidence)
    alive = [1.0] * len(confidence)
    for _ in range(count):
        chances = [
            alive[r] * row[checks[r]] if checks[r] < len(row) else -1.0
            for r, row in enumerate(confidence)
        ]
        best = max(range(len(chances)), key=lambda r: chances[r])  # the first of equals
        if chances[best] < 0:
            break
        alive[best] = chances[best]
        checks[best] += 1
    return checks


def _by_confidence(confidence, count):
    """Looks at the guess alone, and not at those before it."""
    slots = [(-c, r, j) for r, row in enumerate(confidence) for j, c in enumerate(row)]
    checks = [0] * len(confidence)
    for _, r, _ in sorted(slots)[:count]:
        checks[r] += 1
    return checks


def _evenly(confidence, count):
    checks = [0] * len(confidence)
    while sum(checks) < min(count, sum(map(len, confidence))):
        least = min(
            (r for r, row in enumerate(confidence) if checks[r] < len(row)), key=checks.__getitem__
        )
        checks[least] += 1
    return checks


def _all_of_the_surest(confidence, count):
    checks = [0] * len(confidence)
    for r in sorted(range(len(confidence)), key=lambda r: -confidence[r][0]):
        checks[r] = min(len(confidence[r]), count - sum(checks))
    return checks


@register
class ShareOut(Check):
    """Exercise of 06: share a budget of checks over the batch."""

    name = "06-share-out"
    wrong = [
        Wrong(_by_confidence, "survival"),
        Wrong(_evenly, "not in equal parts"),
        Wrong(_all_of_the_surest, "one check at a time"),
        Wrong(lambda confidence, count: [1] * len(confidence), "in all"),
    ]

    def cases(self, rng: random.Random):
        """None, all, more than there are, ties, a hopeless first guess, and random batches."""
        yield [[0.9, 0.8, 0.7], [0.6, 0.9, 0.9]], 3
        yield [[0.9, 0.9], [0.5, 0.5]], 0
        yield [[0.9, 0.9], [0.5, 0.5]], 4
        yield [[0.9, 0.9], [0.5, 0.5]], 9
        yield [[0.5, 0.5], [0.5, 0.5], [0.25, 1.0]], 3
        yield [[0.25, 1.0, 1.0], [0.5, 0.5, 0.5]], 3
        yield [[0.95]], 1
        for _ in range(20):
            rows = table(rng, rng.randrange(1, 7))
            yield rows, rng.randrange(len(rows) * G + 2)

    def expected(self, confidence, count):
        return share_naive(confidence, count)

    def describe(self, confidence, count):
        return f"confidence {confidence}, {count} checks"

    def hint(self, got, confidence, count):
        most = min(count, sum(map(len, confidence)))
        if sum(got) != most:
            return f"{most} checks in all are expected, these are {sum(got)}"
        if list(got) == _by_confidence(confidence, count):
            return "a slot's worth is its survival, the product of all up to it, not its confidence"
        if list(got) == _evenly(confidence, count):
            return "not in equal parts: each check goes to the slot that survives most likely"
        if list(got) == _all_of_the_surest(confidence, count):
            return "one check at a time: after each, the next slot of that request is less likely"
        return None


def drop_naive(confidence, seconds):
    """The plain rule that the exercise asks for."""
    return first_drop_naive(survivals(confidence), seconds.__getitem__)


def _whole_curve(confidence, seconds):
    """The best number of checks, later slots in view: it peeks."""
    rates = [
        expected_naive(confidence, share_naive(confidence, count)) / seconds[count]
        for count in range(len(seconds))
    ]
    return share_naive(confidence, rates.index(max(rates)))


def _one_too_many(confidence, seconds):
    return share_naive(confidence, sum(drop_naive(confidence, seconds)) + 1)


def _while_tokens_rise(confidence, seconds):
    return share_naive(confidence, len(seconds) - 1)


@register
class StopInTime(Check):
    """Exercise of 06: stop where the next check costs more than it brings."""

    name = "06-stop-in-time"
    wrong = [
        Wrong(_whole_curve, "peeks"),
        Wrong(_one_too_many, "before the first"),
        Wrong(_while_tokens_rise, "per second"),
    ]

    def cases(self, rng: random.Random):
        """Free checks, dear ones, the trap of the paper, stairs, and random costs."""
        yield [[0.9, 0.8]], [1.0, 1.1, 1.2]
        yield [[0.9, 0.8]], [1.0, 5.0, 9.0]
        yield [[0.8, 0.9]], [1.0, 2.0, 1 / 0.45]
        yield [[0.9, 0.9], [0.4, 0.9]], [1.0, 1.0, 1.0, 1.0, 1.0]
        yield [[0.5, 0.5], [0.9, 0.9]], [1.0, 1.0, 1.4, 1.4, 1.4]
        for _ in range(25):
            rows = table(rng, rng.randrange(1, 5))
            step = rng.choice([0.02, 0.1, 0.2])
            seconds = [1.0]
            for _ in range(len(rows) * G):
                seconds.append(round(seconds[-1] + step * rng.random() * 2, 4))
            yield rows, seconds

    def expected(self, confidence, seconds):
        return drop_naive(confidence, seconds)

    def describe(self, confidence, seconds):
        return f"confidence {confidence}, seconds {seconds}"

    def hint(self, got, confidence, seconds):
        want = self.expected(confidence, seconds)
        got = list(got)
        if got == _whole_curve(confidence, seconds) != want:
            return "it looked past the first drop, at slots whose survival tells a token: it peeks"
        if got == _one_too_many(confidence, seconds) != want:
            return "stop before the first slot that does not raise tokens per second"
        if sum(got) > sum(want):
            return "a check must raise expected tokens per second, not only expected tokens"
        return None


def problem(rule, confidence: np.ndarray, lengths: list[int]) -> str | None:
    """What is wrong with what a rule of one's own gives for one batch, or None."""
    checks = [int(count) for count in rule(confidence.copy(), list(lengths), 0)]
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


@register
class OwnRule(Check):
    """Exercise of 06: a rule of your own, run in the real engine."""

    name = "06-own-rule"
    wrong = [
        Wrong(_last_one, "it peeks"),
        Wrong(_beyond, "are possible"),
        Wrong(lambda confidence, lengths, plain_tokens: [1], "one for each"),
        Wrong(lambda confidence, lengths, plain_tokens: list(lengths), "the unsure"),
    ]

    def cases(self, rng: random.Random):
        """Sure and unsure requests side by side, short drafts, and random batches."""
        yield np.array([[0.99] * G, [0.03] * G]), [G, G]
        yield np.array([[0.9] * G, [0.8] * G, [0.5] * G]), [G, 2, 0]
        for _ in range(15):
            rows = np.array(table(rng, rng.randrange(1, 5)))
            yield rows, [rng.randrange(G + 1) for _ in rows]

    def expected(self, confidence, lengths):
        return KEPT

    def call(self, answer, confidence, lengths):
        """What the rule does wrong, in words."""
        found = problem(answer, confidence, lengths)
        if found is None and confidence[0, 0] == 0.99:
            sure, unsure = answer(confidence.copy(), list(lengths), 0)
            if not sure > unsure:
                return "the sure request should get more checks than the unsure one"
        return found or KEPT

    def describe(self, confidence, lengths):
        return f"confidence {confidence.tolist()}, drafted {lengths}"

    def hint(self, got, confidence, lengths):
        return got
