"""Checks of 07_kv_reuse: count a hit, name blocks so that hits are right, add up a conversation."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.conversation import common_prefix, computed_with_reuse, prompt_lengths


def cached_naive(length: int, shared: int, block: int) -> int:
    """Tokens found: whole blocks of the shared part, and at least one token left to compute."""
    return min(shared, length - 1) // block * block


@register
class CachedTokens(Check):
    name = "07-cached-tokens"
    wrong = [
        Wrong(lambda length, shared, block: shared, "whole blocks"),
        Wrong(lambda length, shared, block: shared // block * block, "nothing left to compute"),
        Wrong(lambda length, shared, block: (shared - 1) // block * block, "last block too"),
        Wrong(lambda length, shared, block: min(shared, length - 1) // block, "tokens, not blocks"),
    ]

    def cases(self, rng: random.Random):
        """Whole blocks, one token more or less, and prompts that are shared entirely."""
        yield 40, 0, 16
        yield 40, 15, 16
        yield 40, 16, 16
        yield 40, 33, 16
        yield 48, 48, 16
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
        if got == length:
            return "there is nothing left to compute, so no next token: one must remain"
        if got < self.expected(length, shared, block):
            return self._too_few(got, length, shared, block)
        return "only whole blocks are found" if got % block else None

    def _too_few(self, got, length, shared, block):
        if got * block == self.expected(length, shared, block):
            return "count tokens, not blocks"
        return "the last block too can be found, if a token after it remains to compute"


def chain_naive(tokens: list[int], salt: str, block: int) -> list:
    """The oracle: a key is the whole prefix itself, with the salt."""
    ends = range(block, len(tokens) + 1, block)
    return [(salt, tuple(tokens[:end])) for end in ends]


def _own_tokens_only(tokens, salt, block):
    return [(salt, tuple(tokens[e - block : e])) for e in range(block, len(tokens) + 1, block)]


def _without_salt(tokens, salt, block):
    return [key[1] for key in chain_naive(tokens, salt, block)]


def _partial_too(tokens, salt, block):
    ends = range(block, len(tokens) + block, block)
    return [(salt, tuple(tokens[:end])) for end in ends]


def _joined_as_text(tokens, salt, block):
    return [salt + "".join(map(str, prefix)) for _, prefix in chain_naive(tokens, salt, block)]


def _numbered(tokens, salt, block):
    return [(salt, i) for i in range(len(tokens) // block)]


@register
class BlockKeys(Check):
    """Which keys are chosen does not matter: those of two prompts must agree where they should."""

    name = "07-block-keys"
    wrong = [
        Wrong(_own_tokens_only, "prefix"),
        Wrong(_without_salt, "salt"),
        Wrong(_partial_too, "full blocks"),
        Wrong(_joined_as_text, "run together"),
        Wrong(_numbered, "tokens"),
    ]

    def cases(self, rng: random.Random):
        """Pairs of prompts: equal, equal at the head, equal later on, and of another tenant."""
        head, tail = [5, 6, 7, 8], [9, 1, 2, 3]
        yield head + tail, "", head + tail, "", 4
        yield head + tail, "", head + [0] * 4, "", 4
        yield [0] * 4 + tail, "", head + tail, "", 4
        yield head, "a", head, "b", 4
        yield head + [1], "", head + [1], "", 4
        yield [1, 23], "", [12, 3], "", 2
        yield [1, 2], "1", [11, 2], "", 2
        for _ in range(30):
            block = rng.choice([1, 2, 4])
            one = rng.choices(range(12), k=rng.randrange(5 * block))
            cut = rng.randrange(len(one) + 1)
            two = rng.choice([one, one[:cut] + rng.choices(range(12), k=3 * block)])
            yield one, rng.choice(["", "a"]), two, rng.choice(["", "a"]), block

    def expected(self, one, salt, two, other, block):
        return self.call(chain_naive, one, salt, two, other, block)

    def call(self, answer, one, salt, two, other, block):
        """Keys of each prompt, and how many places hold equal keys."""
        a, b = answer(one, salt, block), answer(two, other, block)
        equal = [i for i, pair in enumerate(zip(a, b, strict=False)) if pair[0] == pair[1]]
        return {"keys": [len(a), len(b)], "equal at": equal}

    def describe(self, one, salt, two, other, block):
        return f"tokens {one} salt {salt!r}, and tokens {two} salt {other!r}, blocks of {block}"

    def hint(self, got, one, salt, two, other, block):
        want = self.expected(one, salt, two, other, block)
        if got["keys"] != want["keys"]:
            return "only full blocks have a key"
        if salt != other and got["equal at"]:
            return "another salt must give other keys, however it is written"
        if "".join(map(str, one)) == "".join(map(str, two)) and one != two:
            return "tokens 1, 23 and 12, 3 are run together: keep them apart"
        if one[-block:] == two[-block:] and len(one) == len(two):
            return "a block's key must depend on the whole prefix before it"
        return "the key must depend on the block's tokens and on all before them"


@register
class ConversationTokens(Check):
    name = "07-conversation"
    wrong = [
        Wrong(lambda *args: sum(prompt_lengths(*args)), "that is without reuse"),
        Wrong(lambda t, s, u, a: s + t * u + (t - 1) * a, "block edges"),
        Wrong(lambda *args: computed_with_reuse(*args)[-1], "all turns"),
        Wrong(lambda t, s, u, a: s + t * u, "too small"),
    ]

    def cases(self, rng: random.Random):
        """From one turn to many, lengths around whole blocks."""
        yield 1, 0, 16, 16
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
        lengths = prompt_lengths(turns, system, question, answer)
        if turns > 1 and got == sum(lengths):
            return "that is without reuse: the sum of all prompts"
        if turns > 1 and got == computed_with_reuse(turns, system, question, answer)[-1]:
            return "that is the last turn: add up all turns"
        if got == lengths[-1]:
            return "mind the block edges: a partial block is computed again in the next turn"
        return None


def hits_by_hand(old: list[int], new: list[int], block: int = 16) -> int:
    """Tokens of `new` found after `old` was computed, by comparing them one by one."""
    return min(common_prefix(old, new), len(new) - 1) // block * block
