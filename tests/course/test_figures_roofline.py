"""The figures and tables of 01 draw and say their numbers; step timing counts what it should."""

import matplotlib
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from minimoe import LLM
from minimoe.bench.expert_shapes import ExpertShape
from minimoe.course import figures_roofline as figures
from minimoe.course import measured, predictions
from minimoe.course.layer_timing import SETS, time_layer
from minimoe.course.step_timing import decode_step, prefill_step, read_at
from minimoe.perf.hardware import Hardware, Sweep
from minimoe.perf.roofline import distinct_uniform

MACHINE = Hardware(
    "a machine",
    "cpu",
    {"float32": 1e11},
    1e10,
    1e10,
    1e-6,
    [Sweep(1 << 20, 4e10, 3e10), Sweep(1 << 24, 1e10, 1e10)],
)


@pytest.fixture(autouse=True)
def drawn(monkeypatch):
    seen = []
    monkeypatch.setattr(plt, "show", lambda: (plt.gcf().canvas.draw(), seen.append(plt.gcf())))
    yield seen
    plt.close("all")


def test_figures_draw(drawn):
    saved = measured.load("h200-moe")
    figures.memory_steps(MACHINE)
    series = {name: figures.layer_points(saved.shape(name)) for name in ("ep8", "ep64")}
    roofs = saved.roofs
    figures.roofline_plot(roofs.read, roofs.matmul["bfloat16"], series, "t", "measured on H200")
    figures.distinct_experts(8, 2, [0.25] * 8)
    figures.per_gpu_throughput(saved.shape("ep8"), saved.shape("ep64"))
    assert len(drawn) == 4
    knee = [text for text in drawn[1].axes[0].texts if "knee" in text.get_text()]
    axes = drawn[1].axes[0]
    assert axes.get_window_extent().contains(*knee[0].get_window_extent().get_points()[0])


@pytest.mark.parametrize("chip, experts, tokens", [("H100", 6, 8), ("B200", 96, 4096)])
def test_chip_slider_says_which_side(capsys, chip, experts, tokens):
    figures.chip_slider(chip, experts, tokens)
    now = figures.layer_on_chip(chip, experts, tokens)
    side = "memory" if now["memory"] > now["arithmetic"] else "arithmetic"
    assert f"bound by {side}" in capsys.readouterr().out


def test_predictions_leave_out_what_the_model_does_not_cover():
    rows = predictions.predicted_rows(measured.load("h200-attention"))
    assert {row.name for row in rows} == {"mla16", "mla64"} and len(rows) == 6
    assert predictions.prediction_table(rows).count("near the knee") == 3


def test_drawn_choices_agree_with_the_formula():
    for tokens in (1, 7, 40):
        drawn = predictions.simulated_distinct(32, 3, tokens, tries=400)
        assert drawn == pytest.approx(distinct_uniform(32, 3, tokens), rel=0.05)


def test_ratio_is_of_throughput():
    narrow = [{"tokens": 16, "seconds": 4.0}]
    assert predictions.per_gpu_ratios(narrow, [{"tokens": 16, "seconds": 1.0}]) == {16: 0.25}


def test_layer_turns_over_fresh_experts():
    shape = ExpertShape("small", D=16, F=8, E=8, K=2)
    rows = time_layer(shape, [1, 8], MACHINE)
    assert [row["experts_hit"] for row in rows][0] == 2 and SETS > 1
    assert len(predictions.layer_table(rows).splitlines()) == 3


def test_bandwidth_is_of_the_size_that_is_read():
    assert read_at(MACHINE, 1000) == 4e10
    assert read_at(MACHINE, 1 << 23) == 1e10
    assert read_at(MACHINE, 1 << 30) == MACHINE.read


def test_steps_are_counted_and_leave_the_engine_empty():
    llm = LLM("tiny-moe", device="cpu", enable_prefix_caching=False)
    decode, prefill = decode_step(llm, 2, steps=2), prefill_step(llm, 40, steps=2)
    assert not llm.engine.has_unfinished_requests()
    assert decode.calls > 100 and prefill.tokens == 40
    assert prefill.work.intensity > decode.work.intensity
    assert "decode, 2" in predictions.steps_table([decode, prefill], MACHINE)
