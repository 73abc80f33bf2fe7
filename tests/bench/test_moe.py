"""The expert-layer bench: routing, baselines that agree with us, rows and errors."""

import json
from argparse import ArgumentParser

import pytest
import torch

from minimoe.bench import attention, moe
from minimoe.bench.expert_baselines import BASELINES, sorted_rows
from minimoe.bench.expert_shapes import (
    SHAPES,
    ExpertShape,
    at_most,
    random_weights,
    routed,
    sized,
    weight_sets,
)
from minimoe.errors import MinimoeError
from minimoe.ops.grouped_experts import experts_naive
from minimoe.perf.hardware import Hardware

ROOFS = Hardware("test", "cpu", {"float32": 1e11, "bfloat16": 1e11}, 1e10, 1e10, 1e-6)
SMALL = ExpertShape("small", D=32, F=16, E=8, K=2)


def test_one_rank_keeps_every_choice():
    ids = routed(SMALL, 40, "cpu")
    assert ids.shape == (40, 2) and int(ids.min()) >= 0
    assert all(len(set(row)) == 2 for row in ids.tolist())


def test_a_rank_of_many_sees_its_share():
    shape = ExpertShape("part", D=32, F=16, E=4, K=6, P=16)
    ids = routed(shape, 64, "cpu")
    live = int((ids >= 0).sum())
    assert 0.8 < live / (64 * 6) < 1.25  # T * K rows a rank, on average
    assert bool((ids >= 0).any(1).all()), "tokens without an expert here do not come"
    assert int(ids.max()) < 4


def test_at_most_gives_equal_counts():
    assert torch.bincount(at_most(SMALL, 4, "cpu").flatten()).tolist() == [4] * 8


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_compute_the_same_layer(name):
    ids = routed(SMALL, 20, "cpu")
    weights = random_weights(SMALL, torch.float32, "cpu")
    x = torch.randn(20, 32)
    rows, chosen, ends = sorted_rows(x, ids, 8)
    want = experts_naive(rows, chosen[:, None], torch.ones(40, 1), *weights)
    try:
        with torch.inference_mode():
            got = BASELINES[name](rows, chosen, ends, *weights)()
    except (RuntimeError, ImportError) as error:
        pytest.skip(f"{name} does not run here: {error}")
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_rows_left_out_by_other_ranks_are_not_sorted():
    ids = torch.tensor([[0, -1], [-1, 2], [2, 0]])
    rows, chosen, ends = sorted_rows(torch.eye(3), ids, 3)
    assert chosen.tolist() == [0, 0, 2, 2] and ends.tolist() == [2, 2, 4]
    assert rows.argmax(1).tolist() == [0, 2, 1, 2]


def test_a_row_counts_distinct_experts():
    weights = [random_weights(SMALL, torch.float32, "cpu")]
    ids = torch.tensor([[0, 1], [1, 0], [0, 1]])
    row = moe.bench_ids(SMALL, ids, weights, "float32", "cpu", ROOFS, baselines=False)
    assert row["rows"] == 6 and row["experts_hit"] == 2 and row["most_rows"] == 3
    assert row["bytes"] == 2 * 3 * 32 * 16 * 4 and row["flops"] == 6 * 6 * 32 * 16
    assert row["seconds"] > 0 and row["share_of_bandwidth"] == pytest.approx(
        row["bytes"] / row["seconds"] / ROOFS.copy
    )
    assert row["path"].startswith("experts_")


def test_the_cpu_layer_is_larger_than_the_cache(monkeypatch):
    import minimoe.bench.expert_shapes as shapes

    monkeypatch.setattr(shapes, "last_level_cache", lambda: 32 << 20)
    monkeypatch.setattr(shapes, "free_memory", lambda device: 8 << 30)
    assert 1 <= sized(SHAPES["cpu"], 4).weight_bytes(4) / (8 * 32 * 2**20) < 1.2
    monkeypatch.setattr(shapes, "free_memory", lambda device: 256 << 20)
    small = sized(SHAPES["cpu"], 4)
    assert small.weight_bytes(4) <= 64 << 20 and small.E >= 8
    assert "quarter of the free memory" in small.note
    with pytest.raises(MinimoeError, match="needs .* GiB .* choose another"):
        sized(SHAPES["ep8"], 2)


def test_runs_take_turns_over_other_experts():
    layer = ExpertShape("cpu", D=32, F=16, E=24, K=2)
    sets = weight_sets(layer, torch.float32, "cpu")
    assert len(sets) == 6 and all(gate_up.shape == (24, 32, 32) for gate_up, _ in sets)
    assert sets[1][0][0].equal(sets[0][0][2]) and not sets[1][0][0].equal(sets[0][0][0])
    assert sum(gate_up[0].data_ptr() for gate_up, _ in sets) > 6 * sets[0][0].data_ptr()
    assert len(weight_sets(SMALL, torch.float32, "cpu")) == 1  # a layer that a cache should hold


def run(module, *words):
    parser = ArgumentParser()
    module.add_arguments(parser)
    return module.main(parser.parse_args(words))


@pytest.fixture
def roofs_file(tmp_path):
    path = tmp_path / "roofs.json"
    path.write_text(json.dumps({"roofs": ROOFS.to_dict()}))
    return str(path)


def test_near_baselines_take_turns_and_each_keeps_its_best(monkeypatch):
    ours, theirs = iter([4.0, 2.0, 3.0, 5.0]), iter([6.0, 2.5, 4.0, 4.0])
    monkeypatch.setattr(moe, "seconds_each", lambda *_, **__: (next(ours), "clock"))

    def again(x, ids, weights, device, names):
        assert names == {"near"}
        return {"near": next(theirs)}

    monkeypatch.setattr(moe, "time_baselines", again)
    others = {"near": 5.0, "far": 9.0, "missing": "does not run"}
    assert moe._in_turn([], None, None, None, "cpu", 4.5, others) == 2.0
    assert others == {"near": 2.5, "far": 9.0, "missing": "does not run"}


def test_verb_moe(roofs_file, tmp_path, monkeypatch):
    monkeypatch.setattr(moe, "DRIFTS", 0.0)  # one turn of each is enough here
    saved = tmp_path / "out.json"
    words = ["--shapes", "tiny", "--tokens", "1", "16", "--roofs", roofs_file]
    result = run(moe, *words, "--save", str(saved))
    assert [row["tokens"] for row in result["rows"]] == [1, 16]
    assert json.loads(saved.read_text())["rows"][1]["baselines"]["per-expert loop"] > 0
    table = moe.render(result)
    assert "tiny" in table and "experts_" in table
    assert {"date", "versions", "command", "roofs"} <= set(result)


def test_verb_attention(roofs_file):
    words = ["--shapes", "tiny", "tiny-ragged", "--contexts", "64", "--roofs", roofs_file]
    equal, ragged = (result := run(attention, *words))["rows"]
    assert equal["contexts"] == 32 * 64 and equal["bytes"] == 32 * 64 * 80 * 4
    assert 0.95 < ragged["contexts"] / equal["contexts"] <= 1
    assert ragged["longest"] > 64 and "decode_gathered" in ragged["path"]
    assert "tiny-ragged" in attention.render(result)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_one_clear_line(roofs_file):
    for module in (moe, attention):
        with pytest.raises(MinimoeError, match="no CUDA GPU is visible; use --device cpu"):
            run(module, "--device", "cuda", "--roofs", roofs_file)
    with pytest.raises(MinimoeError, match="choose one of"):
        run(moe, "--dtype", "float8", "--roofs", roofs_file)
