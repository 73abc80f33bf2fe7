"""Figures and tables of 06_acceptance_budget draw, and say what they should."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from minimoe.bench.serving_model import saved_times
from minimoe.bench.speculative import saved_rows
from minimoe.course import budget_lab as lab
from minimoe.course import figures_budget as figures
from minimoe.speculative.budget import FORMS, Budget
from minimoe.speculative.rules import FixedLength
from minimoe.speculative.step_times import StepTimes


@pytest.fixture(autouse=True)
def shown(monkeypatch):
    """Counts figures instead of showing them."""
    count = []
    monkeypatch.setattr(plt, "show", lambda: (count.append(1), plt.close("all")))
    return count


def test_every_figure_draws(shown, capsys):
    figures.reliability_curves(place=2)
    figures.survival_curves(temperature=0)
    figures.price_picture(saved_times(), load=16, label="measured on H200")
    figures.throughput(lab.saved_speeds(saved_rows(1.0)), label="measured on H200")
    assert len(shown) == 4
    assert "guesses are worth a check" in capsys.readouterr().out


@pytest.mark.parametrize("checks", [0, 7, 60])
def test_the_picture_gives_the_checks_there_are(checks, capsys):
    figures.budget_picture(checks, requests=6, seed=1, ordered=True)
    counts = figures.admitted(lab.batch(6, 1, 1), checks)
    assert sum(counts) == min(checks, 30) and str(counts) in capsys.readouterr().out


@pytest.mark.parametrize("load, length, gpus, code", [(4, 1, 8, 0), (128, 5, 64, 100)])
def test_load_and_length_at_the_ends_of_its_sliders(load, length, gpus, code, capsys):
    figures.load_and_length(load, length, gpus, code)
    assert "checks a request" in capsys.readouterr().out


def test_the_likeliest_slots_bring_most_and_all_bring_the_same():
    (places, even), (slots, best) = figures.expected_by_checks(5, code=0.5)
    assert places[-1] == 5 and slots[-1] == pytest.approx(5)
    assert best[-1] == pytest.approx(even[-1])
    assert (np.interp(places[1:5], slots, best) > even[1:5]).all()


def test_gains_stand_beside_the_post():
    rows = [
        {"load": n, "gain_over_fixed": 1.0, "checked_per_request": 3.0, "accepted_length": 3.5}
        for n in (4, 16, 60, 96)
    ]
    text = figures.gains_text(rows)
    assert "-1.5 %" in text and "+4 to +7 %" in text and "+11 %" in text
    figures.gains({"derived": rows})


def test_batches_are_the_same_every_time_and_hold_all_domains():
    a, b = lab.batch(8, 1, 3), lab.batch(8, 1, 3)
    assert (a.confidence == b.confidence).all() and a.domains == b.domains
    assert set(a.domains) == {"code", "story", "chat", "json"}
    assert (a.survival <= 1).all() and (np.diff(a.survival, axis=1) <= 0).all()
    assert "accepted" in lab.confidence_table(a)


def test_the_shipped_calibration_is_true_to_two_percent():
    """Error of the product at every place, on prompts that were not fitted."""
    for temperature in (0, 1):
        passes, weights = lab.recorded(temperature)
        assert max(lab.errors(passes.survivals(weights), passes.accepted)) <= 0.02
    assert lab.calibration_table().count("\n") == 6


def test_the_trap():
    seconds = [1 / 1.0, 1 / 0.5, 1 / 0.45]
    times = StepTimes({1: 1.0}, {(1, 1 + n): s for n, s in enumerate(seconds)})
    for form in FORMS:
        assert lab.first_token(Budget(times, 2, form).choose) == pytest.approx({"A": 0.7, "B": 0.3})
    for length in (0, 1, 2):
        share = lab.first_token(FixedLength(length).choose)
        assert share == pytest.approx({"A": 0.7, "B": 0.3})
    peeking = lab.first_token(lambda confidence, *_: [2 if confidence[0, 1] > 0 else 0])
    assert peeking == pytest.approx({"A": 0.85, "B": 0.15})
