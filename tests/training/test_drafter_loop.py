"""The measuring loop: the same text as the plain target, the same distribution as its draws."""

import pytest
import torch
from models import random_model, small_config

from minimoe.model.serving import ServingModel
from minimoe.speculative.dspark import DSpark
from minimoe.speculative.dspark_config import DSparkConfig
from minimoe.speculative.serving_dspark import ServingDSpark
from minimoe.training.drafter_evaluate import summarise
from minimoe.training.drafter_loop import DraftLoop
from minimoe.training.drafter_text import generate


@pytest.fixture(scope="module")
def target():
    return random_model(small_config(vocab_size=24))


@pytest.fixture(scope="module")
def drafter(target):
    config = DSparkConfig.of(target, layers=2, taps=(0, 2), markov_rank=6, length=3)
    dspark = DSpark(config, target.config).init_weights(std=0.3, seed=1).double()
    return dspark.eval().requires_grad_(False)


def prompts(rows, length=5):
    return torch.randint(2, 24, (rows, length), generator=torch.Generator().manual_seed(0))


def plain_greedy(target, ids, new_tokens):
    for _ in range(new_tokens):
        ids = torch.cat([ids, target(ids)[:, -1].argmax(-1, keepdim=True)], 1)
    return ids


def test_greedy_text_is_the_plain_text(target, drafter):
    serving = ServingModel(target)
    passes = DraftLoop(serving, ServingDSpark(drafter, serving), prompts(6), 20).run()
    assert torch.equal(passes.ids, plain_greedy(target, prompts(6), 20))
    assert 0 < passes.accepted.float().mean() < 3  # some were accepted, some refused
    for row in range(6):
        tokens = (passes.accepted[passes.sequence == row] + 1).sum()
        assert 20 <= tokens <= 23


def test_generate_keeps_prompts_and_is_greedy_at_zero(target):
    rows, lengths = prompts(4, 16), torch.tensor([3, 5, 8, 16])
    out = generate(ServingModel(target), rows, lengths, torch.zeros(4))
    for row, length in enumerate(lengths.tolist()):
        expected = plain_greedy(target, rows[row : row + 1, :length], 16 - length)
        assert torch.equal(out[row], expected[0])


def test_draws_follow_the_target(target, drafter):
    """Chi-square of the second new token against the exact distribution."""
    serving, count = ServingModel(target), 4000
    rows = prompts(1).expand(count, -1)
    passes = DraftLoop(serving, ServingDSpark(drafter, serving), rows, 2, temperature=1.0).run(1)
    first = torch.softmax(target(prompts(1))[0, -1], -1)
    longer = torch.cat([prompts(1).expand(24, -1), torch.arange(24)[:, None]], 1)
    second = first @ torch.softmax(target(longer)[:, -1], -1)
    for place, p in ((5, first), (6, second)):
        seen = torch.bincount(passes.ids[:, place], minlength=24).double()
        likely = p * count >= 5
        rest = torch.stack([seen[~likely].sum(), p[~likely].sum() * count])
        chi = ((seen - p * count)[likely] ** 2 / (p * count)[likely]).sum()
        chi += (rest[0] - rest[1]) ** 2 / rest[1].clamp_min(1)
        assert chi < 60, place  # 23 degrees of freedom: 1 in 30,000
    assert 0.1 < passes.accepted.float().mean() < 2.9


def test_summary_counts_tokens_and_passes(target, drafter):
    serving = ServingModel(target)
    by_domain = {"a": prompts(3), "b": prompts(3)}
    passes = DraftLoop(serving, ServingDSpark(drafter, serving), prompts(3).repeat(2, 1), 12).run()
    table = summarise(passes, by_domain, eos_id=-1)
    assert table["a"] == table["b"]
    rows = passes.sequence < 3
    assert table["a"]["passes"] == int(rows.sum())
    mean = 1 + float(passes.accepted[rows].float().mean())
    assert table["a"]["accepted_length"] == pytest.approx(mean, abs=1e-4)
    assert table["a"]["to_end"] <= table["a"]["accepted_length"]
    share = table["a"]["by_position"]
    assert mean == pytest.approx(1 + share[0] * (1 + share[1] * (1 + share[2])), abs=1e-3)
