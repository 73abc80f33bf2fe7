"""Unseeded draws with speculation follow the target's law: whole engine against enumeration."""

from functools import lru_cache

import pytest
import torch
from engine_runs import run_all
from models import random_model, small_config
from speculation_toys import (
    TableDrafter,
    exact_law,
    law_of,
    random_table,
    step_times,
    table_engine,
)

from minimoe.course.acceptance_lab import p_value
from minimoe.engine.params import SamplingParams
from minimoe.model.serving import ServingModel
from minimoe.speculative.admission import by_survival, prefixes
from minimoe.speculative.budget import Budget
from minimoe.speculative.dspark import DSpark
from minimoe.speculative.dspark_config import DSparkConfig
from minimoe.speculative.dspark_drafter import DSparkDrafter
from minimoe.speculative.prompt_lookup import PromptLookup
from minimoe.speculative.rules import FixedLength, Rule, Threshold
from minimoe.speculative.serving_dspark import ServingDSpark

SURE = 1e-3
DRAWS = {
    "T=0.7": {"temperature": 0.7},
    "T=1": {"temperature": 1.0},
    "T=1.3": {"temperature": 1.3},
    "top_p": {"temperature": 1.0, "top_p": 0.9},
    "all": {"temperature": 0.9, "top_k": 3, "min_p": 0.05},
}
RULES = {
    "fixed": lambda: FixedLength(3),
    "one": lambda: FixedLength(1),
    "threshold": lambda: Threshold(3, 0.5),
    "lossless": lambda: Budget(step_times(), 3, "lossless"),
    "production": lambda: Budget(step_times(), 3, "production"),
    "priced": lambda: Budget(step_times(), 3, "priced"),
}
TARGET, OWN = random_table(4, seed=1), random_table(4, seed=2)
PROMPT = [1, 2, 1, 2, 1]


def check_law(engine, next_logits, vocab, params, requests=2000, length=3):
    outputs = run_all(engine, [PROMPT] * requests, params)
    law = exact_law(next_logits, PROMPT, vocab, params, length)
    assert p_value(law_of(outputs, vocab, length), law) > SURE
    return outputs


def after(tokens):
    return TARGET[tokens[-1]]


EVERY = [pytest.param(d, r, marks=pytest.mark.soak) for d in DRAWS for r in RULES]
SOME = [(d, r) for d in DRAWS for r in ("fixed", "priced")] + [("T=1", r) for r in RULES]


@pytest.mark.parametrize(("draw", "rule"), sorted(set(SOME)) + EVERY)
def test_drawn_drafts(draw, rule):
    params = SamplingParams(max_tokens=3, ignore_eos=True, **DRAWS[draw])
    engine = table_engine(TARGET, TableDrafter(OWN, TARGET), RULES[rule]())
    outputs = check_law(engine, after, 4, params, requests=2000)
    assert sum(out.metrics.accepted for out in outputs) > 0


@pytest.mark.parametrize("rule", ["fixed", "lossless", "priced"])
def test_prompt_lookup(rule):
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    outputs = check_law(table_engine(TARGET, PromptLookup(3), RULES[rule]()), after, 4, params)
    assert sum(out.metrics.accepted for out in outputs) > 0


@lru_cache
def small_dspark(vocab=4, dtype=torch.float64):
    model = random_model(small_config(vocab_size=vocab, eos_token_id=vocab), dtype)
    config = DSparkConfig.of(model, layers=2, taps=(0, 2), markov_rank=6, length=3)
    dspark = DSpark(config, model.config).init_weights(std=0.3, seed=1).to(dtype)
    with torch.no_grad():
        dspark.markov_out.weight.normal_(0, 0.3, generator=torch.manual_seed(0))
        dspark.confident.weight.normal_(0, 0.3)
    return ServingModel(model), dspark.eval().requires_grad_(False)


@pytest.mark.parametrize("rule", ["fixed", "lossless", "production"])
def test_dspark(rule):
    model, dspark = small_dspark()
    drafter = DSparkDrafter(ServingDSpark(dspark, model), 3)
    params = SamplingParams(max_tokens=3, ignore_eos=True, temperature=0.8)
    engine = table_engine(model, drafter, RULES[rule]())
    outputs = check_law(
        engine, lambda ids: model.textbook(torch.tensor([ids]))[0, -1], 4, params, requests=2000
    )
    assert sum(out.metrics.accepted for out in outputs) > 0


def test_seeds_of_neighbours_make_no_difference_to_the_law():
    """Greedy, seeded and free requests share every step."""
    free = SamplingParams(max_tokens=3, ignore_eos=True)
    mixed = []
    for i in range(3000):
        mixed += [free, SamplingParams(max_tokens=3, seed=i, ignore_eos=True)]
    mixed[::7] = [SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)] * len(mixed[::7])
    engine = table_engine(TARGET, TableDrafter(OWN, TARGET))
    outputs = run_all(engine, [PROMPT] * len(mixed), mixed)
    law = exact_law(after, PROMPT, 4, free, 3)
    for wanted in (free, None):
        chosen = [
            out
            for out, params in zip(outputs, mixed, strict=True)
            if (params is free) == (wanted is free) and params.temperature > 0
        ]
        assert p_value(law_of(chosen, 4, 3), law) > SURE
    greedy = {tuple(out.outputs[0].token_ids) for out in outputs[::7]}
    assert len(greedy) == 1


class PeekingBudget:
    """The engine cannot know that a plug-in peeks; the same test catches it."""

    def choose(self, confidence, lengths, plain_tokens=0):
        return [n if c[1] > 0.5 else 0 for n, c in zip(lengths, confidence, strict=True)]


def test_a_plug_in_that_peeks_is_caught():
    from minimoe.engine.speculative_config import PlugIn

    params = SamplingParams(max_tokens=3, ignore_eos=True)
    engine = table_engine(TARGET, TableDrafter(OWN, TARGET), PlugIn(3, PeekingBudget()))
    outputs = run_all(engine, [PROMPT] * 3000, params)
    assert p_value(law_of(outputs, 4, 3), exact_law(after, PROMPT, 4, params, 3)) < 1e-6


class TopFour(Rule):
    """The four likeliest slots of the batch: exact, where the engine checks what it says."""

    def choose(self, confidence, lengths, plain_tokens=0):
        a = self.survival(confidence, lengths)
        return prefixes(*by_survival(a), 4, a.shape)


def test_a_short_token_budget_does_not_peek():
    """Two requests, room for three checks. The first request has three fair guesses. The second one
    has a guess that is surely good, whose successors are better or worse than those by what it is:
    were the first request served first, only a good token of the second would be checked."""
    after_prompt = [[0, 0, 0, 0, 1.0], [1.0, 0, 0, 0, 0]]  # to token 4, and to token 0
    target = [[0.7, 0.3, 0, 0, 0]] * 2 + after_prompt + [[0, 0, 0, 0, 1.0]]
    own = [[0.5, 0.5, 0, 0, 0]] * 2 + after_prompt + [[0, 0, 0, 0, 1.0]]
    tables = (torch.tensor(table, dtype=torch.float64) for table in (target, own))
    target, own = (table.clamp(min=1e-12).log() for table in tables)
    drafter = TableDrafter(own, target)
    drafter.chance = torch.tensor([0.95, 0.05, 0.5, 0.5, 0.9], dtype=torch.float64)
    limits = {"max_num_seqs": 2, "max_num_batched_tokens": 5}
    engine = table_engine(target, drafter, TopFour(3), **limits)
    params, counts, checked = SamplingParams(max_tokens=5, ignore_eos=True), torch.zeros(2), 0
    for _ in range(200):
        _, second = run_all(engine, [[2], [3]], params)
        counts[second.outputs[0].token_ids[1]] += 1
        checked += second.metrics.checked
    assert checked > 200
    assert p_value(counts.long(), torch.tensor([0.7, 0.3])) > SURE
