"""Balance against oracles, on random and adversarial loads; and what a placement promises."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minimoe.parallel import eplb
from minimoe.parallel import placement as pl
from minimoe.parallel.eplb_naive import greedy_naive, pack_naive, peak_naive, replicate_naive

# Loads and result of DeepSeek's EPLB README: 12 experts in 4 groups, 16 slots, 8 GPUs on 2 nodes
README_LOAD = [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86]
README_SLOTS = [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1]


def zipf_loads(rng, layers=58, experts=256, tokens=200_000) -> np.ndarray:
    """`[L, E]`: a Zipf law of a random exponent over experts in random order, one draw a layer."""
    weight = 1 / np.arange(1, experts + 1) ** rng.uniform(0.3, 1.3)
    weight /= weight.sum()
    rows = [rng.multinomial(tokens, rng.permutation(weight)) for _ in range(layers)]
    return np.array(rows, dtype=float)


def published_greedy(load: np.ndarray, slots: int, ranks: int) -> np.ndarray:
    """Peak to mean `[L]` of the greedy that the README shows, without our constraint and swaps.
    (Numbering the copies, in place of the experts, lets two of an expert share a rank.)"""
    expert, copies = eplb.replicate(load, slots, most=slots)
    weight = np.take_along_axis(load / copies, expert, 1)
    packed = eplb.pack(weight, np.tile(np.arange(slots), (len(load), 1)), ranks)
    busy = np.take_along_axis(weight[:, None], packed, 2).sum(2)
    return busy.max(1) / busy.mean(1)


def duplicates(placement: pl.Placement) -> int:
    """Experts that a rank holds twice, counted over layers and ranks."""
    held = placement.slots.reshape(placement.layers, placement.ranks, -1)
    return sum(len(rank) - len(set(rank)) for layer in held.tolist() for rank in layer)


def test_readme_vector():
    got = eplb.hierarchical(np.array([README_LOAD], dtype=float), 16, groups=4, nodes=2, ranks=8)
    assert got.tolist() == [README_SLOTS]


def test_hierarchical_refuses_what_does_not_divide():
    with pytest.raises(ValueError, match="each node needs as many groups"):
        eplb.hierarchical(np.ones((1, 12)), 16, groups=3, nodes=2, ranks=8)


loads = st.lists(st.integers(0, 50), min_size=4, max_size=10)


@settings(max_examples=60, deadline=None)
@given(loads, st.integers(1, 4), st.integers(0, 2))
def test_fast_steps_equal_the_plain_ones(load, ranks, spares):
    slots = pl.slots_for(len(load), ranks, spares)
    expert, copies = eplb.replicate(np.array([load], dtype=float), slots, most=slots)
    assert (expert[0].tolist(), copies[0].tolist()) == replicate_naive(load, slots)
    weight = [load[e] / copies[0][e] for e in expert[0]]
    packed = eplb.pack(np.array([weight]), np.arange(slots)[None], ranks)
    assert packed[0].tolist() == pack_naive(weight, ranks)


@settings(max_examples=100, deadline=None)
@given(st.lists(loads, min_size=1, max_size=3), st.integers(1, 4), st.integers(0, 3))
def test_what_every_placement_keeps(rows, ranks, spares):
    experts = min(map(len, rows))
    load = np.array([row[:experts] for row in rows], dtype=float)
    slots = min(pl.slots_for(experts, ranks, spares), experts * ranks)
    placement = pl.balance(load, ranks, slots)
    assert placement.copies().min() >= 1 and duplicates(placement) == 0
    busy = pl.rank_load(placement, load)
    assert np.allclose(busy.sum(1), load.sum(1))  # no token twice, none lost
    assert (pl.peak_to_mean(placement, load) >= 1 - 1e-9).all()
    even = pl.with_even_shares(placement.slots, ranks, experts)
    for layer, row in enumerate(load.tolist()):
        held = even.slots[layer].reshape(ranks, -1).tolist()
        assert pl.peak_to_mean(even, load)[layer] == pytest.approx(peak_naive(row, held))


@settings(max_examples=60, deadline=None)
@given(loads, st.integers(2, 4), st.integers(0, 2))
def test_published_greedy_is_the_naive_one(load, ranks, spares):
    slots = pl.slots_for(len(load), ranks, spares)
    naive = peak_naive(load, greedy_naive(load, slots, ranks))
    if sum(load):
        fast = published_greedy(np.array([load], dtype=float), slots, ranks)[0]
        assert fast == pytest.approx(naive)


def test_near_the_best_of_all_placements():
    """Every way to fill 2 ranks of 3 slots with 5 experts, one of them twice."""
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(40):
        load = rng.integers(1, 50, 5).astype(float)
        best = min(
            peak_naive(load.tolist(), [list(one), list(two)])
            for one, two in itertools.product(itertools.combinations(range(5), 3), repeat=2)
            if len({*one, *two}) == 5  # each expert somewhere
        )
        gaps.append(pl.peak_to_mean(pl.balance(load[None], 2, 6), load[None])[0] / best)
    assert np.mean(gaps) < 1.02 and max(gaps) < 1.15


@pytest.mark.parametrize(
    "load",
    [
        [1000, 0, 0, 0, 0, 0, 0, 0],
        [1000, 999, 0, 0, 0, 0, 0, 0],
        [0] * 8,
        [5] * 8,
        [1000, 1, 1, 1, 1, 1, 1, 1],
        [8, 7, 6, 5, 4, 3, 2, 1],
    ],
)
@pytest.mark.parametrize("ranks, slots", [(4, 8), (4, 12), (4, 32), (2, 14), (8, 64), (3, 9)])
def test_adversarial_loads_keep_copies_apart(load, ranks, slots):
    load = np.array([load], dtype=float)
    placement = pl.balance(load, ranks, slots)
    assert duplicates(placement) == 0 and placement.copies().min() >= 1
    if slots == 8 * ranks:  # every rank can hold every expert
        assert pl.peak_to_mean(placement, load)[0] == pytest.approx(1)


def test_separate_mends_what_swaps_cannot():
    """Both ranks hold the same two experts twice: only dealing anew helps."""
    expert = np.array([[0, 0, 1, 1]])
    packed = eplb.separate(np.array([[[0, 1], [2, 3]]]), np.ones((1, 4)), expert)
    assert sorted(expert[0][packed[0, 0]]) == sorted(expert[0][packed[0, 1]]) == [0, 1]


def compare_with_greedy(seeds, slots, ranks, load_of=zipf_loads):
    """(ours, greedy), each (mean, worst) over all layers."""
    ours, greedy = [], []
    for seed in seeds:
        load = load_of(np.random.default_rng(seed))
        placement = pl.balance(load, ranks, slots)
        assert duplicates(placement) == 0
        ours.append(pl.peak_to_mean(placement, load))
        greedy.append(published_greedy(load, slots, ranks))
    return [(np.mean(peaks), np.max(peaks)) for peaks in (ours, greedy)]


@pytest.mark.parametrize("slots, ranks", [(288, 32), (320, 64)])
def test_no_worse_than_the_published_greedy(slots, ranks):
    ours, greedy = compare_with_greedy(range(8), slots, ranks)
    assert ours[0] <= greedy[0] and ours[1] <= greedy[1] + 1e-12


@pytest.mark.soak
@pytest.mark.parametrize("slots, ranks", [(288, 32), (320, 64)])
def test_no_worse_than_the_published_greedy_100_times(slots, ranks, capsys):
    ours, greedy = compare_with_greedy(range(1000, 1100), slots, ranks)
    with capsys.disabled():
        print(
            f"\n{slots} slots, {ranks} ranks: mean {ours[0]:.4f} against {greedy[0]:.4f}, ", end=""
        )
        print(f"worst {ours[1]:.4f} against {greedy[1]:.4f}")
    assert ours[0] <= greedy[0] and ours[1] <= greedy[1] + 1e-12


def test_58_layers_take_no_time():
    load = zipf_loads(np.random.default_rng(0))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        pl.balance(load, 32, 288)
        times.append(time.perf_counter() - start)
    assert min(times) < 1.0  # 0.03 s on a quiet core


# ---- copies take turns


@settings(max_examples=50, deadline=None)
@given(st.lists(loads, min_size=1, max_size=2), st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_cycle_gives_each_copy_its_share(rows, ranks, spares, slow):
    experts = min(map(len, rows))
    load = np.array([row[:experts] for row in rows], dtype=float)
    slots = min(pl.slots_for(experts, ranks, spares), experts * ranks)
    speed = np.where(np.arange(ranks) == 0, 0.5, 1.0) if slow else None
    placement = pl.balance(load, ranks, slots, speed)
    for layer, expert in itertools.product(range(len(load)), range(experts)):
        turns = placement.cycle[layer, expert]
        assert (placement.slots[layer][turns] == expert).all()
        given_to = np.bincount(turns, minlength=slots) / pl.CYCLE
        share = np.where(placement.slots[layer] == expert, placement.share[layer], 0)
        assert np.abs(given_to - share).max() <= 1 / pl.CYCLE + 1e-9
        even = pl.with_even_shares(placement.slots, ranks, experts)
        if pl.CYCLE % placement.copies()[layer, expert] == 0:
            turns = np.bincount(even.cycle[layer, expert], minlength=slots)
            assert len(set(turns[turns > 0])) == 1  # exactly even


def test_few_tokens_in_a_row_are_spread_out():
    placement = pl.with_even_shares(np.array([[0, 0, 0, 1]]), 4, 2)
    for start in range(pl.CYCLE):
        turns = np.take(placement.cycle[0, 0], range(start, start + 6), mode="wrap")
        assert set(turns) == {0, 1, 2}


# ---- speed


def test_slow_rank_gets_half_the_tokens():
    rng = np.random.default_rng(1)
    load = np.stack([rng.permutation(zipf_loads(rng, 1, 64)[0]) for _ in range(5)])
    speed = np.array([1.0] * 7 + [0.5])
    blind, aware = pl.balance(load, 8, 80), pl.balance(load, 8, 80, speed)
    assert pl.peak_to_mean(blind, load, speed).min() > 1.8  # 2 x 7.5 / 8
    assert pl.peak_to_mean(aware, load, speed).max() < 1.03
    assert duplicates(aware) == 0 and (aware.share >= 0).all()


def fitted(slots, load, speed, sweeps=30):
    """Even shares, then water-filling alone: (before, after)."""
    ranks, experts = len(speed), load.shape[1]
    even = pl.with_even_shares(slots, ranks, experts)
    kind = slots.reshape(1, ranks, -1)
    share = even.share.reshape(kind.shape).copy()
    eplb.fit_shares(kind, share, load, np.array(speed, dtype=float), sweeps)
    return even, pl.Placement(slots, share.reshape(1, -1), ranks, experts)


@settings(max_examples=60, deadline=None)
@given(loads, st.lists(st.sampled_from([0.25, 0.5, 1.0]), min_size=2, max_size=4))
def test_fitted_shares_sum_to_one_and_are_never_worse(load, speed):
    load = np.array([load], dtype=float)
    slots = min(pl.slots_for(load.shape[1], len(speed), 1), load.shape[1] * len(speed))
    even, after = fitted(pl.balance(load, len(speed), slots).slots, load, speed)
    assert np.allclose(np.bincount(after.slots[0], after.share[0]), 1)
    peaks = [pl.peak_to_mean(placement, load, speed)[0] for placement in (even, after)]
    assert peaks[1] <= peaks[0] + 1e-9


def test_tokens_fill_ranks_like_water():
    """Expert 0 is on three ranks, which have 0, 4 and 100 tokens of other experts."""
    load = np.array([[10.0, 4.0, 100.0, 0.0]])
    _, after = fitted(np.array([[0, 3, 0, 1, 0, 2]]), load, [1, 1, 1])
    assert pl.rank_load(after, load)[0].tolist() == pytest.approx([7, 7, 100])
    _, after = fitted(np.array([[0, 3, 0, 1, 0, 2]]), load, [1, 0.5, 1])
    assert pl.rank_load(after, load)[0].tolist() == pytest.approx([28 / 3, 14 / 3, 100])


def test_shares_reach_the_least_possible_peak():
    """A chain: 0 with 1 on ranks 0 and 1, 1 with 2 on 1 and 2. Only shares can even it out."""
    load = np.array([[9.0, 3.0, 0.0]])
    _, after = fitted(np.array([[0, 2, 0, 1, 1, 2]]), load, [1, 1, 1])
    assert pl.peak_to_mean(after, load)[0] == pytest.approx(4.5 / 4)


# ---- adjusting


def drifted(load, part, rng):
    return (1 - part) * load + part * np.stack([rng.permutation(row) for row in load])


@pytest.mark.parametrize("layers, experts, ranks, slots", [(40, 384, 64, 448), (5, 64, 8, 72)])
def test_a_few_exchanges_do_nearly_as_well_as_a_new_layout(layers, experts, ranks, slots):
    rng = np.random.default_rng(0)
    popular = 1e4 / np.arange(1, experts + 1) ** 0.5
    load = np.stack([rng.permutation(popular) for _ in range(layers)])
    later = drifted(load, 0.2, rng)
    old = pl.balance(load, ranks, slots)
    peaks, moved = {}, {}
    for name, new in {
        "kept": old,
        "shares": pl.adjust(old, later, exchanges=0),
        "adjusted": pl.adjust(old, later),
        "fresh": pl.balance(later, ranks, slots),
    }.items():
        peaks[name] = pl.peak_to_mean(new, later).mean()
        moved[name] = len(pl.moves(old, new)) / old.slots.size
        assert duplicates(new) == 0
    assert peaks["kept"] > peaks["shares"] > peaks["adjusted"] < 1.03
    assert moved["shares"] == 0 and 2.5 * moved["adjusted"] < moved["fresh"]


def test_adjusting_to_speed():
    load = np.random.default_rng(1).uniform(50, 150, (3, 64))
    speed = np.array([1.0] * 7 + [0.5])
    before = pl.balance(load, 8, 80)
    after = pl.adjust(before, load, exchanges=24, speed=speed)
    assert pl.peak_to_mean(after, load, speed).max() < 1.1


def test_adjust_refuses_another_shape():
    with pytest.raises(pl.PlacementError, match="the placement has 2 layers x 4 experts"):
        pl.adjust(pl.in_order(2, 4, 2), np.ones((1, 4)))


# ---- the rest


def test_moves_and_window():
    before = pl.in_order(2, 4, 2)
    after = pl.with_even_shares(np.array([[0, 1, 2, 3], [1, 0, 2, 3]]), 2, 4)
    assert pl.moves(before, after) == [(1, 0, 1), (1, 1, 0)]
    with pytest.raises(pl.PlacementError, match="keep layers and slots"):
        pl.moves(before, pl.in_order(2, 4, 4, 8))
    window = pl.Window(1, 2, steps=2)
    for count in ([1, 0], [0, 5], [3, 0]):
        window.add(np.array([count]))
    assert window.load().tolist() == [[3, 5]]


@pytest.mark.parametrize("experts, ranks, slots", [(7, 3, 9), (64, 3, 66), (8, 8, 8), (5, 4, 8)])
def test_ranks_that_do_not_divide_the_experts(experts, ranks, slots):
    assert pl.slots_for(experts, ranks) == slots
    for placement in (
        pl.in_order(1, experts, ranks),
        pl.balance(np.ones((1, experts)), ranks, slots),
    ):
        assert placement.slots.shape == (1, slots) and duplicates(placement) == 0


@pytest.mark.parametrize(
    "load, ranks, slots, speed, says",
    [
        (np.ones((1, 4)), 5, 5, None, "use 1 to 4 ranks"),
        (np.ones((1, 4)), 0, 4, None, "use 1 to 4 ranks"),
        (np.ones((1, 7)), 3, 10, None, "a multiple, such as 12"),
        (np.ones((1, 8)), 4, 4, None, "use 8 to 32"),
        (np.ones((1, 2)), 2, 6, None, "use 2 to 4"),
        (np.ones(4), 2, 4, None, "layers x experts"),
        (np.array([[1.0, -1.0]]), 2, 2, None, "negative or missing"),
        (np.array([[1.0, np.nan]]), 2, 2, None, "negative or missing"),
        (np.ones((1, 4)), 2, 4, [1.0, 0.0], "above 0"),
        (np.ones((1, 4)), 2, 4, [1.0], "above 0"),
    ],
)
def test_bad_input_is_one_clear_line(load, ranks, slots, speed, says):
    with pytest.raises(pl.PlacementError, match=says) as error:
        pl.balance(load, ranks, slots, speed)
    assert "\n" not in str(error.value)


def test_an_expert_without_a_slot():
    with pytest.raises(pl.PlacementError, match="expert 2 of layer 0 has no slot"):
        pl.with_even_shares(np.array([[0, 1, 1, 0]]), 2, 3)
