"""Exercises 1 and 3 of 07: count a hit, add up a conversation."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.conversation import computed_with_reuse, prompt_lengths


def cached_naive(length: int, shared: int, block: int) -> int:
    """Tokens found: whole blocks of the shared part, and at least one token left to compute."""
    return min(shared, length - 1) // block * block


@register
class CachedTokens(Check):
    """Exercise of 07: how many tokens of a prompt a prefix hit saves."""

    name = "07-cached-tokens"
    wrong = [
        Wrong(lambda length, shared, block: shared, "whole blocks"),
        Wrong(lambda length, shared, block: shared // block * block, "nothing left to compute"),
        Wrong(
            lambda length, shared, block: (shared - 1) // block * block, "not off the shared part"
        ),
        Wrong(
            lambda length, shared, block: max(0, shared - 1) // block * block,
            "not off the shared part",
        ),
        Wrong(lambda length, shared, block: min(shared, length - 1), "whole blocks"),
        Wrong(lambda length, shared, block: min(shared, length - 1) // 16 * 16, "always 16"),
        Wrong(lambda length, shared, block: (length - 1) // block * block, "was not computed"),
        Wrong(lambda length, shared, block: min(shared, length - 1) // block, "tokens, not blocks"),
        Wrong(lambda length, *args: length - cached_naive(length, *args), "left to compute"),
        Wrong(
            lambda *args: cached_naive(*args) - (args[2] if args[0] == args[1] else 0), "more is"
        ),
        Wrong(lambda length, shared, block: -(-shared // block) * block, "was not computed"),
        Wrong(
            lambda length, shared, block: min(shared, length - 1) / block * block, "whole blocks"
        ),
    ]

    def cases(self, rng: random.Random):
        """Whole blocks, one token more or less, and prompts that are shared entirely."""
        yield 40, 0, 16
        yield 40, 15, 16
        yield 40, 16, 16
        yield 40, 33, 16
        yield 64, 64, 16
        yield 49, 49, 16
        yield 1, 1, 16
        for _ in range(40):
            block = rng.choice([1, 4, 16, 64])
            length = rng.randrange(1, 6 * block + 2)
            yield length, rng.choice([length, rng.randrange(length + 1)]), block

    def expected(self, length, shared, block):
        return cached_naive(length, shared, block)

    def describe(self, length, shared, block):
        return f"a prompt of {length} tokens, {shared} of them seen before, blocks of {block}"

    def hint(self, got, length, shared, block):
        if got == length - cached_naive(length, shared, block):
            return "that is what is left to compute: give what is found"
        if got == length:
            return "there is nothing left to compute, so no next token: one must remain"
        if got in (_one_off(shared, block), max(0, _one_off(shared, block))):
            return "the token that is left to compute comes off the length, not off the shared part"
        if got == cached_naive(length, shared, 16):
            return f"blocks are not always 16 tokens: here they have {block}"
        if got * block == self.expected(length, shared, block):
            return "count tokens, not blocks"
        if got % block:
            return "only whole blocks are found"
        if got > shared:
            return "what was not computed before cannot be found"
        return "more is found: no more than one token must be left to compute"


def _one_off(shared: int, block: int) -> int:
    return (shared - 1) // block * block


def conversation_naive(turns, system, question, answer, held=lambda length, answer: length):
    """Prompt tokens computed, where `held(length, answer)` tokens are found after each turn."""
    total, found = 0, 0
    for length in prompt_lengths(turns, system, question, answer):
        total += length - found
        found = held(length, answer)
    return total


def _answers_forgotten(turns, system, question, answer):
    """Prompts that leave out the answers, with the cache as it is after each."""
    prompts = [system + n * question for n in range(1, turns + 1)]
    found = [0] + [min(p + answer - 1, p) // 16 * 16 for p in prompts[:-1]]
    return sum(prompts) - sum(found)


def _longer_hits_forgotten(turns, system, question, answer):
    """The same, where what is found may reach beyond the old prompt."""
    prompts = [system + n * question for n in range(1, turns + 1)]
    pairs = zip(prompts, prompts[1:], strict=False)
    return sum(prompts) - sum(min(old + answer - 1, new - 1) // 16 * 16 for old, new in pairs)


def _answers_only_found(turns, system, question, answer):
    """Prompts without the answers, which the cache does hold: hits may be longer than prompts."""
    prompts = [system + n * question for n in range(1, turns + 1)]
    held = [0] + [system + n * question + n * answer - 1 for n in range(1, turns)]
    return sum(prompts) - sum(one // 16 * 16 for one in held)


def _system_cached(lengths_of_system):
    """Right, but for a system prompt taken as found in the first turn already."""
    return lambda turns, system, question, answer: (
        sum(computed_with_reuse(turns, system, question, answer)) - lengths_of_system(system)
    )


def _system_in_each(turns, system, question, answer):
    right = sum(computed_with_reuse(turns, system, question, answer))
    return right + (turns - 1) * system


def _found_instead(*args):
    return sum(prompt_lengths(*args)) - sum(computed_with_reuse(*args))


def _one_turn_more(turns, *args):
    return sum(computed_with_reuse(turns + 1, *args))


SUMS = {  # other sums that look right -> what is wrong with them
    _answers_forgotten: "the next prompt holds the answers too",
    _longer_hits_forgotten: "the next prompt holds the answers too",
    _answers_only_found: "the next prompt holds the answers too",
    _system_cached(lambda system: system): "in the first turn nothing is cached, not even the "
    "system prompt",
    _system_cached(lambda system: system // 16 * 16): "in the first turn nothing is cached, not "
    "even the system prompt",
    _system_in_each: "the system prompt is in the cache from the second turn on",
    _found_instead: "that is what is found: count what is computed",
    _one_turn_more: "that is one turn too many",
}
HELD = {  # what a turn is taken to leave in the cache -> what is wrong with that
    lambda length, answer: 0: "that is without reuse: the sum of all prompts",
    lambda length, answer: length // 16 * 16: "the answer is in the cache too, but for one token",
    lambda length, answer: (length + answer) // 16 * 16: "the last token of an answer was never "
    "run: it is not in the cache",
    lambda length, answer: length + answer - 1: "only full blocks are found: mind the block edges",
    lambda length, answer: length + answer: "only full blocks are found, and the last token of an "
    "answer was never run",
}


@register
class ConversationTokens(Check):
    """Exercise of 07: tokens computed over a conversation, with and without reuse."""

    name = "07-conversation"
    wrong = [
        *(
            Wrong(lambda *args, held=held: conversation_naive(*args, held), says)
            for held, says in HELD.items()
        ),
        *(Wrong(answer, says) for answer, says in SUMS.items()),
        Wrong(lambda t, s, u, a: s + t * u + (t - 1) * a, "block edges"),
        Wrong(lambda *args: computed_with_reuse(*args)[-1], "all turns"),
        Wrong(lambda t, s, u, a: s + t * u, "the last token of an answer"),
        Wrong(lambda t, s, u, a: sum(computed_with_reuse(t, s, u, a)) + t * a, "prompt tokens"),
        Wrong(lambda t, s, u, a: sum(computed_with_reuse(t, s, u, a)) + t * a - t, "prompt tokens"),
    ]

    def cases(self, rng: random.Random):
        """From one turn to many, lengths around whole blocks.

        In the second case every mistake that has a hint gives another number.
        """
        yield 1, 0, 16, 16
        yield 3, 40, 19, 65
        yield 2, 0, 16, 17
        yield 2, 0, 16, 16
        yield 3, 32, 10, 20
        for _ in range(40):
            turns, system = rng.randrange(1, 12), rng.choice([0, 16, 100])
            yield turns, system, rng.randrange(1, 60), rng.randrange(1, 80)

    def expected(self, *args):
        return sum(computed_with_reuse(*args))

    def describe(self, turns, system, question, answer):
        return f"{turns} turns, system prompt {system}, questions {question}, answers {answer}"

    def hint(self, got, turns, system, question, answer):
        args = (turns, system, question, answer)
        for held, says in HELD.items():
            if turns > 1 and got == conversation_naive(*args, held):
                return says
        for sums, says in SUMS.items():
            if got == sums(*args):
                return says
        if got - self.expected(*args) in (turns * answer, turns * (answer - 1)):
            return "count prompt tokens only: answers are made token by token with any cache"
        if turns > 1 and got == computed_with_reuse(*args)[-1]:
            return "that is the last turn: add up all turns"
        if turns > 1 and got == prompt_lengths(*args)[-1]:
            return (
                "that is every token of the last prompt once; but answers are in the cache when "
                "they have been made, and a partial block is computed again: mind the block edges"
            )
        return None
