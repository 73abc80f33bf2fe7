"""Closed formulas beside a simulation, event by event."""

import pytest

from minimoe.perf.availability import Failures, simulated

OFTEN = Failures(per_hour=1 / 400, repair_hours=10, restart_hours=0.1)


@pytest.mark.parametrize("gpus", [8, 64])
@pytest.mark.parametrize("reform", [False, True])
@pytest.mark.parametrize("lost", [1, 8])
def test_formulas_equal_the_simulation(gpus, reform, lost):
    failures = Failures(1 / 400, 10, gpus_lost=lost)
    if reform and gpus == lost:
        return  # nobody left to re-form with
    found = simulated(failures, gpus, reform, hours=400_000)
    said = failures.reforming(gpus) if reform else failures.rigid(gpus)
    assert found == pytest.approx(said, abs=0.004)


def test_a_group_of_64_waits_for_eight_times_as_many_nodes():
    small, large = OFTEN.rigid(8), OFTEN.rigid(64)
    assert 1 - large > 6 * (1 - small)
    ratio = OFTEN.interruptions_per_hour(64) / OFTEN.interruptions_per_hour(8)
    assert ratio == pytest.approx(8)


def test_re_forming_makes_the_large_group_nearly_as_good():
    assert OFTEN.reforming(64) > OFTEN.rigid(64) + 0.1
    assert OFTEN.reforming(8) - OFTEN.reforming(64) < 0.01


def test_no_failures_no_loss():
    never = Failures(per_hour=0)
    assert never.rigid(64) == never.reforming(64) == 1


def test_table_has_a_line_per_size():
    lines = OFTEN.table((8, 64, 128)).splitlines()
    assert len(lines) == 4 and lines[2].split()[0] == "64"


@pytest.mark.parametrize(
    "change, says",
    [({"per_hour": -1}, "0 or more"), ({"gpus_lost": 9}, "use 1 to 8"), ({"gpus_lost": 0}, "1 to")],
)
def test_bad_input(change, says):
    with pytest.raises(ValueError, match=says):
        Failures(**change)


def test_part_of_a_node():
    with pytest.raises(ValueError, match="no whole nodes"):
        OFTEN.rigid(12)
