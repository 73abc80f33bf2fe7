"""The budget's behaviour: what it checks at which load, when it stops drafting, when it resumes."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minimoe.errors import MinimoeError
from minimoe.speculative.budget import FIRST_WAIT, FORMS, PLAIN_TRIAL, Budget
from minimoe.speculative.rules import FixedLength, Rule, Threshold
from minimoe.speculative.step_times import StepTimes

G = 5
SIZES = (1, 2, 4, 8, 16, 32, 64)


def times_of(fixed=1.0, token=0.1, draft=0.3, draft_token=0.05):
    """A step costs `fixed` and `token` a token; drafting `draft` and `draft_token` a request."""
    plain = {size: fixed + token * size for size in SIZES}
    drafted = {
        (size, size * (1 + k)): plain[size] + token * k * size + draft + draft_token * size
        for size in SIZES
        for k in range(G + 1)
    }
    return StepTimes(plain, drafted)


def run(budget, requests, rate, steps, rng=None):
    """Steps of `requests` whose drafts are each accepted at `rate`, and known to be. Gives per step
    how many were checked, None for a plain step."""
    rng, checked = rng or np.random.default_rng(0), []
    for _ in range(steps):
        if not budget.plan(requests):
            seconds = budget.times.plain_seconds(requests)
            budget.observe(False, requests, requests, seconds)
            checked.append(None)
            continue
        checks = budget.choose(np.full((requests, G), rate), [G] * requests)
        wins = np.minimum(np.cumprod(rng.random((requests, G)) < rate, 1).sum(1), checks)
        tokens = requests + sum(checks)
        seconds = budget.times.drafted_seconds(requests, sum(checks))[-1]
        budget.observe(True, requests, tokens, seconds, checks, wins.tolist())
        checked.append(sum(checks))
    return checked


@pytest.mark.parametrize("form", FORMS)
def test_everything_is_checked_where_checks_are_nearly_free(form):
    budget = Budget(times_of(token=1e-6), G, form)
    assert run(budget, 4, 0.9, 30)[-1] == 20


@pytest.mark.parametrize("form", FORMS)
def test_drafting_stops_where_tokens_are_dear_and_is_tried_again_now_and_then(form):
    budget = Budget(times_of(fixed=0.01, token=1.0, draft_token=0.5), G, form)
    run(budget, 64, 0.6, 200)
    checked = run(budget, 64, 0.6, 1500)
    trials = [checks for checks in checked if checks is not None]
    assert budget.draft_next is False and 1 <= len(trials) <= 1500 / FIRST_WAIT
    plain = budget.times.plain_seconds(64)
    longer = [budget.times.drafted_seconds(64, checks)[-1] - plain for checks in trials]
    assert sum(longer) < 0.02 * 1500 * plain  # even if a trial brought nothing at all


@pytest.mark.parametrize("form", FORMS)
def test_drafting_resumes_when_guesses_become_good(form):
    budget = Budget(times_of(token=0.2, draft_token=0.2), G, form)
    assert run(budget, 8, 0.15, 300)[-1] is None
    checked = run(budget, 8, 0.97, 1500)
    assert checked[-200:].count(None) <= 200 // PLAIN_TRIAL


def test_a_plain_step_that_was_timed_too_slow_is_found_out():
    """The profile said 3 for what takes 1: only a plain step now and then can tell."""
    budget = Budget(times_of(fixed=3.0, token=0.01, draft=0.5, draft_token=0.0), G)
    modes = []
    for _ in range(3000):
        drafted = budget.plan(4) > 0
        modes.append(drafted)
        checks = budget.choose(np.full((4, G), 0.5), [G] * 4) if drafted else []
        kept = [min(1, count) for count in checks]
        budget.observe(drafted, 4, 4 + sum(checks), 4.0 if drafted else 1.0, checks, kept)
    assert all(modes[:20]) and sum(modes[-300:]) < 15


@pytest.mark.parametrize("wrong", [0.3, 3.0])
def test_a_bad_profile_is_found_out_soon(wrong):
    """Plain steps were timed at a third or at three times what they take."""
    true = times_of(token=0.02, draft_token=0.02)
    plain, drafted = true.points
    budget = Budget(StepTimes({n: wrong * s for n, s in plain.items()}, drafted), G)
    rng, modes = np.random.default_rng(0), []
    for _ in range(150):
        drafting = budget.plan(16) > 0
        modes.append(drafting)
        checks = budget.choose(np.full((16, G), 0.8), [G] * 16) if drafting else []
        wins = np.minimum(np.cumprod(rng.random((16, G)) < 0.8, 1).sum(1), checks or [0] * 16)
        seconds = true.drafted_seconds(16, sum(checks))[-1]
        seconds = seconds if drafting else true.plain_seconds(16)
        budget.observe(drafting, 16, 16 + sum(checks), seconds, checks, wins[: len(checks)])
    assert np.mean(modes[-50:]) > 0.9  # here drafting pays


def test_drafting_resumes_at_once_when_the_load_falls():
    budget = Budget(times_of(fixed=4.0, token=0.5, draft_token=0.4), G)
    assert run(budget, 64, 0.7, 300)[-1] is None
    assert run(budget, 1, 0.7, 40).count(None) <= 3  # trials of plain steps


def test_a_rate_near_the_border_does_not_make_it_flap():
    budget = Budget(times_of(fixed=1.0, token=0.1, draft=0.0, draft_token=0.1), G)
    rng = np.random.default_rng(1)
    rates = rng.uniform(0.55, 0.65, 400)
    modes = [run(budget, 16, rate, 1, rng)[0] is None for rate in rates]
    assert np.abs(np.diff(modes)).sum() < 40


def test_the_sure_get_more_checks_than_the_unsure():
    budget = Budget(times_of(fixed=2.0, token=0.5), G)
    confidence = np.array([[0.95] * G, [0.4] * G, [0.8] * G])
    for _ in range(10):
        budget.plan(3)
        checks = budget.choose(confidence, [G] * 3)
    assert checks[0] == G and checks[1] < checks[2] < G


def test_all_are_checked_where_uneven_parts_cost_extra():
    """A pass with all drafts takes 3, any other one 4: the profile does not know."""
    budget, rng = Budget(times_of(fixed=2.0, token=0.1), G), np.random.default_rng(0)
    counts = []
    for _ in range(400):
        if not budget.plan(8):
            budget.observe(False, 8, 8, 2.8)
            continue
        confidence = rng.beta(4, 1, (8, G))
        checks = budget.choose(confidence, [G] * 8)
        wins = np.minimum(np.cumprod(rng.random((8, G)) < confidence, 1).sum(1), checks)
        counts.append(sum(checks))
        budget.observe(True, 8, 8 + sum(checks), 3.0 if counts[-1] == 40 else 4.0, checks, wins)
    assert np.mean(np.array(counts[-100:]) == 40) > 0.9 and min(counts[-100:]) < 40


def test_busier_engines_check_less_per_request():
    budget = Budget(times_of(fixed=3.0, token=0.1, draft=0.0, draft_token=0.0), G)
    confidence = np.random.default_rng(0).beta(4, 1, size=(64, G))
    per_request = []
    for requests in (1, 4, 16, 64):
        for _ in range(20):
            budget.plan(requests)
            checks = [budget.choose(confidence[:requests], [G] * requests) for _ in range(5)]
        per_request.append(np.mean(checks))
    assert per_request == sorted(per_request, reverse=True) and per_request[0] > per_request[-1] + 1


def test_confidences_that_promise_too_much_lose_trust():
    budget = Budget(times_of(), G)
    for _ in range(200):
        budget.plan(4)
        checks = budget.choose(np.full((4, G), 0.95), [G] * 4)
        seconds = 1.8 + 0.1 * sum(checks)
        budget.observe(True, 4, 4 + sum(checks), seconds, checks, [0] * 4)
    assert budget.trust < 0.4 and sum(checks) < 10


@pytest.mark.parametrize("form", FORMS)
def test_without_confidences_acceptance_is_learnt(form):
    budget = Budget(times_of(token=0.3), G, form)
    for _ in range(300):
        budget.plan(4)
        checks = budget.choose(None, [G, G, 0, 2])
        assert checks[2] == 0 and checks[3] <= 2
        budget.observe(True, 4, 4 + sum(checks), 2.0, checks, [min(c, 2) for c in checks])
    rates = budget.rates.by_position
    assert rates[0] > 0.95 and rates[1] > 0.95 and rates[2] <= 0.7 + 1e-9  # at most the prior
    assert 6 <= sum(budget.choose(None, [G] * 4)) <= 12


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(FORMS),
    st.lists(
        st.tuples(
            st.integers(1, 9),
            st.sampled_from(["step", "step without plan", "plan", "prefill", "no confidence"]),
            st.integers(0, 2**16),
        ),
        max_size=30,
    ),
)
def test_any_order_of_calls_gives_checks_within_the_draft(form, calls):
    budget = Budget(times_of(), G, form)
    for requests, what, seed in calls:
        rng = np.random.default_rng(seed)
        lengths = rng.integers(0, G + 1, requests).tolist()
        confidence = None if what == "no confidence" else rng.random((requests, G))
        if what != "step without plan":
            assert budget.plan(requests) in (0, G)
        if what == "plan":
            continue
        others = int(rng.integers(0, 500)) if what == "prefill" else 0
        checks = budget.choose(confidence, lengths, others)
        assert len(checks) == requests
        assert all(isinstance(c, int) and 0 <= c <= n for c, n in zip(checks, lengths, strict=True))
        wins = [int(rng.integers(0, c + 1)) for c in checks]
        tokens = requests + sum(checks)
        budget.observe(True, requests, tokens, float(rng.exponential()) + 1e-9, checks, wins)
    assert 0 < budget.trust < 10


def test_a_decision_is_cheap():
    """Beside sorting the slots and adding them up, timed in the same run: a few of these."""
    budget, rng = Budget(times_of(), G), np.random.default_rng(0)
    tables = [rng.beta(4, 1, size=(64, G)) for _ in range(20)]
    deciding, sorting = [], []
    for number in range(400):
        start = time.perf_counter()
        budget.plan(64)
        budget.choose(tables[number % 20], [G] * 64)
        middle = time.perf_counter()
        np.sort(-tables[number % 20].cumprod(1), axis=None, kind="stable").cumsum().tolist()
        deciding.append(middle - start)
        sorting.append(time.perf_counter() - middle)
    assert np.quantile(deciding, 0.8) < 8 * np.quantile(sorting, 0.8)  # about 2 on a quiet core


def test_static_rules():
    confidence = np.array([[0.9, 0.8, 0.1], [0.5, 0.9, 0.9]])
    assert FixedLength(2).choose(confidence, [3, 1]) == [2, 1]
    assert FixedLength(0).plan(4) == 0 and not FixedLength(0).draft_next
    assert Threshold(3, 0.5).choose(confidence, [3, 3]) == [2, 1]
    assert Threshold(3, 0.0).choose(confidence, [3, 2]) == [3, 2]
    assert Rule(3).choose(None, [3, 0]) == [3, 0]


@pytest.mark.parametrize("form", FORMS)
def test_a_drafter_of_another_length_than_the_budgets(form):
    budget = Budget(times_of(token=0.3), G, form)
    for number in range(40):
        width = (2, G, G + 3)[number % 3]
        budget.plan(4)
        checks = budget.choose(np.full((4, width), 0.9), [width] * 4)
        assert len(checks) == 4 and max(checks) <= width


def test_no_requests_and_no_drafts():
    budget = Budget(times_of(), G)
    assert budget.plan(0) == 0 and budget.choose(np.zeros((0, G)), []) == []
    assert budget.choose(np.full((2, G), 0.9), [0, 0]) == [0, 0]
    assert Budget(times_of(), 0).plan(3) == 0


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Budget(times_of(), G, "best"), "form is 'best'"),
        (lambda: Budget(times_of(), -1), "draft length is -1"),
        (lambda: FixedLength(2.5), "draft length is 2.5"),
        (lambda: Threshold(5, 1.5), "survival limit is 1.5"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(MinimoeError, match=message):
        make()
