"""One expert layer over real ranks: results, bytes, moves, and a slow rank."""

import numpy as np
import pytest
import rank_functions as on_rank
import torch

from minimoe.ops.grouped_experts import experts_naive
from minimoe.parallel import layer
from minimoe.parallel.placement import in_order, slots_for, with_even_shares
from minimoe.parallel.supervisor import RankError, Ranks, RanksLost
from minimoe.parallel.tally import exchange_bytes

E, K, D, F = 7, 2, 16, 8


@pytest.fixture(scope="module")
def ranks():
    with Ranks(3, timeout=20) as group:
        yield group


def build(ranks, placement):
    ranks.call(layer.build, placement, D=D, F=F, K=K, dtype=torch.float64)


def all_weights(ranks, placement):
    """`gate_up [E, 2F, D]` and `down [E, D, F]`, whoever holds them now."""
    parts = [torch.cat(part) for part in zip(*ranks.call(on_rank.weights), strict=True)]
    first = [placement.slots[0].tolist().index(expert) for expert in range(placement.experts)]
    for part in parts:  # copies are equal
        torch.testing.assert_close(part, part[first][placement.slots[0]], rtol=0, atol=0)
    return [part[first] for part in parts]


def shuffled(seed: int, slots: int = 12):
    """Seven experts and copies, anywhere."""
    random = np.random.default_rng(seed)
    row = np.concatenate([np.arange(E), random.integers(0, E, slots - E)])
    return with_even_shares(random.permutation(row)[None], 3, E)


@pytest.mark.parametrize("tokens", [(5, 0, 3), (0, 0, 0), (0, 9, 0), (1, 1, 1)])
@pytest.mark.parametrize("spare", [0, 1])
def test_results_and_bytes(ranks, tokens, spare):
    placement = in_order(1, E, 3, slots_for(E, 3, spare))
    build(ranks, placement)
    weights = all_weights(ranks, placement)
    found = ranks.call(on_rank.exchange, tokens)
    for one in found:
        torch.testing.assert_close(one["out"], experts_naive(*one["work"], *weights))
        ids = one["work"][1].flatten()
        assert one["load"].tolist() == torch.bincount(ids, minlength=E).tolist()
    want = exchange_bytes([one["pairs"] for one in found], placement.per_rank, D, 8)
    got = [{kind: tuple(both) for kind, both in one["bytes"].items()} for one in found]
    assert got == want
    assert sum(sum(one["pairs"]) for one in found) == sum(tokens) * K


def test_moving_experts_changes_no_result(ranks):
    old = in_order(1, E, 3, slots_for(E, 3, 1))
    build(ranks, old)
    weights = all_weights(ranks, old)
    before = ranks.call(on_rank.exchange, (4, 0, 6))
    for seed, slots in ((0, 12), (1, 12), (2, 9), (3, 15)):
        new = shuffled(seed, slots)
        received = ranks.call(layer.place, new)
        for part, want in zip(all_weights(ranks, new), weights, strict=True):
            torch.testing.assert_close(part, want, rtol=0, atol=0)
        assert sum(received) % (3 * D * F * 8) == 0, "whole experts travel"
        after = ranks.call(on_rank.exchange, (4, 0, 6))
        for one, other in zip(before, after, strict=True):
            torch.testing.assert_close(one["out"], other["out"])
    assert sum(ranks.call(layer.place, new)) == 0, "nothing moves where nothing changes"


def test_a_placement_that_does_not_fit_is_refused_by_all(ranks):
    build(ranks, in_order(1, E, 3))
    with pytest.raises(RankError, match="does not fit"):
        ranks.call(layer.place, in_order(1, E, 2))
    ranks.call(on_rank.exchange, (1, 2, 3))


def test_a_slow_rank_takes_longer_and_the_others_wait(ranks):
    placement = in_order(1, 6, 3)
    ranks.call(layer.build, placement, D=256, F=256, K=2)
    even = ranks.call(layer.run, tokens=256, repeats=5)
    ranks.call_each(layer.slow, [(1.0,), (4.0,), (1.0,)])
    slow = ranks.call(layer.run, tokens=256, repeats=5)
    assert slow[1]["own"] > 1.5 * even[1]["own"]
    assert slow[0]["waiting"] > slow[1]["waiting"]
    for one, other in zip(even, slow, strict=True):
        assert one["rows"] == other["rows"]
        torch.testing.assert_close(one["output"], other["output"])


def test_a_rank_killed_while_experts_move():
    with Ranks(3, timeout=10) as group:
        build(group, in_order(1, E, 3))
        with pytest.raises(RanksLost) as lost:
            group.call(on_rank.die_while_moving, 1, in_order(1, E, 3, 12))
        assert lost.value.ranks == [1]
        assert group.reform() == 2
        group.call(layer.build, in_order(1, E, 2), D=D, F=F, K=K, dtype=torch.float64)
        group.call(on_rank.exchange, (2, 2))
