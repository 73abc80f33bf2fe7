"""The figures of the two KV notebooks draw, at the ends of their sliders too, and say numbers."""

import matplotlib
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from minimoe.course import figures_ep
from minimoe.course import figures_kv_reuse as reuse
from minimoe.course import figures_kv_store as store


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.mark.parametrize("turns, system, question, answer", [(12, 200, 40, 100), (1, 0, 5, 5)])
def test_conversation_cost(capsys, turns, system, question, answer):
    reuse.conversation_cost(turns, system, question, answer)
    text = capsys.readouterr().out
    assert text.startswith(f"{turns} turns:") and "(reported)" in text


def test_reuse_figures_draw():
    reuse.block_strips(88, 8, 106, 80)
    reuse.first_token_bars({"computed": 0.1, "found in memory": 0.01})
    reuse.chain_left([("at first", 8), ("newcomer", 3)])
    assert len(plt.get_fignums()) == 3


def test_store_figures_draw(capsys):
    store.hits_lost_by_minute(
        {"affine": ([1.0, 2.0], [10.0, 0.0]), "one pool": ([1.0, 2.0], [0, 0])}
    )
    store.retention_curves({"chat": [10.0, 1e5, 4e5], "agent": [1.0]})
    losses = store.tail_figure((0.2, 0.8))
    assert losses[0] > losses[1] and "of absences" in capsys.readouterr().out


@pytest.mark.parametrize("settings", [{}, {"logical_tb": 60.0, "years": 1, "gpu_per_hour": 0.5}])
def test_storage_cost(capsys, settings):
    ssd = store.storage_cost(**settings)
    assert f"{ssd.physical_tb:.1f} TB of disk" in capsys.readouterr().out


@pytest.mark.parametrize(
    "settings", [{}, {"gpus": 12_000, "income_per_gpu_hour": 60}, {"gpus": 3000}]
)
def test_consistent_pairs(capsys, settings):
    store.consistent_figure(**settings)
    assert "per million tokens" in capsys.readouterr().out


def test_batch_or_interactive_is_the_chart_of_03(capsys):
    store.batch_or_interactive()
    said = capsys.readouterr().out
    both = figures_ep.instances()
    rows = [
        f"{both['EP8'].tokens_per_gpu(n) / both['EP64'].tokens_per_gpu(n):.0%} at {n}"
        for n in (16, 60, 256, 992)
    ]
    assert ", ".join(rows) in said
    assert figures_ep.price_table() in said


def test_schemes_table():
    rows = store.schemes_table(0.01).splitlines()
    assert "1.2x" in rows[-1] and "2.1e-04" in rows[-1]
