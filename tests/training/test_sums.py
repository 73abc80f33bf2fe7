"""Arithmetic is right, and held-out pairs never reach training."""

import random
import re
from itertools import islice

from minimoe.training import chat, sums

PAIR = re.compile(r"(\d+) (?:\+|-|plus|minus|and) (\d+)")


def test_held_out_pairs():
    pairs = set(sums.held_out_pairs())
    assert {(b, a) for a, b in pairs} == pairs
    assert 0.08 < len(pairs) / 81**2 < 0.12
    a, b = min(pairs)
    assert sums.is_held_out(a + 300, b) and not sums.is_held_out(a - a % 10, b)
    assert not any(sums.is_held_out(n, 12) for n in range(10))


def test_questions_are_right_and_of_training_pairs():
    rng = random.Random(0)
    for _ in range(3000):
        q = sums.random_question(rng, "Ada", "stones")
        a, b = (int(n) for n in re.findall(r"\d+", q.question))
        assert not sums.is_held_out(a, b)
        assert q.value in (a + b, a - b)
        assert str(q.value) in re.findall(r"\d+", q.answer)


def test_a_difference_gives_no_held_out_sum_away():
    rng = random.Random(1)
    for _ in range(500):
        a, b = sums.training_difference(rng)
        assert a >= b and not sums.is_held_out(a, b) and not sums.is_held_out(b, a - b)


def test_steps_add_up_and_are_never_held_out():
    rng = random.Random(2)
    for _ in range(200):
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        answer = sums._by_steps(a, b).answer
        for x, y, z in re.findall(r"(\d+) \+ (\d+) is (\d+)", answer):
            assert int(x) + int(y) == int(z)
            assert not sums.is_held_out(int(x), int(y))
        assert answer.endswith(f" {a + b}.")


def test_no_held_out_pair_in_the_chats():
    for text in islice(chat.documents(random.Random("chat train 0")), 3000):
        for a, b in PAIR.findall(text):
            assert not sums.is_held_out(int(a), int(b)), (a, b)
