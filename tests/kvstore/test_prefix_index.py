"""The prefix index against an oracle without hashes, and the traps that bit other engines."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from minimoe.kvstore.prefix_index import PrefixIndex, hash_fields, lookup_naive

B = 16


def fill(index, tokens, salt=None, first=0):
    keys = index.chain(tokens, salt)
    for block, key in enumerate(keys, start=first):
        index.insert(key, block)
    return keys


@pytest.mark.parametrize("shared", [0, 1, B - 1, B, B + 1, 2 * B, 3 * B - 1])
def test_only_whole_shared_blocks_hit(shared):
    index = PrefixIndex("m")
    fill(index, list(range(4 * B)))
    prompt = list(range(shared)) + [9999] * (5 * B - shared)
    assert index.lookup(prompt) == list(range(shared // B))


def test_same_tokens_under_another_prefix_miss():
    index = PrefixIndex("m")
    fill(index, [1] * B + [7] * B)
    assert index.lookup([2] * B + [7] * B) == []
    assert index.lookup([7] * B) == []


@pytest.mark.parametrize(
    "salts", [("a", "b"), ("a", None), ("", None), ("\ud800", "x"), ("\0", "")]
)
def test_salts_isolate_and_equal_salts_share(salts):
    index, tokens = PrefixIndex("m"), [5] * (2 * B)
    fill(index, tokens, salts[0])
    assert index.lookup(tokens, salts[0]) == [0, 1]
    assert index.lookup(tokens, salts[1]) == []


def test_fields_are_length_prefixed():
    assert hash_fields([b"a", b"bc"]) != hash_fields([b"ab", b"c"])
    assert hash_fields([b"a", b""]) != hash_fields([b"a"])


def test_fingerprints_do_not_share_keys():
    one, two = PrefixIndex("model A"), PrefixIndex("model B")
    assert one.chain([1] * B)[0].digest != two.chain([1] * B)[0].digest


def test_a_reused_block_is_not_found_under_its_old_key():
    index = PrefixIndex("m")
    old, new = index.chain([1] * B)[0], index.chain([2] * B)[0]
    index.insert(old, 0)
    with pytest.raises(ValueError, match="forget"):
        index.insert(new, 0)
    index.forget(0)
    index.insert(new, 0)
    assert index.find(old) is None and index.find(new) == 0
    assert index.forget(77) is None


def test_second_block_of_a_key_stays_unnamed():
    index = PrefixIndex("m")
    key = index.chain([1] * B)[0]
    assert index.insert(key, 3) and not index.insert(key, 4)
    index.forget(4)
    assert index.lookup([1] * B) == [3]


def test_tail_is_found_again_after_its_head_was_recomputed():
    index, tokens = PrefixIndex("m"), list(range(3 * B))
    fill(index, tokens)
    index.forget(0)
    assert index.lookup(tokens) == []
    index.insert(index.chain(tokens)[0], 8)
    assert index.lookup(tokens) == [8, 1, 2]


def test_keys_are_the_same_in_every_process():
    code = (
        "from minimoe.kvstore.prefix_index import PrefixIndex;"
        "print(PrefixIndex('m').chain(list(range(64)), 'tenant')[-1].digest.hex())"
    )
    here = PrefixIndex("m").chain(list(range(64)), "tenant")[-1].digest.hex()
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == here


def test_a_key_needs_a_full_block():
    with pytest.raises(ValueError, match="16 tokens, got 3"):
        PrefixIndex("m").child(None, [1, 2, 3], None)


def test_long_chains_compare_and_vanish_without_recursion():
    index = PrefixIndex("m", block_size=1)
    tokens = [0] * 20_000
    fill(index, tokens)
    assert len(index.lookup(tokens)) == 20_000
    assert index.chain(tokens)[-1] == index.chain(tokens)[-1]
    index.clear()
    assert len(index) == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=8), st.sampled_from([1, 256]))
def test_prompts_of_few_symbols_match_the_oracle(prompts, bits):
    index, cached = PrefixIndex("m", block_size=2, hash_bits=bits), []
    for prompt in prompts:
        assert index.lookup(prompt) == lookup_naive(cached, prompt, block_size=2)
        for i, key in enumerate(index.chain(prompt)):
            if index.insert(key, len(cached)):
                cached.append((tuple(prompt[: 2 * i + 2]), None, len(cached)))


class IndexMachine(RuleBasedStateMachine):
    """Insert and forget in any order, with a 1-bit hash: always what the oracle says."""

    def __init__(self):
        super().__init__()
        self.index = PrefixIndex("m", block_size=2, hash_bits=1)
        self.cached, self.next = [], 0

    @rule(tokens=st.lists(st.integers(0, 1), max_size=8), salt=st.sampled_from([None, "", "s"]))
    def store(self, tokens, salt):
        for i, key in enumerate(self.index.chain(tokens, salt)):
            if self.index.insert(key, self.next):
                self.cached.append((tuple(tokens[: 2 * i + 2]), salt, self.next))
            self.next += 1

    @rule(pick=st.integers(0, 1000))
    def drop(self, pick):
        if self.cached:
            _, _, block = self.cached.pop(pick % len(self.cached))
            self.index.forget(block)

    @rule(tokens=st.lists(st.integers(0, 1), max_size=8), salt=st.sampled_from([None, "", "s"]))
    def ask(self, tokens, salt):
        expect = lookup_naive(self.cached, tokens, salt, block_size=2)
        assert self.index.lookup(tokens, salt) == expect

    @invariant()
    def sizes_agree(self):
        assert len(self.index) == len(self.cached)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
