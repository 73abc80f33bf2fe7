"""The chart of 03 and its tables: they draw, and say what the model says."""

import matplotlib
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from minimoe.course import figures_ep as figures
from minimoe.perf import step_cost


@pytest.fixture(autouse=True)
def no_window(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))


@pytest.mark.parametrize("chip, fabric", [("B200", figures.WHOLE), ("H200", [*figures.FABRICS][1])])
def test_chart_prints_its_points(chip, fabric, capsys):
    figures.ep_chart(chip, fabric)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["1", "16", "60", "256"]
    both = figures.instances(chip, fabric)
    want = step_cost.ratio(both["EP8"], both["EP64"], 60)
    assert float(lines[3].split()[-1]) == pytest.approx(want, abs=0.006)


def test_chart_where_no_request_fits(capsys):
    figures.ep_chart(log2_context=30, drafts=0)
    assert capsys.readouterr().out.startswith("no request of 1,073,741,824 tokens fits")


def test_other_figures_draw():
    figures.ratio_by_batch()
    figures.price_of_speed()


def test_parts_add_up_to_the_step():
    for line in figures.parts_table().splitlines()[1:]:
        *parts, step = map(float, line.split()[2:])
        assert sum(parts) == pytest.approx(step, abs=0.05)


def test_sensitivity_changes_one_thing_at_a_time():
    lines = figures.sensitivity().splitlines()
    assert lines[1].startswith("as it is") and len(lines) == 10
    ratios = [float(line.split()[-1]) for line in lines[1:]]
    assert all(0.5 < ratio < 1.1 for ratio in ratios)


def test_price_table_has_a_dash_where_it_is_too_fast():
    narrow, wide = figures.price_table((50, 300)).splitlines()[1:]
    assert narrow.split()[-1] == "-" and float(wide.split()[1]) < float(narrow.split()[1])


def test_texts_of_the_model():
    assert figures.model_check_table().count("%") == 7
    ratios = [
        float(part.split()[0])
        for part in figures.expert_error(0.13, 256).split(": ")[1].split(", ")
    ]
    both, narrow, wide = ratios
    assert narrow < both < wide
