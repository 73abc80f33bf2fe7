"""Dispatch over virtual ranks: every row comes home, and every byte is in the formula."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minimoe.errors import MinimoeError
from minimoe.ops.grouped_experts import experts_naive
from minimoe.parallel.dispatch import SlotTable, VirtualExperts, check_placement
from minimoe.parallel.placement import CYCLE, Placement, in_order, slots_for, with_even_shares
from minimoe.parallel.tally import exchange_bytes
from minimoe.parallel.wire import VirtualWire

D, F = 6, 4


def weights_of(experts, seed=0, dtype=torch.float64):
    random = torch.Generator().manual_seed(seed)
    gate_up = torch.randn(experts, 2 * F, D, generator=random, dtype=dtype)
    return gate_up, torch.randn(experts, D, F, generator=random, dtype=dtype)


def routed(tokens, experts, K, seed=0):
    """`x`, distinct `ids` and `weights` of some tokens."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, D, generator=random, dtype=torch.float64)
    even = torch.ones(experts).expand(max(1, tokens), -1)
    ids = torch.multinomial(even, K, generator=random)[:tokens]
    return x, ids, torch.rand(tokens, K, generator=random, dtype=torch.float64)


def run(placement, per_rank):
    """One entry of (x, ids, weights) per rank; gives outputs and the wire."""
    wire = VirtualWire(placement.ranks)
    layer = VirtualExperts(0, placement, *weights_of(placement.experts), wire)
    return layer.exchange(*zip(*per_rank, strict=True)), layer, wire


def assert_right(outputs, per_rank, experts):
    for out, (x, ids, weights) in zip(outputs, per_rank, strict=True):
        want = experts_naive(x, ids, weights, *weights_of(experts))
        torch.testing.assert_close(out, want)


@pytest.mark.parametrize("tokens", [(5, 0, 0, 0), (0, 0, 7, 0), (0, 0, 0, 0), (1, 2, 3, 4)])
@pytest.mark.parametrize("experts, spare", [(8, 0), (7, 0), (8, 1), (4, 2)])
def test_ranks_with_few_tokens_or_none(tokens, experts, spare):
    placement = in_order(1, experts, 4, slots_for(experts, 4, spare))
    per_rank = [routed(T, experts, 2, seed) for seed, T in enumerate(tokens)]
    outputs, *_ = run(placement, per_rank)
    assert_right(outputs, per_rank, experts)


@st.composite
def cases(draw):
    ranks = draw(st.integers(1, 5))
    experts = draw(st.integers(ranks, 9))
    K = draw(st.integers(1, min(3, experts)))
    slots = slots_for(experts, ranks, draw(st.integers(0, 2)))
    seed = draw(st.integers(0, 99))
    extra = np.random.default_rng(seed).integers(0, experts, slots - experts)
    row = np.random.default_rng(seed).permutation(np.concatenate([np.arange(experts), extra]))
    placement = with_even_shares(row[None], ranks, experts)
    tokens = draw(st.lists(st.integers(0, 6), min_size=ranks, max_size=ranks))
    return placement, [routed(T, experts, K, seed + r) for r, T in enumerate(tokens)]


@given(cases())
def test_any_placement_gives_the_dense_result_and_the_bytes_of_the_formula(case):
    placement, per_rank = case
    outputs, layer, wire = run(placement, per_rank)
    assert_right(outputs, per_rank, placement.experts)
    want = exchange_bytes(naive_pairs(placement, per_rank), placement.per_rank, D, 8)
    counts = (placement.ranks - 1) * placement.per_rank * 8  # virtual ranks send no header
    for found, formula in zip(wire.bytes, want, strict=True):
        assert found["dispatch"] == list(formula["dispatch"])
        assert found["combine"] == list(formula["combine"])
        assert found["counts"] == [counts, counts]


def naive_pairs(placement, per_rank):
    """`[P][P]` by going through the pairs one by one, with the placement's own cycle."""
    P = placement.ranks
    pairs = [[0] * P for _ in range(P)]
    for rank, (_, ids, _) in enumerate(per_rank):
        seen = [rank] * placement.experts
        for expert in ids.flatten().tolist():
            slot = placement.cycle[0, expert, seen[expert] % CYCLE]
            pairs[rank][slot // placement.per_rank] += 1
            seen[expert] += 1
    return pairs


def test_local_counts_and_global_ids_are_not_confused():
    placement = in_order(1, 8, 4)
    x = torch.randn(3, D, dtype=torch.float64)
    ids = torch.tensor([[2, 3], [0, 5], [2, 7]])
    for home in range(4):
        per_rank = [routed(0, 8, 2)] * 4
        per_rank[home] = (x, ids, torch.ones(3, 2, dtype=torch.float64))
        outputs, *_ = run(placement, per_rank)
        assert_right(outputs, per_rank, 8)


def test_a_replicated_expert_is_summed_once():
    placement = with_even_shares(np.array([[0, 1, 0, 2]]), ranks=2, experts=3)
    per_rank = [routed(4, 3, 3, seed) for seed in (1, 2)]  # every token uses all three
    outputs, *_ = run(placement, per_rank)
    assert_right(outputs, per_rank, 3)


def test_copies_share_the_tokens_evenly_from_step_to_step():
    placement = with_even_shares(np.array([[0, 1, 0, 1]]), ranks=2, experts=2)
    table = SlotTable(placement, 0)
    one_token = torch.zeros(1, 1, dtype=torch.long)
    taken = [table.choose(one_token).item() for _ in range(CYCLE)]
    assert sorted(set(taken)) == [0, 2]
    assert taken.count(0) == CYCLE // 2


def test_uneven_shares_are_kept():
    slots = np.array([[0, 1, 0, 1]])
    placement = Placement(slots, np.array([[0.75, 0.5, 0.25, 0.5]]), 2, 2)
    chosen = SlotTable(placement, 0).choose(torch.zeros(CYCLE, 1, dtype=torch.long))
    assert (chosen == 0).sum().item() == CYCLE * 3 // 4


@pytest.mark.parametrize("row", ["all", "one", "equal"])
def test_a_row_of_nans_spoils_no_other(row):
    """The router's ids stay in range and distinct, whatever the scores are."""
    from models import small_config

    from minimoe.model.moe import choose

    config = small_config(n_routed_experts=8, num_experts_per_tok=2)
    scores = torch.rand(3, 8, dtype=torch.float64)
    scores[1, :] = 0.5 if row == "equal" else scores[1]
    scores[1, : 8 if row == "all" else 1] = float("nan") if row != "equal" else 0.5
    ids, weights = choose(scores, torch.zeros(8, dtype=torch.float64), config)
    assert all(len(set(chosen)) == 2 and max(chosen) < 8 for chosen in ids.tolist())
    x = torch.randn(3, D, dtype=torch.float64)
    (out, _), *_ = run(in_order(1, 8, 2), [(x, ids, weights), routed(0, 8, 2)])
    want = experts_naive(x, ids, weights, *weights_of(8))
    torch.testing.assert_close(out[[0, 2]], want[[0, 2]])


def test_a_call_deals_rows_out_to_64_ranks():
    placement = in_order(1, 128, 64)
    layer = VirtualExperts(0, placement, *weights_of(128), VirtualWire(64))
    x, ids, weights = routed(100, 128, 4)
    torch.testing.assert_close(
        layer(x, ids, weights), experts_naive(x, ids, weights, *weights_of(128))
    )


def test_more_ranks_than_experts():
    with pytest.raises(MinimoeError, match="9 ranks for 8 experts"):
        in_order(1, 8, 9)


@pytest.mark.parametrize(
    "placement, says",
    [
        (in_order(2, 8, 4), "does not fit"),
        (in_order(1, 8, 2), "does not fit"),
        (Placement(np.array([[0, 1, 2, 3, 4, 5, 6, 6]]), np.ones((1, 8)), 4, 8), "missing"),
        (Placement(np.array([[0, 1, 2, 3, 4, 5, 6, 9]]), np.ones((1, 8)), 4, 8), "wrong"),
    ],
)
def test_a_placement_that_does_not_fit(placement, says):
    with pytest.raises(MinimoeError, match=says):
        check_placement(placement, 1, 8, 4)
