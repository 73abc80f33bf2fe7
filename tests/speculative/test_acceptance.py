"""Accepting drafts: against an oracle, against exact distributions, and beside broken rules."""

import pytest
import torch
from scipy import stats

from minimoe.course.acceptance_lab import (
    BROKEN,
    make_world,
    one_hot_rule,
    p_value,
    run,
)
from minimoe.speculative.acceptance import (
    Block,
    check_block,
    check_naive,
    matching,
    one_hot,
    overlap,
    overlap_of_match,
)

SURE = 1e-3  # a right rule fails a test this seldom; seeds are fixed, so it never does here


def random_block(seed: int, requests: int = 12, vocab: int = 7, length: int = 4):
    """Ragged counts, some probabilities of zero, some q equal to p."""
    numbers = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, length + 1, (requests,), generator=numbers)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), (1 + counts).cumsum(0)[:-1]])

    def rows(*shape):
        values = torch.rand(*shape, vocab, generator=numbers, dtype=torch.float64)
        values = values * (torch.rand(*shape, vocab, generator=numbers) < 0.7) + 1e-12
        return values / values.sum(-1, keepdim=True)

    p, q = rows(int((1 + counts).sum())), rows(requests, length)
    for b in range(0, requests, 3):
        if counts[b]:
            q[b, 0] = p[starts[b]]
    ids = torch.multinomial(q.flatten(0, 1), 1, generator=numbers).view(requests, length)
    return Block(starts, counts, ids, q), p


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_oracle(seed):
    block, p = random_block(seed)
    numbers = torch.Generator().manual_seed(seed)
    uniform = torch.rand(block.ids.shape, generator=numbers, dtype=torch.float64)
    accepted = block.accepted(p, uniform)
    weights = block.last(p, accepted)
    for b, (start, count) in enumerate(zip(block.starts, block.counts, strict=True)):
        seen = []
        made = check_naive(
            p[start : start + count + 1].tolist(),
            block.q[b].tolist(),
            block.ids[b, :count].tolist(),
            uniform[b].tolist(),
            lambda w, seen=seen: seen.append(w) or -1,
        )
        assert made == [*block.ids[b, : accepted[b]].tolist(), -1]
        torch.testing.assert_close(weights[b], torch.tensor(seen[0], dtype=torch.float64))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("greedy", [False, True])
def test_pairs_of_tokens_are_distributed_as_the_target_says(seed, greedy):
    world = make_world(seed=seed)
    rule = one_hot_rule if greedy else check_block
    assert p_value(run(world, rule, seed=seed, greedy=greedy), world.expected()) > SURE


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rules_fail_the_same_test(name):
    world = make_world()
    assert p_value(run(world, BROKEN[name]), world.expected()) < 1e-9


def test_greedy_drafts_with_the_softmax_as_q_fail_it():
    world = make_world()
    assert p_value(run(world, check_block, greedy=True), world.expected()) < 1e-9


def test_a_draw_in_bfloat16_needs_the_q_of_bfloat16():
    """Logits that differ by less than bfloat16 tells apart: the draw knows no difference."""
    logits = torch.tensor([4.0, 4.01, 1.0])
    fine, rough = torch.softmax(logits, 0), torch.softmax(logits.bfloat16(), 0).float()
    assert rough[0] == rough[1] and abs(float(fine[0] - fine[1])) > 4e-3
    sharp = torch.softmax(40 * logits, 0)  # what would be drawn in float32 at a low temperature
    blunt = torch.softmax(40 * logits.bfloat16().float(), 0)
    true = make_world(first=([0.4, 0.5, 0.1], blunt.tolist()))
    wrong = make_world(first=([0.4, 0.5, 0.1], sharp.tolist()))
    wrong.q[1], wrong.p = true.q[1], true.p

    def with_fine_q(block, p, seeds, positions):
        block.q = block.q.clone()
        block.q[:, 0] = wrong.q[0]
        return check_block(block, p, seeds, positions)

    assert p_value(run(true, check_block), true.expected()) > SURE
    assert p_value(run(true, with_fine_q), true.expected()) < 1e-9


def test_p_value_is_that_of_scipy():
    counts = torch.tensor([30, 50, 20, 0])
    shares = torch.tensor([0.25, 0.5, 0.25, 0.0])
    want = stats.chisquare([30, 50, 20], [25, 50, 25]).pvalue
    assert abs(p_value(counts, shares) - want) < 1e-12
    assert p_value(torch.tensor([30, 50, 20, 1]), shares) == 0.0


def test_a_broken_q_counts_as_no_draft():
    p = torch.tensor([[0.7, 0.3], [0.5, 0.5]], dtype=torch.float64).repeat(4000, 1)
    starts = torch.arange(4000) * 2
    q = torch.full((4000, 1, 2), torch.nan, dtype=torch.float64)
    block = Block(starts, torch.ones(4000).long(), torch.zeros(4000, 1).long(), q)
    accepted, token = check_block(block, p, torch.arange(4000), torch.zeros(4000).long())
    assert not accepted.any()
    assert p_value(torch.bincount(token, minlength=2), p[0]) > SURE


def test_matching():
    assert matching([5, 6, 7, 8], [5, 6, 9]) == 2
    assert matching([5, 6, 7, 8], [5, 6, 7]) == 3
    assert matching([4], []) == 0
    assert matching([4, 4], [4, 4, 4]) == 1, "there must be a token to follow"


def test_how_often_each_rule_accepts():
    """Rejection keeps the overlap of p and q; shared noise keeps less, between two bounds."""
    numbers = torch.Generator().manual_seed(1)
    p, q = torch.rand(2, 5, generator=numbers, dtype=torch.float64)
    p, q = p / p.sum(), q / q.sum()
    noise = torch.rand(200_000, 5, generator=numbers, dtype=torch.float64).log().neg()
    agree = ((p / noise).argmax(-1) == (q / noise).argmax(-1)).double().mean()
    assert abs(float(agree) - float(overlap_of_match(p, q))) < 4e-3
    d = 1 - overlap(p, q)
    assert (1 - d) / (1 + d) <= overlap_of_match(p, q) <= overlap(p, q)
    one = one_hot(torch.tensor([2]), 5)[0].double()
    torch.testing.assert_close(overlap(p, one), p[2])
    torch.testing.assert_close(overlap_of_match(p, one), p[2])
