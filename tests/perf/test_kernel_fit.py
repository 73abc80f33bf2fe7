"""Fits find the numbers that made the rows, and predict the measured ones."""

import pytest

from minimoe.perf import calibration as cal
from minimoe.perf.chips import CHIPS
from minimoe.perf.kernel_fit import Kernel, fit
from minimoe.perf.roofline import Work

ROOFS = 4e12, 8e14


def test_fit_recovers_a_kernel():
    true = Kernel(2e-5, 0.8, 0.6)
    works = [Work(flops, size) for flops in (1e9, 1e11, 1e12) for size in (1e7, 1e9, 1e10)]
    rows = [(work, true.seconds(work, *ROOFS)) for work in works]
    found = fit(rows, *ROOFS)
    assert found.overhead == pytest.approx(true.overhead, rel=0.02)
    assert found.bandwidth == pytest.approx(0.8, rel=0.02)
    assert found.rate == pytest.approx(0.6, rel=0.02)


def test_limits_by_hand():
    kernel = Kernel(0.0, 0.5, 0.5)
    assert kernel.seconds(Work(0, 4e12), *ROOFS) == pytest.approx(2.0)
    assert kernel.seconds(Work(8e14, 0), *ROOFS) == pytest.approx(2.0)
    both = kernel.seconds(Work(8e14, 4e12), *ROOFS)
    assert 2.0 < both < 4.0  # better than in turn, worse than both at once


def test_too_few_rows():
    with pytest.raises(ValueError, match="give at least 3"):
        fit([(Work(1, 1), 1.0)] * 2, *ROOFS)


@pytest.mark.parametrize("kind", cal.FILES)
def test_within_15_percent_of_rows_shown_and_20_of_rows_held_back(kind):
    worst = cal.worst_errors(kind)
    assert worst.pop("shown") < 0.15
    assert max(worst.values()) < 0.20, worst


@pytest.mark.parametrize("kind", cal.FILES)
def test_splits_hold_back_every_row_and_never_all(kind):
    count = len(cal.read(kind)[0])
    for name, ways in cal.splits(kind).items():
        assert set().union(*ways) == set(range(count)), name
        assert all(count - len(held) >= 3 for held in ways)
    marked = cal.predict(kind, [0, 2])
    assert [i for i, row in enumerate(marked) if row.held] == [0, 2]


def test_roofs_carry_over_by_datasheet():
    found = cal.calibrate()
    measured = cal.read("experts")
    assert found.roofs(CHIPS["H200"], "bfloat16") == pytest.approx(measured[1:])
    bandwidth, rate = found.roofs(CHIPS["B200"], "float8")
    assert bandwidth < 8e12 and rate < 4.5e15
