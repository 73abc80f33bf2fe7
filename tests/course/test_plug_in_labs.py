"""What exercises put into the real engine: it serves the same texts, and has its own parts back."""

import pytest
import torch
from models import random_model, small_config

from minimoe import LLM, SamplingParams
from minimoe.bench.prompts import mixed_prompts
from minimoe.course import eviction_lab, experts_lab, kv_lab, own_drafter, own_wire, solved
from minimoe.course.checks.first_to_go import deepest
from minimoe.course.checks.own_experts import _grouped as once_each
from minimoe.course.checks.own_guess import longest_match
from minimoe.course.own_drafter import three_or_none
from minimoe.errors import MinimoeError
from minimoe.model.serving import ServingModel, ServingMoE
from minimoe.perf import kv_cost


@pytest.fixture(scope="module")
def llm():
    return LLM("tiny-moe", device="cpu", max_num_seqs=16)


@pytest.fixture(autouse=True)
def as_it_was(llm):
    moes = [layer.ffn for layer in llm.model.layers if isinstance(layer.ffn, ServingMoE)]
    llm.engine.reuse.index.clear()
    yield
    assert all(moe.run_experts == moe.experts.serve for moe in moes)
    assert llm.engine.pool.choose is None and llm.engine.scheduler.order.__name__ == "by_arrival"
    assert llm.engine.pool.num_free == llm.engine.pool.num_blocks


def test_experts_of_ones_own_are_counted_and_serve_the_same_tokens(llm):
    ways = {"slow": experts_lab.by_token, "once": once_each, "engine": None}
    trials = []
    for name, way in ways.items():
        llm.engine.reuse.index.clear()
        trials.append(experts_lab._run(llm, name, way))
    assert all(one.tokens == trials[0].tokens for one in trials)
    K, E = llm.config.num_experts_per_tok, llm.config.n_routed_experts
    assert trials[0].fetches == (256 * K, 16 * K)
    assert K < trials[1].fetches[1] < 16 * K and trials[1].fetches[0] <= E
    assert trials[2].fetches == (0, 0)
    assert len(experts_lab.fetches_table(trials).splitlines()) == 4
    assert len(experts_lab.times_table(trials).splitlines()) == 4


def test_both_ways_answer_as_the_layer_does():
    model = ServingModel(random_model(small_config(), torch.float64))
    moe = next(layer.ffn for layer in model.layers if isinstance(layer.ffn, ServingMoE))
    x = torch.randn(9, 48, dtype=torch.float64)
    ids = torch.stack([torch.randperm(8)[:2] for _ in range(9)])
    weights = torch.rand(9, 2, dtype=torch.float64)
    for way in (experts_lab.by_token, once_each):
        out = way(x, ids, weights, experts_lab.fetcher(moe, []))
        torch.testing.assert_close(out, moe.experts(x, ids, weights))


def test_an_expert_layer_that_fails_is_taken_out_again(llm):
    with pytest.raises(ZeroDivisionError):
        experts_lab.trial(llm, "broken", lambda *step: 1 / 0)
    assert not llm.engine.has_unfinished_requests()


LENGTHS = [3, 20, 1, 2, 18, 1] * 4


def test_requests_end_as_predicted_in_any_order(llm):
    plain = kv_lab.ends_in_turn(llm, LENGTHS)
    assert plain.last == kv_cost.continuous_steps(LENGTHS, 16)
    for sign in (1, -1):
        ends = kv_lab.ends_in_turn(llm, LENGTHS, lambda new, arrival, sign=sign: sign * new)
        order = sorted(LENGTHS, reverse=sign < 0)
        assert ends.last == kv_cost.continuous_steps(order, 16)
        assert (ends.mean < plain.mean) == (sign > 0)


def test_the_first_arrival_is_number_0(llm):
    seen = []
    kv_lab.ends_in_turn(llm, [1, 2, 3], lambda new, arrival: seen.append((new, arrival)) or 0)
    assert {(1, 0), (2, 1), (3, 2)} == set(seen)


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_wire_of_ones_own_carries_every_message(llm, ranks):
    def exchange(rows, counts):
        cuts = [torch.tensor([0, *sizes]).cumsum(0).tolist() for sizes in counts]
        size = range(len(rows))
        return [[row for q in size for row in rows[q][cuts[q][r] : cuts[q][r + 1]]] for r in size]

    prompts = mixed_prompts("tiny-moe", 6, 5)
    ours, none = own_wire.serve(llm, prompts, ranks, None, new_tokens=3)
    llm.engine.reuse.index.clear()
    theirs, calls = own_wire.serve(llm, prompts, ranks, exchange, new_tokens=3)
    assert theirs == ours and none == 0
    assert calls == 3 * 5 * 3  # steps, layers, all-to-alls


def test_the_engine_finds_what_the_index_alone_finds():
    """Blocks of 16 in the engine, of one token without it: the same counts of blocks."""
    prompts = [[100 * d + i for i in range(81)] for d in range(3)]
    llm = LLM("tiny-moe", device="cpu", num_gpu_blocks_override=12)
    for rule in (None, deepest):
        found = eviction_lab.rounds_in_engine(llm, prompts, 3, rule)
        by_index = [0, 0, 0]
        if rule:
            blocks = [[100 * d + i for i in range(5)] for d in range(3)]
            by_index = eviction_lab.rounds_by_index(deepest, blocks, 11, 3)
        assert [tokens // 16 for tokens in found] == by_index


def test_a_block_that_nobody_can_find_has_no_depth(llm):
    llm.generate([list(range(10, 60))])
    index = llm.engine.reuse.index
    depths = [eviction_lab.depth(index, block) for block in range(llm.engine.pool.num_blocks)]
    held = [one for one in depths if one is not None]
    assert held and sorted(held) == list(range(len(held)))


def test_solved_says_whether_an_answer_is_right():
    assert solved("02-turn", lambda new_tokens, arrival: arrival + new_tokens)
    assert not solved("02-turn", lambda new_tokens, arrival: ...)
    assert not solved("no such check", max)


@pytest.mark.parametrize("guess", [three_or_none, longest_match, lambda tokens: [7] * 5])
def test_guesses_of_ones_own_change_passes_and_no_text(llm, guess):
    prompts = {"code": mixed_prompts("tiny-moe", 4, 60)[:2], "json": [[5, 6, 7, 8] * 6]}
    params = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
    plain = own_drafter.serve(None, prompts, params)
    mine = own_drafter.serve(guess, prompts, params)
    assert mine.texts == plain.texts and len(mine.texts) == 3
    assert plain.per_pass == {"code": 1, "json": 1}
    assert all(mine.per_pass[name] >= 1 for name in prompts)
    assert (guess in (three_or_none, longest_match)) == (max(mine.per_pass.values()) > 1)


def test_guesses_that_cannot_be_used_end_in_one_line():
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
    for guess, says in (
        (lambda tokens: 7, "list of token ids"),
        (lambda tokens: [7] * 9, "9 came"),
    ):
        with pytest.raises(MinimoeError, match=says):
            own_drafter.serve(guess, {"one": [[5, 6, 7]]}, params)


def test_passes_over_a_known_text():
    text = [1, 2, 3, 1, 2, 3, 1, 2, 3]
    made = own_drafter.passes(longest_match, text, 4)
    assert [(one.place, one.kept) for one in made] == [(4, 4)]
    assert [one.kept for one in own_drafter.passes(lambda tokens: [], text, 4)] == [0] * 5
