"""Expert parallelism in the engine: real ranks give what one process gives, whatever happens."""

import shutil

import numpy as np
import pytest
import rank_functions as on_rank
import torch
from ep_runs import GREEDY, PROMPTS, alone, run_with, tokens
from models import random_model, small_config

from minimoe import LLM, SamplingParams
from minimoe.checkpoint import save_checkpoint
from minimoe.config import SHIPPED
from minimoe.engine import rank_engine
from minimoe.errors import MinimoeError
from minimoe.parallel.placement import balance, with_even_shares
from minimoe.parallel.supervisor import RankError
from minimoe.parallel.tally import exchange_bytes


@pytest.fixture(scope="module")
def two():
    with_two = LLM("tiny-moe", device="cpu", expert_parallel_size=2)
    yield with_two
    with_two.close()


def shuffled(llm, seed: int = 0):
    """Any placement of as many slots as there are now."""
    old, random = llm.engine.placement, np.random.default_rng(seed)
    extra = random.integers(0, old.experts, (old.layers, old.slots.shape[1] - old.experts))
    every = np.tile(np.arange(old.experts), (old.layers, 1))
    slots = random.permuted(np.concatenate([every, extra], axis=1), axis=1)
    return with_even_shares(slots, old.ranks, old.experts)


def test_two_ranks_give_the_tokens_of_one_process_and_the_bytes_of_the_formula(two):
    two.engine.step_times(reset=True)
    assert tokens(two.generate(PROMPTS, GREEDY)) == alone()
    times = two.engine.step_times()
    placement, config = two.engine.placement, two.config
    passes = placement.layers * times[0]["steps"]
    want = exchange_bytes(
        [one["pairs"] for one in times],
        placement.per_rank,
        config.hidden_size,
        4,
        layers=passes,
        ends=times[0]["steps"],
    )
    assert [one["bytes"] for one in times] == want
    computed = sum(24 + 31 for _ in PROMPTS)
    pairs = computed * config.num_experts_per_tok * placement.layers
    assert sum(sum(one["pairs"]) for one in times) == pairs
    assert sum(one["rows"] for one in times) == pairs


def test_every_face_of_llm(two):
    one = LLM("tiny-moe", device="cpu")
    messages = [{"role": "user", "content": "Hello!"}]
    for llm in (one, two):
        llm.seen = [
            llm.chat(messages, GREEDY)[0].outputs[0].text,
            "".join(llm.stream("def add(a, b):", GREEDY)),
            tokens(llm.generate("Once", SamplingParams(max_tokens=12, seed=5))),
            llm.generate("x = [", SamplingParams(max_tokens=8, temperature=0, stop="]"))[0]
            .outputs[0]
            .text,
        ]
    assert one.seen == two.seen
    params = SamplingParams(max_tokens=4, temperature=0.0, logprobs=3)
    mine, theirs = (llm.generate("def f(", params)[0].outputs[0].logprobs for llm in (two, one))
    assert [list(a) for a in mine] == [list(b) for b in theirs]
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(list(a.values()), list(b.values()), atol=1e-4)


def test_logits_agree(two):
    """Log probabilities of the whole vocabulary, so of all logits up to one constant."""
    params = SamplingParams(max_tokens=2, temperature=0.0, logprobs=two.config.vocab_size)
    one = LLM("tiny-moe", device="cpu")
    both = (llm.generate(PROMPTS[:4], params) for llm in (two, one))
    for a, b in zip(*both, strict=True):
        for mine, theirs in zip(a.outputs[0].logprobs, b.outputs[0].logprobs, strict=True):
            assert max(abs(mine[token] - theirs[token]) for token in theirs) < 1e-4


def test_requests_with_and_without_work_abort_and_draws(two):
    """One request on two ranks: the other takes empty steps; then an abort in the middle."""
    load = two.engine.expert_load(reset=True)
    out = two.generate("hello", SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True))[0]
    computed = len(out.prompt_token_ids) + 4 - out.num_cached_tokens
    load = two.engine.expert_load()
    assert load.sum(1).tolist() == [computed * two.config.num_experts_per_tok] * len(load)
    request = two.engine.add_request("gone", "hello", GREEDY)
    two.engine.step()
    two.engine.abort_request("gone")
    assert request.seq.finish_reason == "abort" and not two.engine.has_unfinished_requests()
    draws = [tokens(two.generate(["a", "b"], SamplingParams(max_tokens=6))) for _ in range(2)]
    assert draws[0] != draws[1], "unseeded draws differ"


def test_errors_on_a_rank_come_through_and_service_goes_on(two):
    two.engine.add_request("broken", "hello", GREEDY)
    two.engine.ranks.call(on_rank.break_engine, 1)
    with pytest.raises(RankError, match="in broken_step"):
        for _ in range(3):
            two.engine.step()
    assert not two.engine.has_unfinished_requests()
    two.engine.ranks.call(on_rank.mend_engine)
    assert tokens(two.generate(PROMPTS[:2], GREEDY)) == alone()[:2]
    assert two.engine.ranks.size == 2 and not two.engine.failovers


def test_three_ranks_spare_slots_and_a_rebalance_in_the_middle():
    """64 experts do not divide by 3: 23 slots each, and 5 of them hold copies."""
    settings = {"spare_slots": 1}
    llm = LLM("tiny-moe", device="cpu", expert_parallel_size=3, expert_parallel_config=settings)
    engine = llm.engine
    at = {
        3: lambda: engine.rebalance(shuffled(llm)),
        9: lambda: engine.rebalance(balance(engine.expert_load(), 3, 69)),
        12: lambda: engine.slow_down(1, 2.0),
    }
    assert run_with(llm, at) == alone()
    engine.settings.rebalance_every = 4
    placement = engine.placement
    assert run_with(llm, {}) == alone()
    assert engine.placement is not placement
    with pytest.raises(MinimoeError, match="does not fit"):
        engine.rebalance(balance(engine.expert_load(), 4, 68))
    assert tokens(llm.generate(PROMPTS[:2], GREEDY)) == alone()[:2]
    llm.close()


@pytest.fixture(scope="module")
def small_folders(tmp_path_factory):
    """Two checkpoints of one shape with 5 experts and other weights."""
    folders = []
    for seed in (0, 1):
        folder = tmp_path_factory.mktemp(f"small-{seed}")
        config = small_config(n_routed_experts=5)
        save_checkpoint(random_model(config, torch.float32, seed), folder)
        shutil.copy(SHIPPED / "tiny-moe" / "tokenizer.json", folder)
        folders.append(str(folder))
    return folders


def test_ranks_with_different_weights(small_folders):
    from minimoe.parallel.supervisor import Ranks

    with Ranks(2, timeout=10) as ranks:
        options = [({"model": folder, "dtype": "float32"}, 0, 10) for folder in small_folders]
        with pytest.raises(RankError, match="rank 1 has other weights than rank 0"):
            ranks.call_each(rank_engine.start, options)


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"expert_parallel_size": 65}, "65 ranks for 64 experts"),
        ({"expert_parallel_size": 0}, "expert_parallel_size"),
        ({"expert_parallel_config": {"spares": 1}}, "'spares'"),
        ({"expert_parallel_config": {"spare_slots": -1}}, "spare_slots"),
        ({"expert_parallel_config": {"timeout": 0}}, "timeout"),
        ({"expert_parallel_config": {"timeout": "long"}}, "timeout is 'long'"),
        ({"expert_parallel_config": {"timeout": float("inf")}}, "timeout is inf"),
        ({"expert_parallel_config": 5}, "expert_parallel_config is a int: give a dict"),
        ({"model": "wide"}, "wide"),
        ({"model": "wide:1.5"}, "the wide model runs in one process"),
        ({"model": "no-such-model"}, "no model"),
        ({"dtype": "int8"}, "dtype"),
        ({"max_model_len": 10**6}, "max_model_len"),
    ],
)
def test_bad_input(changes, says):
    with pytest.raises(MinimoeError, match=says):
        LLM(**{"model": "tiny-moe", "device": "cpu", "expert_parallel_size": 2, **changes})
