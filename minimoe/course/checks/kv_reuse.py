"""Checks of 07_kv_reuse: count a hit, name blocks so that hits are right, add up a conversation."""

import hashlib
import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.compare import shown
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
        return None


def _one_off(shared: int, block: int) -> int:
    return (shared - 1) // block * block


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


def _one_block_back(tokens, salt, block):
    ends = range(block, len(tokens) + 1, block)
    return [(salt, tuple(tokens[max(0, end - 2 * block) : end])) for end in ends]


def _first_and_own(tokens, salt, block):
    ends = range(block, len(tokens) + 1, block)
    return [(salt, end, tuple(tokens[:block]), tuple(tokens[end - block : end])) for end in ends]


def _through(change):
    """Keys made of the prefix after a change that loses something."""
    return lambda tokens, salt, block: [
        (salt, change(prefix)) for _, prefix in chain_naive(tokens, salt, block)
    ]


def _short_hash(prefix):
    return hashlib.sha256(repr(prefix).encode()).digest()[:1]


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
        Wrong(_one_block_back, "all blocks before"),
        Wrong(_first_and_own, "all blocks before"),
        Wrong(_through(frozenset), "another order"),
        Wrong(_through(lambda prefix: tuple(sorted(prefix))), "another order"),
        Wrong(_through(lambda prefix: tuple(x % 256 for x in prefix)), "beyond 255"),
        Wrong(_through(bytes), "range(0, 256)"),
        Wrong(_through(_short_hash), "too short"),
        Wrong(_through(lambda prefix: object()), "must have equal keys"),
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
        yield [1, 2], "", [2, 1], "", 2
        yield [1, 2, 5, 6, 7, 8], "", [9, 9, 5, 6, 7, 8], "", 2
        yield [1, 2, 3, 4, 7, 8], "", [1, 2, 9, 9, 7, 8], "", 2
        yield [300, 1], "", [44, 1], "", 2
        yield [0] + [5] * 999, "", [1] + [5] * 999, "", 1
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
        first, second = (
            f"tokens {shown(ids)} salt {s!r}" for ids, s in ((one, salt), (two, other))
        )
        return f"{first}, and {second}, blocks of {block}"

    def hint(self, got, one, salt, two, other, block):
        want = self.expected(one, salt, two, other, block)
        if got["keys"] != want["keys"]:
            return "only full blocks have a key"
        if salt != other and got["equal at"]:
            return "another salt must give other keys, however it is written"
        if "".join(map(str, one)) == "".join(map(str, two)) and one != two:
            return "tokens 1, 23 and 12, 3 are run together: keep them apart"
        if set(want["equal at"]) - set(got["equal at"]):
            return "equal prefixes with equal salts must have equal keys"
        return _falsely_equal(min(set(got["equal at"]) - set(want["equal at"])), one, two, block)


def _falsely_equal(i: int, one: list[int], two: list[int], block: int) -> str:
    """What to say of two prompts whose block i has one key, though their prefixes differ."""
    a, b = one[: (i + 1) * block], two[: (i + 1) * block]
    if i > 20:
        return "two of a thousand keys are equal by chance: the hash is too short"
    if set(a) == set(b):
        return "the same tokens in another order are another block"
    if i > 1 and a[-block:] == b[-block:]:
        return "a key depends on all blocks before it, not on one: make it from the key before it"
    if i and a[-block:] == b[-block:]:
        return "a block's key must depend on the whole prefix before it"
    if max(a + b) > 255:
        return "token ids go beyond 255: give each its place in the key"
    return "the key must depend on the block's tokens and on all before them"


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


def _system_cached(lengths_of_system):
    """Right, but for a system prompt taken as found in the first turn already."""
    return lambda turns, system, question, answer: (
        sum(computed_with_reuse(turns, system, question, answer)) - lengths_of_system(system)
    )


SUMS = {  # other sums that look right -> what is wrong with them
    _answers_forgotten: "the next prompt holds the answers too",
    _longer_hits_forgotten: "the next prompt holds the answers too",
    _system_cached(lambda system: system): "in the first turn nothing is cached, not even the "
    "system prompt",
    _system_cached(lambda system: system // 16 * 16): "in the first turn nothing is cached, not "
    "even the system prompt",
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
        yield 3, 32, 7, 33
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
