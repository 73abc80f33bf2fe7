"""Exercise 5 of 05: guesses of one's own, by as many tokens as agree."""

import random
from functools import partial

from minimoe.course.check import Check, Wrong, register
from minimoe.course.own_drafter import MOST, Pass, fault, passes, three_or_none
from minimoe.speculative.prompt_lookup import find_naive

ENOUGH = 1.1  # times the passes of the longest match
FINE = "fine"


def longest_match(tokens: list[int], longest: int = 4) -> list[int]:
    """What followed the latest place where most of the last tokens stood."""
    return find_naive(tokens, MOST, 1, longest)


def judge(guess, text: list[int], start: int) -> str:
    """FINE, or what is wrong with the guesses."""
    wrong = []

    def watched(tokens):
        ids = guess(list(tokens))
        refused = fault(ids)
        wrong.extend([refused] if refused else [])
        return [] if refused else ids

    mine = passes(watched, text, start)
    if wrong:
        return wrong[0]
    best = passes(longest_match, text, start)
    if len(mine) <= ENOUGH * len(best):
        return FINE
    count = f"{len(mine)} passes for {len(text) - start} tokens, where {len(best)} can do"
    return f"{count}: {_advice(mine, text)}"


def _advice(mine: list[Pass], text: list[int]) -> str:
    made = [one for one in mine if one.guess]
    if not made:
        return "nothing was guessed"
    most = max(len(one.guess) for one in made)
    if most < MOST:
        last = "first" if most == 1 else f"first {most}"
        return f"one pass checks up to {MOST} guesses, so go on after the {last}"
    if sum(one.guess[0] == text[one.place - 1] for one in made) > len(made) / 2:
        return "a guess begins after the newest token, and yours begin with it"
    if 10 * sum(one.guess[0] == text[one.place] for one in made) < len(made):
        return (
            "hardly a guess is right: find an earlier place that reads like the end of the text, "
            "and guess what came after it"
        )
    missed = [one.place for one in mine if not one.guess and longest_match(text[: one.place])]
    if 10 * len(missed) > len(mine):
        return (
            f"{len(missed)} times nothing was guessed though the newest token had stood before: "
            "where a long match is not found, try a shorter one"
        )
    return (
        "what followed the latest place where *most* of the last tokens stood is right more "
        "often: long matches first"
    )


def _single(tokens):
    return longest_match(tokens)[:1]


def _with_newest(tokens):
    return [tokens[-1], *longest_match(tokens)][:MOST]


def _shortest_first(tokens):
    return next((ids for n in (1, 2, 3) if (ids := find_naive(tokens, MOST, n, n))), [])


def _earliest(tokens):
    for n in (4, 3, 2, 1):
        for end in range(n, len(tokens)):
            if tokens[end - n : end] == tokens[-n:]:
                return tokens[end : end + MOST]
    return []


def _endless(tokens):
    return find_naive(tokens, 9, 1, 4)


@register
class OwnGuess(Check):
    """Guesses over texts that are known, counted in passes."""

    name = "05-own-guess"
    wrong = [
        Wrong(lambda tokens: [], "nothing was guessed"),
        Wrong(_single, "go on after the first"),
        Wrong(lambda tokens: longest_match(tokens)[:2], "go on after the first 2"),
        Wrong(lambda tokens: tokens[-MOST:], "hardly a guess is right"),
        Wrong(_with_newest, "begin with it"),
        Wrong(three_or_none, "try a shorter one"),
        Wrong(lambda tokens: find_naive(tokens, MOST, 2, 4), "try a shorter one"),
        Wrong(_shortest_first, "long matches first"),
        Wrong(_earliest, "long matches first"),
        Wrong(_endless, "at most 5 guesses"),
        Wrong(lambda tokens: tokens[-1], "give a list"),
    ]

    def cases(self, rng: random.Random):
        """One line over and over; then phrases that share their words, and change half-way."""
        yield [11, 12, 13, 14, 15, 16, 17] * 5, 10
        for _ in range(6):
            yield _phrases(rng), 40

    def expected(self, text, start):
        return FINE

    def call(self, answer, text, start):
        one = answer(text[:start])
        return one if one is None or one is ... else judge(answer, text, start)

    def describe(self, text, start):
        return f"a text of {len(text)} tokens that begins {text[:9]}"

    def hint(self, got, text, start):
        return got


def _phrases(rng: random.Random, count: int = 60) -> list[int]:
    """Phrases of six words in any order, with a word of their own between some of them. In the
    second half each goes on differently after its third word."""
    text, fresh = [], iter(range(100, 1000))
    words = partial(rng.sample, range(1, 11))
    heads = [words(3) for _ in range(5)]
    for _half in range(2):
        whole = [head + words(3) for head in heads]
        for _ in range(count // 2):
            text += rng.choice(whole)
            text += [next(fresh)] if rng.random() < 0.5 else []
    return text
