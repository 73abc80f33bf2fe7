"""What 02_kv_cache measures and draws: blocks, steps, and figures at the ends of their sliders."""

import matplotlib
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from minimoe import LLM
from minimoe.course import figures_kv as figures
from minimoe.course import kv_lab, measured
from minimoe.perf import kv_cost


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def llm():
    return LLM("tiny-moe", device="cpu", max_num_seqs=4, enable_prefix_caching=False)


def test_blocks_are_rounded_up_and_given_back(llm):
    assert kv_lab.blocks_by_length(llm, [1, 16, 17, 32]) == {1: 1, 16: 1, 17: 2, 32: 2}
    llm.engine.pool.check()
    assert llm.engine.pool.num_free == llm.engine.pool.num_blocks


def test_the_pool_limits_what_runs():
    small = LLM("tiny-moe", num_gpu_blocks_override=4, device="cpu", enable_prefix_caching=False)
    assert kv_lab.running_at_once(small, [16, 17, 15, 20]) == 3  # 1 + 2 + 1 blocks
    assert not small.engine.has_unfinished_requests() and small.engine.pool.num_free == 4


def test_a_decode_step_leaves_the_pool_as_it_was(llm):
    assert min(kv_lab.decode_seconds(llm, 2, [16, 40], rounds=1)) > 0
    llm.engine.pool.check()
    assert llm.engine.pool.num_free == llm.engine.pool.num_blocks


@pytest.mark.parametrize("lengths", [[3, 9, 1, 2, 8, 1], [2], [5, 5, 5, 5]])
def test_the_engine_takes_the_steps_that_are_predicted(llm, lengths):
    static = kv_lab.run_batches(llm, lengths, 4)
    continuous = kv_lab.run_batches(llm, lengths, len(lengths))
    assert static.steps == kv_cost.static_steps(lengths, 4)
    assert continuous.steps == kv_cost.continuous_steps(lengths, 4)
    assert static.tokens == sum(lengths) and 0 < static.share(4) <= 1


@pytest.mark.parametrize("cache", figures.CACHES)
@pytest.mark.parametrize("log2_context, requests, experts", [(8, 1, "EP64"), (20, 256, "EP8")])
def test_slider_at_its_ends(capsys, cache, log2_context, requests, experts):
    figures.context_cost(cache, log2_context, requests, experts)
    assert "ms at 8 TB/s" in capsys.readouterr().out


def test_figures_draw_and_tables_say_the_key_numbers():
    saved = measured.load("h200-attention")
    shapes = {"16 heads": saved.shape("mla16")}
    figures.per_token_bars()
    figures.waste_by_length({1: 1, 16: 1, 17: 2})
    figures.step_by_context([1, 2], [0.1, 0.2], {"model": [0.1, 0.2]})
    figures.attention_by_context(shapes, saved.roofs.copy)
    figures.cache_against_weights()
    figures.batching_plans([1, 5, 2], 2)
    assert len(plt.get_fignums()) == 6
    assert "3,514     3,514" in figures.per_token_table()
    assert "38.7" in figures.crossing_table() and "131,072" in figures.attention_table(shapes)
