import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minimoe.training.balance import (
    expert_load,
    load_spread,
    sequence_loss,
    total_variation,
    update_bias,
)


def random_routing(tokens, experts, k, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(tokens, experts, generator=generator)
    return scores, scores.topk(k).indices


def sequence_loss_by_loops(scores, ids, sequences, real):
    """The definition, one token and one expert at a time."""
    (tokens, experts), k = scores.shape, ids.shape[1]
    length, total = tokens // sequences, 0.0
    for s in range(sequences):
        rows = [t for t in range(s * length, (s + 1) * length) if real[t]]
        for expert in range(experts):
            chosen = sum(expert in ids[t].tolist() for t in rows)
            probability = sum(float(scores[t, expert] / scores[t].sum()) for t in rows)
            count = max(len(rows), 1)
            total += chosen * experts / (k * count) * probability / count
    return total / sequences


@settings(max_examples=30, deadline=None)
@given(
    sequences=st.integers(1, 3), length=st.integers(1, 5), experts=st.integers(2, 6),
    seed=st.integers(0, 999), padded=st.booleans(),
)  # fmt: skip
def test_sequence_loss_equals_its_definition(sequences, length, experts, seed, padded):
    k = min(2, experts)
    scores, ids = random_routing(sequences * length, experts, k, seed)
    generator = torch.Generator().manual_seed(seed)
    real = torch.rand(len(ids), generator=generator) > 0.4 if padded else None
    expected = sequence_loss_by_loops(
        scores, ids, sequences, real if padded else torch.ones(len(ids), dtype=torch.bool)
    )
    loss = sequence_loss(scores, ids, sequences, real)
    assert float(loss) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_sequence_loss_is_one_when_even_and_larger_when_not():
    scores = torch.full((4, 4), 0.5)
    even = torch.tensor([[0], [1], [2], [3]])
    assert float(sequence_loss(scores, even, 1)) == pytest.approx(1.0)
    hot = torch.tensor([[0.9, 0.1, 0.1, 0.1]]).expand(4, 4)
    assert float(sequence_loss(hot, torch.zeros(4, 1, dtype=torch.long), 1)) > 2


def test_its_gradient_lowers_the_score_of_the_busy_expert():
    scores = torch.full((8, 4), 0.5, requires_grad=True)
    sequence_loss(scores, torch.zeros(8, 1, dtype=torch.long), 2).backward()
    assert (scores.grad[:, 0] > 0).all() and (scores.grad[:, 1:] < 0).all()


def test_rows_that_do_not_divide_are_refused():
    scores, ids = random_routing(5, 4, 2)
    with pytest.raises(ValueError, match="5 tokens are not 2 sequences"):
        sequence_loss(scores, ids, 2)


def test_load_counts_every_choice_and_no_padding():
    _, ids = random_routing(8, 6, 2)
    real = torch.tensor([True] * 5 + [False] * 3)
    assert expert_load(ids, 6).sum() == 16
    assert torch.equal(expert_load(ids, 6, real), expert_load(ids[:5], 6))
    assert expert_load(ids, 6, real).sum() == 5 * 2


def test_bias_rises_for_idle_experts_and_falls_for_busy_ones():
    bias = torch.zeros(4)
    update_bias(bias, torch.tensor([10, 2, 6, 6]), 0.01)
    assert torch.allclose(bias, torch.tensor([-0.01, 0.01, 0.0, 0.0]))


def test_bias_moves_by_the_rate_and_need_not_sum_to_zero():
    bias = torch.tensor([0.5, 0.5, 0.5, 0.5])
    update_bias(bias, torch.tensor([97, 1, 1, 1]), 0.1)  # one busy, three idle
    assert torch.allclose(bias, torch.tensor([0.4, 0.6, 0.6, 0.6]))
    assert bias.sum() > 2.0


def test_repeated_updates_even_out_a_skewed_router():
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(512, 8, generator=generator) * 0.2 + torch.linspace(0, 0.6, 8)
    bias, spread = torch.zeros(8), []
    for _ in range(150):
        load = expert_load((scores + bias).topk(2).indices, 8)
        spread.append(load_spread(load)["max"])
        update_bias(bias, load, 0.01)
    assert spread[0] > 3 and spread[-1] < 1.3


def test_total_variation_of_equal_disjoint_and_half():
    a, b = torch.tensor([2, 2, 0, 0]), torch.tensor([0, 0, 5, 5])
    assert total_variation(a, a) == 0
    assert total_variation(a, b) == 1
    assert total_variation(a, torch.tensor([1, 1, 1, 1])) == pytest.approx(0.5)
