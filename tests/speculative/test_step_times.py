"""Step times: exact at the profiled points, monotone, on stairs; corrections; prices of a check."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minimoe.errors import MinimoeError
from minimoe.speculative.profile import profile
from minimoe.speculative.step_times import StepTimes, marginal_seconds

STAIRS = (1, 2, 4, 8, 16, 32, 64)


def linear(requests, tokens):
    return 1.0 + 0.1 * tokens + 0.5 * requests


def make(sizes=(1, 2, 4, 8), checks=(0, 1, 3, 5), stairs=(), seconds=linear):
    plain = {size: 1.0 + 0.1 * size for size in sizes}
    points = [(size, size * (1 + k)) for size in sizes for k in checks]
    return StepTimes(plain, {point: seconds(*point) for point in points}, stairs)


def test_a_linear_cost_is_found_between_and_beyond_the_points():
    times = make()
    for requests in (1, 2, 3, 5, 8, 12):
        found = times.drafted_seconds(requests, 5 * requests)
        assert found == pytest.approx(linear(requests, requests + np.arange(5 * requests + 1)))
        assert times.plain_seconds(requests) == pytest.approx(1.0 + 0.1 * requests)


def test_other_tokens_of_the_pass_cost_what_checks_cost():
    times = make()
    assert times.drafted_seconds(4, 3, others=16) == pytest.approx(linear(4, 4 + 16 + np.arange(4)))
    assert (times.drafted_seconds(4, 3, 5) == times.drafted_seconds(4, 3, 16)).all()  # rounded up


def test_a_captured_size_costs_the_same_until_it_is_full():
    padded = lambda requests, tokens: float(min(s for s in STAIRS if s >= tokens))  # noqa: E731
    times = make(stairs=STAIRS, seconds=padded)
    for requests in (1, 2, 4, 8):
        expected = [padded(requests, requests + m) for m in range(5 * requests + 1)]
        assert times.drafted_seconds(requests, 5 * requests).tolist() == pytest.approx(expected)


@given(st.lists(st.floats(1e-6, 10), min_size=16, max_size=16), st.integers(1, 20), st.booleans())
def test_a_noisy_profile_still_rises(noise, requests, stairs):
    points = [(r, r * (1 + k)) for r in (1, 2, 4, 8) for k in (0, 1, 3, 5)]
    seconds = dict(zip(points, noise, strict=True))
    times = StepTimes({1: 1.0, 2: 0.5, 8: 3.0}, seconds, STAIRS if stairs else ())
    curve = times.drafted_seconds(requests, 5 * requests)
    assert (curve > 0).all() and (np.diff(curve) >= 0).all()
    plain = [times.plain_seconds(r) for r in range(1, 20)]
    assert plain == sorted(plain)


def hull_naive(seconds):
    """The largest convex curve below: at each place the lowest of all chords over it."""
    n = len(seconds)
    chords = [
        min(
            np.interp(m, [i, j], [seconds[i], seconds[j]]) if i < j else seconds[m]
            for i in range(m + 1)
            for j in range(m, n)
        )
        for m in range(n)
    ]
    return np.diff(chords)


@given(st.lists(st.sampled_from([0, 0, 1, 3, 10]), min_size=1, max_size=12))
def test_marginal_seconds_are_slopes_of_the_lower_hull(rises):
    seconds = 1.0 + np.cumsum([0, *rises])
    assert marginal_seconds(seconds) == pytest.approx(hull_naive(seconds))


def test_a_stair_is_shared_out_and_then_free():
    times = make(stairs=STAIRS, seconds=lambda r, t: float(min(s for s in STAIRS if s >= t)))
    marginal, full = times.marginal(8, 40)  # 8 tokens fill a size; 9 to 16 pay for 16
    assert marginal[:8] == pytest.approx([1.0] * 8)
    assert full[0] == 0 and full[1] == full[8] == 8 and full[9] == 24


def test_observed_steps_correct_the_profile_of_their_kind_only():
    times = make()
    before = times.plain_seconds(4), times.drafted_seconds(4, 20)
    for step in range(200):
        tokens = 4 + 3 * (step % 6)
        times.observe(True, 4, tokens, 1.5 * linear(4, tokens))
    assert times.drafted_seconds(4, 20) == pytest.approx(1.5 * before[1], rel=0.06)
    assert times.plain_seconds(4) == before[0]
    times.observe(True, 4, 8, 1e9)  # one stall moves little
    assert times.drafted_seconds(4, 4)[0] < 2.0 * before[1][0]


@pytest.mark.parametrize("wrong", [0.0, 0.02, 0.3, 0.5])
def test_a_wrong_slope_is_found_out(wrong):
    """The profile saw checks at another cost than they have: 0.1 a token."""
    times = make(seconds=lambda requests, tokens: 1.0 + wrong * tokens)
    rng = np.random.default_rng(0)
    for _ in range(400):
        tokens = 4 + int(rng.integers(0, 21))
        times.observe(True, 4, tokens, (1.0 + 0.1 * tokens) * rng.uniform(0.9, 1.1))
    curve = times.drafted_seconds(4, 20)
    assert curve == pytest.approx(1.0 + 0.1 * (4 + np.arange(21)), rel=0.15)
    assert times.marginal(4, 20)[0] == pytest.approx(np.full(20, 0.1), rel=0.4)


def test_a_profile_is_kept_as_json():
    times = make(stairs=STAIRS)
    again = StepTimes.from_dict(json.loads(json.dumps(times.to_dict())))
    assert (again.drafted_seconds(3, 15) == times.drafted_seconds(3, 15)).all()
    assert again.plain_seconds(3) == times.plain_seconds(3)


def test_profile_takes_the_fastest_and_drops_the_first():
    calls = {}

    def measure(requests, checks):
        key = requests, checks and tuple(checks)
        count = calls[key] = calls.get(key, 0) + 1
        if count == 1:
            return 0.01  # not a step at all
        uneven = 0.3 if checks and min(checks) < max(checks) else 0.0
        tokens = requests + sum(checks or ())
        seconds = 0.5 + requests if checks is None else linear(requests, tokens) + uneven
        return seconds + [0.0, 50.0, 0.2][count % 3]

    times = profile(measure, sizes=(1, 4), length=5, repeats=3)
    assert times.plain_seconds(4) == 4.5
    assert times.drafted_seconds(1, 5) == pytest.approx(linear(1, 1 + np.arange(6)))
    assert times.drafted_seconds(4, 20) == pytest.approx(0.3 + linear(4, 4 + np.arange(21)))
    assert times.all_seconds(4) == pytest.approx(linear(4, 24))
    even = {(r, (k,) * r) for r in (1, 4) for k in (0, 1, 3, 5)}
    assert set(calls) == even | {(1, None), (4, None), (4, (5, 5, 5, 1))}


def test_what_a_choice_costs_is_found_out_whichever_kind_is_common():
    """A round takes 3 with all drafts checked and 4 otherwise, on a machine that then slows down by
    half; one round in twenty is of the other kind."""
    for common in (20, 14):
        times, rng = make(seconds=lambda requests, tokens: 3.0), np.random.default_rng(0)
        for step in range(600):
            checks = common if step % 20 else 34 - common
            seconds = 3.0 if checks == 20 else 4.0
            slow = 1.5 if step > 300 else 1.0
            times.observe(True, 4, 4 + checks, slow * seconds * rng.uniform(0.9, 1.1))
        assert times.all_seconds(4) == pytest.approx(4.5, rel=0.1)
        assert times.drafted_seconds(4, 14)[-1] == pytest.approx(6.0, rel=0.1)


@pytest.mark.parametrize("plain, drafted", [({}, {(1, 1): 1.0}), ({1: 1.0}, {})])
def test_an_empty_profile_is_an_error(plain, drafted):
    with pytest.raises(MinimoeError, match="profile of step times is empty"):
        StepTimes(plain, drafted)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_time_is_an_error(bad):
    with pytest.raises(MinimoeError, match="measure it again"):
        StepTimes({1: 1.0}, {(1, 1): bad})
