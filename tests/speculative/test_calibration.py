"""Calibration: the error beside its oracle, known temperatures recovered, files, the command."""

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
from minimoe.speculative.calibration import (
    GRID,
    Calibration,
    ece,
    ece_naive,
    fit,
    reliability,
    sigmoid,
    survivals,
)

EDGES = st.sampled_from([0.0, 1 / 15, 0.2, 0.5, 0.6, 14 / 15, 1.0])


def synthetic(n, temperatures, seed=0):
    """Logits that are right once divided by `temperatures`, and what was accepted."""
    rng = np.random.default_rng(seed)
    true = rng.normal(1.2, 1.5, (n, len(temperatures)))
    accepted = np.cumprod(rng.random(true.shape) < sigmoid(true), axis=1).sum(1)
    return true * temperatures, accepted


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
    found = fit(logits, accepted)
    assert np.abs(np.log(np.array(found) / hidden)).max() < 0.25
    held, taken = synthetic(30_000, hidden, seed=1)
    said = survivals(held, found)
    errors = [ece(said[:, j], taken > j) for j in range(5)]
    raw = [ece(survivals(held, np.ones(5))[:, j], taken > j) for j in range(5)]
    assert max(errors) < 0.012 < 0.03 < max(raw)


def test_each_temperature_is_the_best_of_the_grid_given_those_before():
    logits, accepted = synthetic(500, np.array([1.7, 0.5]))
    found = fit(logits, accepted)
    before = np.ones(500)
    for position, t in enumerate(found):
        said = [before * sigmoid(logits[:, position] / x) for x in GRID]
        errors = [ece_naive(one, accepted > position) for one in said]
        assert errors[int(np.argmin(np.abs(GRID - t)))] == pytest.approx(min(errors), abs=1e-9)
        before = before * sigmoid(logits[:, position] / t)


def test_ties_go_to_one():
    assert fit(np.zeros((10, 2)), np.array([2] * 5 + [0] * 5)) == (1.0, 1.0)  # 0 / t is always 0


def test_order_is_kept_and_one_changes_nothing():
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    params = [SimpleNamespace(temperature=t) for t in (0.0, 0.3, 0.5, 1.0, 1.3, 2.0)]
    assert torch.equal(Calibration.none(3).apply(logits, params), logits.sigmoid())
    scaled = Calibration(((0.5, 2.0, 1.0), (2.0, 0.7, 1.0))).apply(logits, params)
    assert torch.equal(scaled > 0.5, logits > 0)
    assert torch.allclose(scaled[:, 2], logits[:, 2].sigmoid())


def test_temperatures_between_and_above():
    rows = Calibration(((1.0, 4.0), (4.0, 1.0))).rows([0.0, 0.5, 1.0, 1.7])
    assert rows.tolist() == [[1, 4], pytest.approx([2, 2]), pytest.approx([4, 1])] + [
        pytest.approx([4, 1])
    ]


def test_arrays_and_tensors_agree():
    calibration = Calibration(((0.5, 2.0), (1.5, 0.7)))
    logits = np.array([[-3.0, 90.0], [0.5, -1e4]])
    params = [SimpleNamespace(temperature=t) for t in (0.0, 0.7)]
    want = calibration.apply(torch.from_numpy(logits), params)
    assert calibration.apply(logits, params) == pytest.approx(want.numpy(), abs=1e-6)


def test_it_is_kept_as_json(tmp_path):
    calibration = Calibration(((0.5, 2.0), (1.5, 0.7)))
    calibration.save(tmp_path / "c.json", {"date": "today"})
    assert Calibration.load(tmp_path / "c.json") == calibration


@pytest.mark.parametrize("text", ["", "{}", '{"temperatures": {"0": [1.0], "1": [-1.0]}}', "[1]"])
def test_a_damaged_file_is_one_clear_line(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(MinimoeError, match="make it anew|positive numbers"):
        Calibration.load(tmp_path / "c.json")
    with pytest.raises(MinimoeError, match="make it anew"):
        Calibration.load(tmp_path / "missing.json")


def test_a_shorter_draft_uses_the_first_temperatures_and_a_longer_is_an_error():
    params = [SimpleNamespace(temperature=0.0)]
    short = Calibration(((2.0, 9.0), (1.0, 1.0))).apply(np.array([[1.0]]), params)
    assert short.tolist() == [[pytest.approx(sigmoid(0.5))]]
    with pytest.raises(MinimoeError, match="3 positions and a calibration of 2"):
        Calibration.none(2).apply(torch.zeros(1, 3), [SimpleNamespace(temperature=1.0)])


def save_passes(path, n=8000):
    """A validation file with different temperatures hidden in its two halves by temperature."""
    parts = [synthetic(n, np.array(hidden), seed) for seed, hidden in enumerate([(2, 1), (1, 0.5)])]
    np.savez(
        path,
        confidence=np.concatenate([logits for logits, _ in parts]).astype(np.float16),
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
    assert said["temperatures"][0] == pytest.approx([2, 1], rel=0.3)
    assert said["temperatures"][1] == pytest.approx([1, 0.5], rel=0.3)
    for report in said["held_out"].values():
        assert report["passes_fitted"] == report["passes_held_out"] == 4000
        assert max(report["ece_calibrated"]) < 0.03
    assert Calibration.load(tmp_path / "calibration.json").length == 2


def test_missing_passes_are_one_clear_line(tmp_path):
    with pytest.raises(MinimoeError, match="no validation passes in"):
        calibrate(tmp_path / "validation.npz")
