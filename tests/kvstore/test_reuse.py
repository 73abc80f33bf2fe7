"""Prefix reuse in the engine: the same tokens as without, and every test asserts that it hit."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from models import random_model, small_config
from speculation_toys import NoText

from minimoe import SamplingParams
from minimoe.engine.engine import Engine
from minimoe.errors import MinimoeError
from minimoe.kvstore.prefix_index import PrefixIndex
from minimoe.model.serving import ServingModel

B = 16
GREEDY = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)
EDGES = [B - 1, B, B + 1, 2 * B - 1, 2 * B, 2 * B + 1, 5 * B]


def one(llm, prompt, params=GREEDY):
    return llm.generate([prompt], params)[0]


@pytest.fixture(scope="module")
def plain(model_folder):
    """Outputs of an engine without reuse."""
    from minimoe import LLM

    llm = LLM(model_folder, dtype="float64", enable_prefix_caching=False)
    yield lambda prompt, params=GREEDY: llm.generate([prompt], params)[0]
    assert llm.engine.reuse is None


@pytest.mark.parametrize("length", [1, *EDGES])
def test_a_prompt_sent_twice(make_llm, plain, prompt_of, length):
    llm, prompt = make_llm(), prompt_of(length)
    cold, warm = one(llm, prompt), one(llm, prompt)
    assert cold.num_cached_tokens == 0
    assert warm.num_cached_tokens == (length - 1) // B * B  # one token is always computed
    assert cold.outputs[0].token_ids == warm.outputs[0].token_ids
    assert warm.outputs[0].token_ids == plain(prompt).outputs[0].token_ids


@pytest.mark.parametrize("shared", [0, *EDGES])
@pytest.mark.parametrize("chunk", [5, 512])
def test_shared_prefixes_around_block_edges(make_llm, plain, prompt_of, shared, chunk):
    llm = make_llm(max_num_batched_tokens=chunk)
    prefix = prompt_of(shared)
    one(llm, prefix + prompt_of(20, seed=1))
    prompt = prefix + prompt_of(33, seed=2)
    warm = one(llm, prompt)
    assert warm.num_cached_tokens == shared // B * B
    assert warm.outputs[0].token_ids == plain(prompt).outputs[0].token_ids


def test_logits_in_float32_are_close(make_llm, plain, prompt_of):
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True, logprobs=5)
    llm, prompt = make_llm(dtype="float32"), prompt_of(5 * B + 3)
    cold, warm = one(llm, prompt, params), one(llm, prompt, params)
    assert warm.num_cached_tokens == 5 * B
    for a, b in zip(cold.outputs[0].logprobs, warm.outputs[0].logprobs, strict=True):
        assert all(math.isclose(a[t], b[t], abs_tol=1e-4) for t in a.keys() & b.keys())


def test_the_answer_is_reused_by_the_next_turn(make_llm, plain, prompt_of):
    llm, prompt = make_llm(), prompt_of(30)
    answer = one(llm, prompt, SamplingParams(max_tokens=35, temperature=0.0, ignore_eos=True))
    turn = prompt + answer.outputs[0].token_ids + prompt_of(7, seed=3)
    warm = one(llm, turn)
    assert warm.num_cached_tokens == 4 * B  # 30 + 35 tokens, of which the last has no KV yet
    assert warm.outputs[0].token_ids == plain(turn).outputs[0].token_ids


@pytest.mark.parametrize("made", [2, 3])
def test_a_block_filled_exactly_at_the_finish_is_kept(make_llm, prompt_of, made):
    llm, prompt = make_llm(), prompt_of(B - 1)
    answer = one(llm, prompt, SamplingParams(max_tokens=made, temperature=0.0, ignore_eos=True))
    turn = prompt + answer.outputs[0].token_ids + [7]
    assert one(llm, turn).num_cached_tokens == B


def test_many_requests_share_one_system_prompt(make_llm, plain, prompt_of):
    llm, system = make_llm(), prompt_of(6 * B)
    one(llm, system)
    prompts = [system + prompt_of(5 + i, seed=i) for i in range(8)]
    outputs = llm.generate(prompts, GREEDY)
    assert [out.num_cached_tokens for out in outputs] == [6 * B] * 8
    for prompt, out in zip(prompts, outputs, strict=True):
        assert out.outputs[0].token_ids == plain(prompt).outputs[0].token_ids


def test_shared_blocks_are_one_block(make_llm, prompt_of):
    llm, prompt = make_llm(), prompt_of(4 * B + 1)
    one(llm, prompt)
    engine = llm.engine
    for i in range(3):
        engine.add_request(str(i), prompt, SamplingParams(max_tokens=3, ignore_eos=True))
    engine.step()
    tables = [seq.blocks[:4] for seq in engine.scheduler.running]
    assert tables[0] == tables[1] == tables[2]
    assert [engine.pool.refs[block] for block in tables[0]] == [3] * 4
    for i in range(3):
        engine.abort_request(str(i))
    engine.pool.check()


def test_salts_keep_tenants_apart(make_llm, prompt_of):
    llm, prompt = make_llm(), prompt_of(3 * B)

    def cached(salt):
        params = SamplingParams(max_tokens=1, temperature=0.0, cache_salt=salt)
        return one(llm, prompt, params).num_cached_tokens

    assert [cached("a"), cached("a"), cached("b"), cached(None), cached("")] == [0, 32, 0, 0, 0]
    assert cached("\ud800 any text ☃\0") == 0 and cached("\ud800 any text ☃\0") == 32
    with pytest.raises(MinimoeError, match="cache_salt is 5"):
        SamplingParams(cache_salt=5)


def test_same_block_under_another_prefix_misses(make_llm, plain, prompt_of):
    llm, block = make_llm(), prompt_of(B)
    one(llm, prompt_of(B, seed=1) + block + [7])
    other = prompt_of(B, seed=2) + block + [7]
    warm = one(llm, other)
    assert warm.num_cached_tokens == 0
    assert warm.outputs[0].token_ids == plain(other).outputs[0].token_ids


def test_a_reused_page_does_not_answer_to_its_old_key(make_llm, plain, prompt_of):
    llm = make_llm(num_gpu_blocks_override=8)
    first = prompt_of(5 * B)
    one(llm, first)
    one(llm, prompt_of(7 * B, seed=1))  # takes every page
    again = one(llm, first)
    assert again.num_cached_tokens < 4 * B
    assert again.outputs[0].token_ids == plain(first).outputs[0].token_ids


def test_a_hit_survives_a_pool_that_is_just_large_enough(make_llm, prompt_of):
    llm = make_llm(num_gpu_blocks_override=5)
    prompt = prompt_of(4 * B + 3)
    one(llm, prompt)
    assert one(llm, prompt).num_cached_tokens == 4 * B


def test_eviction_takes_a_chain_from_its_tail(make_llm, prompt_of):
    llm = make_llm(num_gpu_blocks_override=10)
    first = prompt_of(6 * B)
    one(llm, first)
    cached = []
    for seed in range(1, 4):
        one(llm, prompt_of(2 * B, seed=seed))
        cached.append(len(llm.engine.reuse.index.lookup(first)))
    assert cached == sorted(cached, reverse=True) and cached[0] > 0


def test_preempted_requests_find_their_own_blocks(make_llm, plain, prompt_of):
    llm = make_llm(num_gpu_blocks_override=9)
    prompts = [prompt_of(40, seed=i) for i in range(4)]
    params = SamplingParams(max_tokens=30, temperature=0.0, ignore_eos=True)
    outputs = llm.generate(prompts, params)
    assert sum(out.metrics.preemptions for out in outputs) > 0
    assert all(out.num_cached_tokens == 0 for out in outputs)  # their own work is no hit
    for prompt, out in zip(prompts, outputs, strict=True):
        assert out.outputs[0].token_ids == plain(prompt, params).outputs[0].token_ids


def test_a_hash_of_one_bit_gives_right_outputs(make_llm, plain, prompt_of):
    llm = make_llm()
    reuse = llm.engine.reuse
    reuse.index = reuse.memory.index = PrefixIndex("", hash_bits=1)
    system, hits = prompt_of(2 * B), 0
    for i in range(12):
        prompt = (system if i % 2 else []) + prompt_of(B + 5, seed=i)
        out = one(llm, prompt)
        assert out.outputs[0].token_ids == plain(prompt).outputs[0].token_ids
        hits += out.num_cached_tokens
    assert hits == 5 * 2 * B


def test_blocks_of_a_broken_request_are_not_reused(make_llm, prompt_of):
    llm, prompt = make_llm(), prompt_of(3 * B + 2)
    good = one(llm, prompt).outputs[0].token_ids
    llm.engine.reuse.index.clear()
    row = llm.model.embed[prompt[20]].clone()
    llm.model.embed[prompt[20]] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        one(llm, prompt)
    llm.model.embed[prompt[20]] = row
    after = one(llm, prompt)
    assert after.num_cached_tokens == 0 and after.outputs[0].token_ids == good


class ReuseMachine(RuleBasedStateMachine):
    """Requests with shared prefixes on a small pool, in any order of adds, steps and aborts."""

    model = None

    @initialize()
    def build(self):
        if ReuseMachine.model is None:
            ReuseMachine.model = ServingModel(random_model(small_config(num_hidden_layers=1)))
        limits = {"max_model_len": 80, "max_num_seqs": 3, "max_num_batched_tokens": 24}
        self.engine = Engine(self.model, NoText(), num_blocks=7, seed=0, **limits)
        self.added = 0

    @rule(head=st.integers(0, 2), heads=st.integers(0, 3), tail=st.integers(1, 20))
    def add(self, head, heads, tail):
        prompt = [10 + head] * (B * heads) + [100 + self.added % 3] * tail
        params = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)
        self.engine.add_request(str(self.added), prompt, params)
        self.added += 1

    @rule()
    def step(self):
        self.engine.step()

    @rule(pick=st.integers(0, 50))
    def abort(self, pick):
        self.engine.abort_request(str(pick % max(1, self.added)))

    @invariant()
    def pages_add_up(self):
        if hasattr(self, "engine"):
            self.check()

    def check(self):
        engine, index = self.engine, self.engine.reuse.index
        engine.pool.check()
        users = [seq for seq in engine.scheduler.running]
        for block in range(7):
            assert engine.pool.refs[block] == sum(seq.blocks.count(block) for seq in users)
        for seq in users:
            for i in range(seq.num_computed // B):
                assert seq.block_keys[i].tokens == tuple(seq.tokens[i * B : i * B + B])
                held = index.key_of(seq.blocks[i])
                assert held is None or held == seq.block_keys[i]

    def teardown(self):
        if hasattr(self, "engine"):
            while self.engine.has_unfinished_requests():
                self.engine.step()
            assert self.engine.pool.num_free == 7


TestReuseMachine = ReuseMachine.TestCase
TestReuseMachine.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
