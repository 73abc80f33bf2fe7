"""Exercise 2 of 07: keys of blocks, so that hits are right."""

import hashlib
import random

import numpy as np

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import told
from minimoe.course.compare import shown


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


def _xor_of_blocks(tokens, salt, block):
    keys, parent = [], 0
    for end in range(block, len(tokens) + 1, block):
        parent ^= hash((salt, tuple(tokens[end - block : end])))
        keys.append(parent)
    return keys


def _set_of_blocks(tokens, salt, block):
    own = [tuple(tokens[e - block : e]) for e in range(block, len(tokens) + 1, block)]
    return [(salt, frozenset(own[: i + 1])) for i in range(len(own))]


def _through(change):
    """Keys made of the prefix after a change that loses something."""
    return lambda tokens, salt, block: [
        (salt, change(prefix)) for _, prefix in chain_naive(tokens, salt, block)
    ]


def _short_hash(prefix):
    return hashlib.sha256(repr(prefix).encode()).digest()[:1]


NO_LIST = "give a list of keys, one for each full block"
NO_ARRAYS = "`==` of arrays is no single yes or no: make the key a tuple, or a hash"
ERRORS = {
    (TypeError, "unhashable type: 'list'"): "a list has no hash: take tuple(tokens)",
    (TypeError, "must be encoded"): "a hash of hashlib takes bytes: repr(...).encode()",
}


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
        Wrong(_xor_of_blocks, "another order"),
        Wrong(_set_of_blocks, "another order"),
        Wrong(_through(frozenset), "another order"),
        Wrong(_through(lambda prefix: tuple(sorted(prefix))), "another order"),
        Wrong(_through(lambda prefix: tuple(x % 256 for x in prefix)), "beyond 255"),
        Wrong(_through(bytes), "range(0, 256)"),
        Wrong(_through(_short_hash), "too short"),
        Wrong(_through(lambda prefix: object()), "must have equal keys"),
        Wrong(lambda *args: iter(chain_naive(*args)), "give a list of keys"),
        Wrong(lambda *args: dict(enumerate(chain_naive(*args))), "give a list of keys"),
        Wrong(lambda *args: hash(str(args)), "give a list of keys"),
        Wrong(lambda *args: [np.array(tokens) for _, tokens in chain_naive(*args)], "of arrays"),
        Wrong(_through(lambda prefix: hash(list(prefix))), "tuple(tokens)"),
        Wrong(_through(lambda prefix: hashlib.sha256(repr(prefix))), "takes bytes"),
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
        yield [1, 2, 3, 4], "", [3, 4, 1, 2], "", 2
        yield [1, 2, 1, 2], "", [3, 4, 3, 4], "", 2
        yield [1, 2, 5, 6, 7, 8], "", [9, 9, 5, 6, 7, 8], "", 2
        yield [1, 2, 3, 4, 7, 8], "", [1, 2, 9, 9, 7, 8], "", 2
        yield [300, 1], "", [44, 1], "", 2
        yield [0] + [5] * 299, "", [1] + [5] * 299, "", 1
        yield [2] + [5] * 299, "", [3] + [5] * 299, "", 1
        yield [4] + [5] * 299, "", [6] + [5] * 299, "", 1
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
        a, b = (told(answer, ERRORS, *args) for args in ((one, salt, block), (two, other, block)))
        if a is None or a is ... or (isinstance(a, str) and a in ERRORS.values()):
            return a
        if not isinstance(a, list | tuple):
            return NO_LIST
        if any(hasattr(key, "tolist") for key in a):
            return NO_ARRAYS
        equal = [i for i, pair in enumerate(zip(a, b, strict=False)) if pair[0] == pair[1]]
        return {"keys": [len(a), len(b)], "equal at": equal}

    def describe(self, one, salt, two, other, block):
        first, second = (
            f"tokens {shown(ids)} salt {s!r}" for ids, s in ((one, salt), (two, other))
        )
        return f"{first}, and {second}, blocks of {block}"

    def hint(self, got, one, salt, two, other, block):
        if isinstance(got, str):
            return got
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
        return "two of a few hundred keys are equal by chance: the hash is too short"
    if set(a) == set(b):
        return "the same tokens in another order are another block"
    if i > 1 and a[-block:] == b[-block:]:
        return "a key depends on all blocks before it, not on one: make it from the key before it"
    if i and a[-block:] == b[-block:]:
        return "a block's key must depend on the whole prefix before it"
    if max(a + b) > 255:
        return "token ids go beyond 255: give each its place in the key"
    return "the key must depend on the block's tokens and on all before them"
