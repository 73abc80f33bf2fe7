"""The serving model: its clocks and its replay, and that rules meet the confidences they should."""

import numpy as np
import pytest

from minimoe.bench.serving_clock import GroupClock
from minimoe.bench.serving_model import (
    MIXES,
    compare,
    engine_rows,
    rule_makers,
    saved_times,
)
from minimoe.bench.serving_sim import OneEngine, Recording, Replay, simulate
from minimoe.bench.speculative import saved_rows
from minimoe.perf.step_cost import ep8, ep64
from minimoe.speculative.calibrate import Passes
from minimoe.speculative.calibration_fit import plain
from minimoe.speculative.rules import FixedLength, Threshold
from minimoe.speculative.step_times import StepTimes

G = 5


def passes_of(rates=(0.5, 0.9), each=400, seed=0):
    """Domains whose drafts are accepted at these rates, and known to be."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(len(rates)), each)
    rate = np.array(rates)[domain][:, None] * np.ones(G)
    accepted = np.cumprod(rng.random(rate.shape) < rate, axis=1).sum(1)
    odd = np.log(rate / (1 - rate))
    turn = np.arange(len(domain))
    names = tuple(f"d{i}" for i in range(len(rates)))
    return Passes(odd, 0 * odd, accepted, domain, turn // 9, turn, names)


def recording(passes):
    return Recording(passes, plain(G))


def line_times(token=0.1):
    sizes = (1, 4, 16, 64)
    return StepTimes(
        {n: 1 + token * n for n in sizes},
        {(n, n * (1 + k)): 1.3 + token * n * (1 + k) for n in sizes for k in range(G + 1)},
    )


def test_a_replay_keeps_the_mix_and_the_passes():
    passes = passes_of((0.2, 0.5, 0.8), each=50)
    replay = Replay(recording(passes), 8, mix=(2, 1, 1))
    confidence, accepted = replay.step(7)
    assert confidence.shape == (8, G) and accepted.shape == (8,)
    counts = [int((np.abs(confidence[:, 0] - rate) < 1e-9).sum()) for rate in (0.2, 0.5, 0.8)]
    assert counts == [4, 2, 2]
    again = Replay(recording(passes), 8, mix=(2, 1, 1)).step(7 + 50)
    assert (again[0] == confidence).all() and (again[1] == accepted).all()  # round and round


def test_fixed_rules_give_what_arithmetic_says():
    passes, times = passes_of((0.8,)), line_times()
    result = simulate([FixedLength(5)], OneEngine(times), [Replay(recording(passes), 16)], 16, 200)
    assert result.seconds == pytest.approx(200 * (1.3 + 0.1 * 96))
    assert result.accepted_length == pytest.approx(sum(0.8**k for k in range(6)), rel=0.06)
    assert result.checked_per_request == 5
    none = simulate([FixedLength(0)], OneEngine(times), [Replay(recording(passes), 16)], 16, 50)
    assert none.tok_s == pytest.approx(16 / 2.6)
    assert none.tok_s_with_deciding < none.tok_s


def test_all_ranks_wait_for_the_one_that_checks_most():
    times = line_times()
    replays = [Replay(recording(passes_of((0.8,))), 4, seed=seed) for seed in range(2)]
    result = simulate([FixedLength(1), FixedLength(5)], OneEngine(times), replays, 4, 10, 0)
    assert result.seconds == pytest.approx(10 * (1.3 + 0.1 * 24))
    assert result.checked == 10 * 4 * (1 + 5)


@pytest.mark.parametrize("token", [0.001, 0.1, 1.0])
def test_the_budget_is_near_the_best_of_all_static_rules_or_better(token):
    times = line_times(token)
    rows = compare(OneEngine(times), times, passes_of(), plain(G), (1, 16, 64), steps=400)
    for row in rows:
        others = [speed for name, speed in row["tok_s"].items() if name != "scheduled"]
        assert row["tok_s"]["scheduled"] > 0.95 * max(others), row


def test_more_load_makes_it_check_less():
    rows = compare(
        OneEngine(line_times()), line_times(), passes_of(), plain(G), (1, 16, 64), steps=300
    )
    checks = [row["checked_per_request"] for row in rows]
    assert checks == sorted(checks, reverse=True)
    assert rows[-1]["gain_over_fixed"] > rows[0]["gain_over_fixed"]


def test_every_rule_is_there_and_a_threshold_checks_what_is_sure():
    made = rule_makers(line_times(), "priced")
    assert list(made) == ["none", *(f"fixed {n}" for n in range(1, 6)), "threshold", "scheduled"]
    replay = Replay(recording(passes_of((0.4, 0.95))), 4)
    result = simulate([Threshold(G, 0.5)], OneEngine(line_times()), [replay], 4, 20)
    assert result.checked_per_request == pytest.approx((0 + 5) / 2)


@pytest.mark.parametrize("make", [ep8, ep64])
def test_the_group_clock_agrees_with_the_step_cost(make):
    clock = GroupClock(make)
    decode = make(drafts=5)
    assert clock.seconds(60, [300, 300]) == pytest.approx(decode.seconds(60))
    assert clock.plain_seconds(60) == make(drafts=0).seconds(60)
    assert clock.ranks == decode.ranks


def test_an_uneven_group_takes_longer_than_its_mean_and_no_longer_than_its_fullest():
    clock = GroupClock(ep64)
    mean, fullest = clock.seconds(96, [200]), clock.seconds(96, [300])
    assert mean < clock.seconds(96, [100, 300]) <= fullest
    assert clock.seconds(96, [0]) < mean


def test_a_gpu_profiles_its_group_with_all_alike():
    clock = GroupClock(ep64)
    times = clock.times((16, 60))
    assert times.drafted_seconds(60, 300)[300] == pytest.approx(clock.seconds(60, [300]))
    assert times.plain_seconds(16) == pytest.approx(clock.plain_seconds(16))


def test_mixes_name_all_four_domains():
    assert all(len(mix) == 4 and min(mix) > 0 for mix in MIXES.values())


def test_step_times_behind_saved_rows_give_their_speeds_again():
    times = saved_times()
    row = saved_rows(temperature=1)[16]
    assert 16 / times.plain_seconds(16) == pytest.approx(row["none_tok_s"], rel=0.2)  # made to rise
    again = engine_rows(times, loads=(16,), steps=200)[0]
    assert again["tok_s"]["fixed 5"] == pytest.approx(row["fixed_tok_s"], rel=0.05)
