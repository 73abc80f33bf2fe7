"""Sampling matches the softmax it claims, and a seeded draw does not depend on the batch."""

import math

import pytest
import torch
from scipy import stats

from minimoe.engine.params import SamplingParams
from minimoe.engine.sampler import exponential_noise, probabilities, sample, top_logprobs
from minimoe.errors import MinimoeError

LOGITS = [2.0, 1.0, 0.5, 0.5, 0.0, -1.0, -3.0]


def by_hand(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0) -> list[float]:
    """The oracle in plain Python: softmax, top_k, top_p, min_p, renormalise."""
    weights = [math.exp(x / temperature) for x in logits]
    ranked = sorted(range(len(weights)), key=lambda i: -weights[i])
    ranked = ranked[: top_k or len(ranked)]
    total = sum(weights[i] for i in ranked)
    kept, reached = [], 0.0
    for i in ranked:
        if reached < top_p and weights[i] >= min_p * weights[ranked[0]]:
            kept.append(i)
        reached += weights[i] / total
    total = sum(weights[i] for i in kept)
    return [weights[i] / total if i in kept else 0.0 for i in range(len(weights))]


CASES = [
    {},
    {"temperature": 0.7},
    {"temperature": 1.5},
    {"top_k": 3},
    {"top_k": 1},
    {"top_p": 0.8},
    {"top_p": 0.05},
    {"min_p": 0.2},
    {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.1},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_probabilities(case):
    got = probabilities(torch.tensor([LOGITS], dtype=torch.float64), [SamplingParams(**case)])
    expected = torch.tensor([by_hand(LOGITS, **case)], dtype=torch.float64)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_draws_follow_them(case):
    draws = 20_000
    params = [SamplingParams(**case)] * draws
    logits = torch.tensor([LOGITS]).expand(draws, -1)
    ids = sample(logits, params, [11] * draws, list(range(draws)))
    counts = torch.bincount(ids, minlength=len(LOGITS)).tolist()
    expected = [p * draws for p in by_hand(LOGITS, **case)]
    assert all(n == 0 for n, e in zip(counts, expected, strict=True) if e == 0)
    pairs = [(n, e) for n, e in zip(counts, expected, strict=True) if e > 0]
    if len(pairs) > 1:
        assert stats.chisquare(*zip(*pairs, strict=True)).pvalue > 1e-3


def test_different_seeds_and_positions_are_independent():
    """Pairs of draws at neighbouring seeds, or positions, fill a 7 x 7 table evenly."""
    flat = torch.zeros(20_000, 7)
    params = [SamplingParams()] * 20_000
    steps = list(range(20_000))
    for keys in ((steps, [3] * 20_000), ([3] * 20_000, steps)):
        ids = sample(flat, params, *keys)
        table = torch.bincount(ids[:-1] * 7 + ids[1:], minlength=49)
        assert stats.chisquare(table.tolist()).pvalue > 1e-3


def test_a_row_does_not_depend_on_its_batch():
    logits = torch.randn(9, 50, generator=torch.Generator().manual_seed(0))
    params = [SamplingParams(top_k=20), SamplingParams(temperature=0), SamplingParams()] * 3
    seeds, positions = list(range(9)), [5] * 9
    together = sample(logits, params, seeds, positions)
    for row in range(9):
        one = slice(row, row + 1)
        alone = sample(logits[one], params[one], seeds[one], positions[one])
        assert alone[0] == together[row]


def test_greedy_takes_the_maximum_and_tiny_temperatures_do_not_overflow():
    logits = torch.tensor([[0.0, 5.0, 4.9], [1e4, -1e4, 0.0]])
    assert sample(logits, [SamplingParams(temperature=0)] * 2, [0, 0], [0, 0]).tolist() == [1, 0]
    for tiny in ({"temperature": 1e-30}, {"temperature": 1e-46}, {"top_p": 1e-46}):
        assert sample(logits, [SamplingParams(**tiny)] * 2, [0, 0], [0, 0]).tolist() == [1, 0]


def test_noise_is_exponential_and_reproducible():
    noise = exponential_noise([1], [2], 20_000, "cpu")[0]
    assert stats.kstest(noise.numpy(), "expon").pvalue > 1e-3
    assert torch.equal(noise, exponential_noise([9, 1], [2, 2], 20_000, "cpu")[1])
    assert exponential_noise([-(2**63)], [0], 5, "cpu").isfinite().all()


def test_logprobs():
    logits = torch.tensor(LOGITS)
    got = top_logprobs(logits, 5, 2)
    assert list(got) == [0, 1, 5]
    expected = torch.log_softmax(logits, 0)
    assert all(abs(got[i] - float(expected[i])) < 1e-6 for i in got)
    assert list(top_logprobs(logits, 3, 0)) == [3]


@pytest.mark.parametrize(
    "bad",
    [
        {"max_tokens": 0},
        {"max_tokens": "3"},
        {"max_tokens": 1.5},
        {"temperature": None},
        {"temperature": "1"},
        {"top_k": 5.5},
        {"top_k": 2**70},
        {"top_p": None},
        {"min_p": "a"},
        {"logprobs": 2.5},
        {"stop": 5},
        {"stop_token_ids": 5},
        {"cache_salt": 7},
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": -2},
        {"min_p": 1.5},
        {"logprobs": -1},
        {"seed": 2**63},
        {"stop": ""},
        {"stop": ["a", 3]},
        {"stop_token_ids": ["a"]},
    ],
    ids=str,
)
def test_bad_parameters_are_named(bad):
    name, value = next(iter(bad.items()))
    with pytest.raises(MinimoeError, match=f"^{name} is "):
        SamplingParams(**{name: value})
