"""Arithmetic for the chat domain, with number pairs that training never sees.

A pair {a, b} of two-digit numbers is held out when a hash of it says so: about one in ten, in both
orders, and in every kind of question. A difference that would give a held-out sum away is left out
too, and so are longer numbers that end in a held-out pair. So a right answer to a held-out sum is
worked out, not remembered. Round tens are never held out: sums done step by step need them.
"""

import hashlib
import random
from dataclasses import dataclass

HELD_OUT_PERCENT = 10
LOW, HIGH = 10, 99

ASK_SUM = (
    "What is {a} + {b}?",
    "{a} + {b} = ?",
    "What is {a} plus {b}?",
    "Can you add {a} and {b}?",
    "How much is {a} + {b}?",
    "Please work out {a} + {b}.",
)
ASK_DIFFERENCE = (
    "What is {a} - {b}?",
    "{a} - {b} = ?",
    "What is {a} minus {b}?",
    "How much is {a} - {b}?",
)
STORY_SUMS = (
    ("{p} has {a} {t} and gets {b} more. How many {t} does {p} have now?", "{p} has {c} {t} now."),
    ("There are {a} {t} on one shelf and {b} on the other. How many in all?", "{c} {t} in all."),
    ("{p} packs {a} {t} today and {b} {t} tomorrow. What is the total?", "The total is {c} {t}."),
)
STORY_DIFFERENCES = (
    ("{p} has {a} {t} and gives away {b}. How many are left?", "{c} {t} are left."),
    ("Of {a} {t}, {b} are broken. How many are whole?", "{c} {t} are whole."),
)


@dataclass(frozen=True)
class Sum:
    """A question with the answer in words and the number that makes it right."""

    question: str
    answer: str
    value: int


def is_held_out(a: int, b: int) -> bool:
    """Whether the pair, in either order, is kept out of training. Of longer numbers: their ends."""
    a, b = sorted((a % 100, b % 100))
    if a < LOW or a % 10 == 0 or b % 10 == 0:
        return False
    digest = hashlib.sha256(f"{a}+{b}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def held_out_pairs() -> list[tuple[int, int]]:
    """Every held-out (a, b), both orders."""
    numbers = range(LOW, HIGH + 1)
    return [(a, b) for a in numbers for b in numbers if is_held_out(a, b)]


def training_pair(rng: random.Random, low: int = LOW, high: int = HIGH) -> tuple[int, int]:
    """Two numbers of low..high whose pair is not held out."""
    while True:
        a, b = rng.randint(low, high), rng.randint(low, high)
        if not is_held_out(a, b):
            return a, b


def training_difference(rng: random.Random) -> tuple[int, int]:
    """a >= b such that neither {a, b} nor {b, a - b} is held out."""
    while True:
        b, a = sorted(training_pair(rng))
        if not is_held_out(b, a - b):
            return a, b


def sum_question(a: int, b: int, template: str = ASK_SUM[0]) -> Sum:
    """The plain question on a + b."""
    return Sum(template.format(a=a, b=b), f"{a} + {b} = {a + b}.", a + b)


def random_question(rng: random.Random, person: str, things: str) -> Sum:
    """One question for training."""
    kind = rng.random()
    if kind < 0.40:
        return sum_question(*training_pair(rng), rng.choice(ASK_SUM))
    if kind < 0.58:
        low, high = rng.choice(((1, 99), (10, 999), (100, 999)))
        return sum_question(*training_pair(rng, low, high), rng.choice(ASK_SUM))
    if kind < 0.72:
        return _by_steps(*training_pair(rng))
    if kind < 0.84:
        return _in_words(*training_pair(rng), 1, rng.choice(STORY_SUMS), person, things)
    a, b = training_difference(rng)
    if kind < 0.94:
        return Sum(rng.choice(ASK_DIFFERENCE).format(a=a, b=b), f"{a} - {b} = {a - b}.", a - b)
    return _in_words(a, b, -1, rng.choice(STORY_DIFFERENCES), person, things)


def _in_words(a, b, sign, templates, person, things) -> Sum:
    question, answer = (t.format(a=a, b=b, c=a + sign * b, p=person, t=things) for t in templates)
    return Sum(question, answer, a + sign * b)


def _by_steps(a: int, b: int) -> Sum:
    """Ones, tens, then both together."""
    ones, tens = a % 10 + b % 10, a // 10 * 10 + b // 10 * 10
    steps = f"{a % 10} + {b % 10} is {ones}. {a // 10}0 + {b // 10}0 is {tens}. {tens} + {ones} is"
    return Sum(f"What is {a} + {b}? Step by step, please.", f"{steps} {a + b}.", a + b)
