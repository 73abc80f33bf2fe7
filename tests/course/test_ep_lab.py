"""What notebook 03 shows: real routes through virtual ranks, and tables."""

import pytest
import torch
from models import random_model, small_config

from minimoe.course import ep_lab, figures_ranks
from minimoe.perf.exchange import Fabric


@pytest.fixture(scope="module")
def model():
    return random_model(small_config(), torch.float32)


@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_an_exchange_of_real_routes(model, ranks):
    one = ep_lab.exchange(model, list(range(10, 51)), ranks)
    assert one.error < 1e-4
    assert sum(map(sum, one.pairs)) == 41 * 2
    for found, want in zip(one.counted, one.formula, strict=True):
        assert found["dispatch"] == want["dispatch"] and found["combine"] == want["combine"]
    assert one.hit <= one.held
    assert one.rows == pytest.approx(41 * 2 / (one.hit * ranks))


def test_tables_have_a_line_for_each(model):
    one = ep_lab.exchange(model, list(range(10, 26)), 4)
    assert len(ep_lab.pairs_table(one.pairs).splitlines()) == 5
    table = ep_lab.bytes_table(one.counted, one.formula)
    assert table.count("yes") == 4 and "NO" not in table
    assert len(ep_lab.use_table([one]).splitlines()) == 2
    wrong = [{**found, "dispatch": (1, 1)} for found in one.counted]
    assert ep_lab.bytes_table(wrong, one.formula).count("NO") == 4


def test_the_exchange_is_added_to_the_layer():
    fabric = Fabric("", latency=0.0, link=1e9, network=1e9, domain=8)
    rows = [{"tokens": 16, "seconds": 4.0}], [{"tokens": 16, "seconds": 1.0}]
    (row,) = ep_lab.hopper_rows(*rows, fabric)
    assert row["alone"] == 0.25
    assert 0.25 < row["ratio"] < 1 and row["exchange"][0] > 0
    assert len(ep_lab.hopper_table([row]).splitlines()) == 3


def test_groups_hold_less_the_larger_they_are():
    lines = figures_ranks.group_table(ranks=(8, 64)).splitlines()
    assert lines[1].split()[:2] == ["8", "48"] and lines[2].split()[:2] == ["64", "6"]


def test_a_verdict_never_claims_what_was_not_seen():
    one, quick, slow = (
        ep_lab.Run(P, [[1]], v, {}, [], []) for P, v in ((1, 9.0), (4, 10.0), (4, 3.0))
    )
    assert ep_lab.speed_verdict([one, slow], 4).endswith("0.33: slower than one process")
    assert ep_lab.speed_verdict([one, quick], 4).endswith("run it again")


def test_figures_draw(model, monkeypatch):
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    step = {"own": 0.01, "exchange": 0.02, "waiting": 0.01}
    figures_ranks.step_bars([ep_lab.Run(P, [[1]], 10.0, step, [], []) for P in (1, 2)])
    figures_ranks.pairs_heat(ep_lab.exchange(model, list(range(10, 26)), 4))
