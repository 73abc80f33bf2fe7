"""Calibration: its error beside the oracle, known weights recovered, files, and the command."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minimoe.errors import MinimoeError
from minimoe.speculative.calibrate import calibrate
from minimoe.speculative.calibration import Calibration, best_odds, sigmoid
from minimoe.speculative.calibration_fit import (
    GRID,
    ece,
    ece_naive,
    errors,
    fit,
    fit_temperatures,
    plain,
    reliability,
    survivals,
    temperatures_only,
)

EDGES = st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.6, 0.9, 1.0])


def requests(*temperatures):
    return [SimpleNamespace(temperature=t) for t in temperatures]


def outcomes(true_logits, rng):
    return np.cumprod(rng.random(true_logits.shape) < sigmoid(true_logits), axis=1).sum(1)


def synthetic(n, temperatures, seed=0):
    """Logits that are right once divided by `temperatures`, and what was accepted."""
    rng = np.random.default_rng(seed)
    true = rng.normal(1.2, 1.5, (n, len(temperatures)))
    return true * temperatures, outcomes(true, rng)


@given(st.lists(st.tuples(EDGES | st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
def test_ece_is_its_oracle(pairs):
    said, true = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    assert ece(said, true) == pytest.approx(ece_naive(said, true), abs=1e-12)


def test_ece_by_hand():
    assert ece(np.array([0.5, 0.5]), np.array([1, 0])) == 0
    assert ece(np.array([0.9, 0.9, 0.1]), np.array([1, 0, 0])) == pytest.approx((0.8 + 0.1) / 3)
    assert ece(np.array([]), np.array([])) == 0


def test_reliability_rows():
    rows = reliability(np.array([0.1, 0.12, 0.9]), np.array([0, 1, 1]), bins=5)
    assert rows.tolist() == [pytest.approx([0.11, 0.5, 2]), pytest.approx([0.9, 1.0, 1])]


def test_known_temperatures_are_found_and_the_product_becomes_true():
    hidden = np.array([2.0, 0.6, 1.0, 1.5, 0.8])
    logits, accepted = synthetic(30_000, hidden)
    found = fit_temperatures(logits, accepted)
    assert np.abs(np.log(np.array(found) / hidden)).max() < 0.25
    held, taken = synthetic(30_000, hidden, seed=1)
    after = errors(survivals(temperatures_only(found), held), taken)
    assert max(after) < 0.012 < 0.03 < max(errors(survivals(plain(5), held), taken))


def test_each_temperature_is_the_best_of_the_grid_given_those_before():
    logits, accepted = synthetic(500, np.array([1.7, 0.5]))
    before = np.ones(500)
    for place, t in enumerate(fit_temperatures(logits, accepted)):
        said = [before * sigmoid(logits[:, place] / x) for x in GRID]
        all_errors = [ece_naive(one, accepted > place) for one in said]
        assert all_errors[int(np.argmin(np.abs(GRID - t)))] == pytest.approx(min(all_errors))
        before = before * sigmoid(logits[:, place] / t)


def test_ties_go_to_one():
    assert fit_temperatures(np.zeros((10, 2)), np.array([2] * 5 + [0] * 5)) == (1.0, 1.0)


def test_weights_of_head_odds_and_shift_are_found():
    rng = np.random.default_rng(0)
    head, odds = rng.normal(1, 2, (2, 20_000, 3))
    want = np.array([[0.5, 0.8, 0.3], [1.0, 0.2, -0.5], [0.2, 1.1, 0.0]])
    true = want[:, 0] * head + want[:, 1] * odds + want[:, 2]
    accepted = outcomes(true, rng)
    assert np.abs(np.array(fit(head, accepted, odds)) - want).max() < 0.25
    without = np.array(fit(head, accepted))
    assert (without[:, 1] == 0).all()
    said = survivals(fit(head, accepted, odds), head, odds)
    assert max(errors(said, accepted)) < 0.02


def test_where_everything_is_accepted_weights_stay_finite():
    weights = fit(np.full((50, 2), 3.0), np.full(50, 2))
    assert np.isfinite(weights).all() and survivals(weights, np.full((1, 2), 3.0))[0, 1] > 0.9


def test_best_odds():
    logits = torch.tensor([[0.0, 0.0], [2.0, 0.0], [80.0, 0.0]])
    odds = best_odds(logits)
    assert odds[:2].tolist() == pytest.approx([0.0, 2.0], abs=1e-5)
    assert 10 < odds[2] < 15  # sure, and finite
    assert torch.isfinite(best_odds(torch.randn(2, 3, 4096).bfloat16() * 50)).all()


def test_without_weights_it_is_a_sigmoid():
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    params = requests(0.0, 0.3, 0.5, 1.0, 1.3, 2.0)
    none = Calibration.none(3)
    assert torch.equal(none.apply(logits, params), logits.sigmoid())
    assert not none.needs_odds(params)


def test_between_temperatures_logits_are_mixed_and_above_one_they_stay():
    calibration = Calibration(((1.0, 2.0, 0.5),), ((3.0, 0.0, -0.5),))
    said = calibration.apply(np.ones((4, 1)), requests(0.0, 0.25, 1.0, 1.7), np.full((4, 1), 0.25))
    assert said[:, 0] == pytest.approx(sigmoid([2.0, 2.0 * 0.75 + 2.5 * 0.25, 2.5, 2.5]))


def test_greedy_requests_need_the_odds_and_others_do_not():
    calibration = Calibration(((1.0, 2.0, 0.0),), ((1.0, 0.0, 0.0),))
    assert not calibration.needs_odds(requests(1.0, 1.4))
    assert calibration.apply(np.zeros((1, 1)), requests(1.0)).tolist() == [[0.5]]
    assert calibration.needs_odds(requests(1.0, 0.5))
    with pytest.raises(MinimoeError, match="give odds"):
        calibration.apply(np.zeros((2, 1)), requests(1.0, 0.0))


def test_arrays_and_tensors_agree():
    calibration = Calibration(((0.5, 2.0, 0.1), (1.5, 0.7, -1.0)), ((1.1, 0, 0.2), (0.9, 0, 0)))
    logits, odds = np.array([[-3.0, 90.0], [0.5, -1e4]]), np.array([[1.0, -2.0], [0.3, 9.0]])
    params = requests(0.0, 0.7)
    want = calibration.apply(torch.from_numpy(logits), params, torch.from_numpy(odds))
    assert calibration.apply(logits, params, odds) == pytest.approx(want.numpy(), abs=1e-6)


def test_a_shorter_draft_uses_the_first_places_and_a_longer_one_is_an_error():
    calibration = Calibration(((0.5, 0.0, 0.0), (9.0, 0.0, 0.0)), plain(2))
    assert calibration.apply(np.array([[1.0]]), requests(0.0))[0, 0] == pytest.approx(sigmoid(0.5))
    with pytest.raises(MinimoeError, match="3 places and a calibration of 2"):
        calibration.apply(torch.zeros(1, 3), requests(1.0))


def test_it_is_kept_as_json(tmp_path):
    calibration = Calibration(((0.5, 2.0, 0.0),), ((1.5, 0.0, -0.7),))
    calibration.save(tmp_path / "c.json", {"date": "today"})
    assert Calibration.load(tmp_path / "c.json") == calibration


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"weights": {"0": [[1.0, 0.0, 0.0]], "1": [[NaN, 0.0, 0.0]]}}',
        '{"weights": {"0": [[1.0, 0.0, 0.0]], "1": [[1.0, 0.0]]}}',
        '{"weights": {"0": [[1.0, 0.0, 0.0]], "1": []}}',
    ],
)
def test_a_damaged_file_is_one_clear_line(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(MinimoeError, match="make it anew"):
        Calibration.load(tmp_path / "c.json")
    with pytest.raises(MinimoeError, match="make it anew"):
        Calibration.load(tmp_path / "missing.json")


def save_passes(path, n=8000):
    """A validation file whose head is off in another way at each temperature."""
    parts = [synthetic(n, np.array(hidden), seed) for seed, hidden in enumerate([(2, 1), (1, 0.5)])]
    np.savez(
        path,
        confidence=np.concatenate([logits for logits, _ in parts]).astype(np.float16),
        odds=np.random.default_rng(2).normal(size=(2 * n, 2)).astype(np.float16),
        accepted=np.concatenate([accepted for _, accepted in parts]).astype(np.uint8),
        temperature=np.repeat(np.uint8([0, 1]), n),
        domain=np.zeros(2 * n, np.uint8),
        prompt=np.arange(2 * n, dtype=np.uint16) // 16,
        turn=np.zeros(2 * n, np.uint8),
        domains=np.array(["code"]),
    )


def test_the_command_fits_one_half_and_reports_on_the_other(tmp_path):
    save_passes(tmp_path / "validation.npz")
    command = [sys.executable, "-m", "minimoe.speculative.calibrate", tmp_path / "validation.npz"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    greedy, drawn = np.array(said["weights"])
    assert greedy[:, 0] == pytest.approx([0.5, 1], rel=0.3)
    assert drawn[:, 0] == pytest.approx([1, 2], rel=0.3)
    for report in said["held_out"].values():
        assert report["passes_fitted"] == report["passes_held_out"] == 4000
        assert max(report["error"]["weights"]) < 0.03 < max(report["error"]["raw"])
    assert Calibration.load(tmp_path / "calibration.json").length == 2


def test_missing_passes_are_one_clear_line(tmp_path):
    with pytest.raises(MinimoeError, match="no validation passes in"):
        calibrate(tmp_path / "validation.npz")
