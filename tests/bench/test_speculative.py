"""`bench speculative`: its arithmetic, its bounds, and one small run of the whole."""

import json
import subprocess
import sys

import numpy as np
import pytest

import minimoe.bench.contest as contest_module
from minimoe.bench.bootstrap import interval, lower_bound
from minimoe.bench.contest import LENGTHS, PROMPT_SETS, Contest, Settings, Turn
from minimoe.bench.speculative import render, row


def turns_of(speeds, steps=10, requests=4, checked=60):
    return [
        Turn(seconds=100 / speed, tokens=100, steps=steps, drafted_steps=steps,
             request_steps=steps * requests, checked=checked)
        for speed in speeds
    ]  # fmt: skip


def make_turns(**speeds):
    base = {f"fixed {n}": [50.0 + n] * 3 for n in LENGTHS} | {"none": [40.0] * 3}
    base |= {"threshold": [50.0] * 3, "scheduled": [60.0] * 3}
    return {way: turns_of(own) for way, own in {**base, **speeds}.items()}


def test_a_row_holds_medians_and_names_the_best():
    found = row(4, 0.0, make_turns(**{"fixed 3": [10.0, 70.0, 65.0], "scheduled": [66, 60, 63]}))
    assert found["best_fixed_length"] == 3 and found["best"] == "fixed 3"
    assert found["best_fixed_tok_s"] == 65 and found["scheduled_tok_s"] == 63
    assert found["none_tok_s"] == 40 and found["fixed_tok_s"] == 55
    assert found["ratio_to_best"] == pytest.approx(np.median([6.6, 60 / 70, 63 / 65]))
    assert found["accepted_length"] == 100 / 40 and found["checked_per_request"] == 60 / 40
    assert "scheduled" in render({"rows": [found]})


def test_no_drafts_may_be_the_best():
    found = row(64, 1.0, make_turns(none=[90.0] * 3))
    assert found["best"] == "none" and found["ratio_to_best"] == pytest.approx(60 / 90)
    assert found["lower_to_best"] == pytest.approx(60 / 90)  # all pairs alike


def test_the_bound_lies_below_the_median_and_narrows_with_pairs():
    rng = np.random.default_rng(0)
    few, many = 1 + 0.1 * rng.standard_normal(8), 1 + 0.1 * rng.standard_normal(200)
    for values in (few, many):
        low, high = interval(list(values))
        assert low < np.median(values) < high
    assert interval(list(many))[1] - lower_bound(list(many)) < 0.06
    assert lower_bound([1.0]) == 1.0


def test_the_bound_holds_about_as_often_as_it_says():
    rng, held = np.random.default_rng(1), 0
    for _ in range(200):
        held += lower_bound(list(rng.exponential(size=31)), draws=300) <= np.log(2)
    assert 0.93 <= held / 200 <= 1.0


@pytest.mark.parametrize("load, requests", [(1, 4), (3, 12), (4, 4), (6, 12), (64, 64)])
def test_each_domain_is_met_as_often_and_no_request_runs_at_a_lower_load(load, requests):
    settings = Settings(load=load, new_tokens=32)
    assert settings.requests(load) == requests
    assert 1 <= settings.parts(load) <= PROMPT_SETS
    assert Settings(load=4, new_tokens=10_000).parts(4) == 1


def test_all_ways_begin_the_clock_at_the_same_place(monkeypatch):
    """With 8 requests, 48 tokens a step and prompts of 40, drafting from the start would let the
    first requests run ahead before the last is in decode."""
    contest = Contest(Settings(load=8, new_tokens=3, prompt_tokens=40, lengths=(5,)))
    for llm in (contest.plain, contest.drafting):
        llm.engine.scheduler.token_budget = 48
    begins = []

    def start(llm, seqs):
        start_all(llm, seqs)
        begins.append([len(seq.tokens) for seq in seqs])

    start_all = contest_module._start
    monkeypatch.setattr(contest_module, "_start", start)
    ways = ("none", "fixed 5", "scheduled")
    for way in ways:  # their prompts are found from now on
        contest.turn(way, 8, 0.0)
    begins.clear()
    turns = [contest.turn(way, 8, 0.0) for way in ways]
    plain, fixed, scheduled = begins
    assert plain == fixed == scheduled and len(plain) == 8
    assert all(turn.request_steps == turn.steps * 8 for turn in turns)
    assert turns[0].drafted_steps == 0 < turns[1].drafted_steps == turns[1].steps


@pytest.mark.parametrize("method", ["prompt_lookup", "dspark"])
def test_a_small_run(method):
    words = f"bench speculative --method {method} --load 4 --temperature 0 --pairs 1 --threads 1"
    words += " --new-tokens 4 --turn-tokens 16 --json"
    command = [sys.executable, "-m", "minimoe", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    (only,) = result["rows"]
    assert only["load"] == 4 and only["none_tok_s"] > 0 and only["scheduled_tok_s"] > 0
    assert 1 <= only["accepted_length_fixed"] <= 6
    assert result["step_times"]["plain"]


def test_zero_pairs_are_one_clear_line():
    command = [sys.executable, "-m", "minimoe", "bench", "speculative", "--pairs", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "must each be 1 or more" in done.stderr
