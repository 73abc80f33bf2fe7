"""The store behind the engine: hits from disk, from other processes, with nodes lost; failures."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from kvstore.conftest import save_random

from minimoe import SamplingParams
from minimoe.errors import MinimoeError
from minimoe.kvstore.block_bytes import block_bytes, finite, pack, unpack
from minimoe.kvstore.line_fit import LineFit
from minimoe.kvstore.metadata import StoreError
from minimoe.kvstore.repair import repair
from minimoe.kvstore.tiers import TRY_AGAIN

B = 16
GREEDY = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)


def one(llm, prompt, params=GREEDY):
    return llm.generate([prompt], params)[0]


def store_of(llm):
    return llm.engine.reuse.disk.store


def settled(llm):
    """Everything is in the store, and memory has forgotten it."""
    assert llm.engine.reuse.flush()
    llm.engine.reuse.index.clear()
    return llm


@pytest.mark.parametrize("lost", [(), (0, 7)])
@pytest.mark.parametrize("length", [1, B - 1, B, B + 1, 2 * B - 1, 2 * B, 2 * B + 1, 5 * B])
def test_a_prompt_comes_back_from_disk(make_llm, prompt_of, tmp_path, length, lost):
    llm, prompt = make_llm(kv_store=tmp_path), prompt_of(length)
    cold = one(llm, prompt)
    settled(llm)
    hurt(store_of(llm), lost, "gone")
    warm = one(llm, prompt)
    assert warm.num_cached_tokens == (length - 1) // B * B
    assert llm.engine.reuse.disk.counts["loaded"] == (length - 1) // B
    assert warm.outputs[0].token_ids == cold.outputs[0].token_ids


@pytest.mark.parametrize("dtype, error", [("float64", 1e-12), ("float32", 1e-4)])
def test_logits_are_those_of_the_cold_run(make_llm, prompt_of, tmp_path, dtype, error):
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True, logprobs=5)
    llm, prompt = make_llm(dtype=dtype, kv_store=tmp_path), prompt_of(5 * B + 3)
    cold = one(llm, prompt, params).outputs[0].logprobs
    for lost in ((), (3, 4)):
        settled(llm)
        hurt(store_of(llm), lost, "flipped")
        warm = one(llm, prompt, params)
        assert warm.num_cached_tokens == 5 * B
        for a, b in zip(cold, warm.outputs[0].logprobs, strict=True):
            assert a.keys() == b.keys()
            assert max(abs(a[token] - b[token]) for token in a) <= error


def test_memory_first_then_disk(make_llm, prompt_of, tmp_path):
    llm, prompt = make_llm(kv_store=tmp_path), prompt_of(6 * B + 2)
    cold = one(llm, prompt)
    llm.engine.reuse.flush()
    for block in llm.engine.reuse.index.lookup(prompt)[2:]:
        llm.engine.reuse.index.forget(block)
    warm = one(llm, prompt)
    assert warm.num_cached_tokens == 6 * B
    assert llm.engine.reuse.disk.counts["loaded"] == 4
    assert warm.outputs[0].token_ids == cold.outputs[0].token_ids


def test_hits_under_pool_pressure_in_a_busy_batch(make_llm, prompt_of, tmp_path):
    quiet, busy = make_llm(), make_llm(kv_store=tmp_path, num_gpu_blocks_override=14)
    system = prompt_of(4 * B)
    prompts = [system + prompt_of(10 + 3 * i, seed=i) for i in range(12)]
    expected = [one(quiet, prompt).outputs[0].token_ids for prompt in prompts]
    for _ in range(2):
        outputs = busy.generate(prompts, GREEDY)
        assert [out.outputs[0].token_ids for out in outputs] == expected
        settled(busy)
    assert sum(out.num_cached_tokens for out in outputs) > 4 * B
    assert busy.engine.reuse.disk.counts["loaded"] > 0


ONE_REQUEST = """
import sys
from minimoe import LLM, SamplingParams
llm = LLM(sys.argv[1], dtype="float64", kv_store=sys.argv[2])
prompt = [int(token) for token in sys.argv[3].split()]
out = llm.generate([prompt], SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True))[0]
print(out.num_cached_tokens, *out.outputs[0].token_ids, flush=True)
if sys.argv[4] == "die":
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
llm.close()
"""


def in_a_process(model, store, prompt, end="close"):
    text = " ".join(map(str, prompt))
    command = [sys.executable, "-c", ONE_REQUEST, str(model), str(store), text, end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, -9), done.stderr
    cached, *tokens = map(int, done.stdout.split())
    return cached, tokens


def test_another_process_hits_the_prefix_of_one_that_was_killed(
    make_llm, model_folder, prompt_of, tmp_path
):
    prompt = prompt_of(5 * B + 3)
    cached, tokens = in_a_process(model_folder, tmp_path, prompt, end="die")
    assert cached == 0
    llm = make_llm(kv_store=tmp_path)  # meanwhile the dead engine's writer finishes its work
    for _ in range(200):
        if store_of(llm).stats()["blocks"] == 5:
            break
        time.sleep(0.05)
    warm = one(llm, prompt)
    assert (warm.num_cached_tokens, warm.outputs[0].token_ids) == (5 * B, tokens)


def test_two_processes_share_prefixes_both_ways(make_llm, model_folder, prompt_of, tmp_path):
    here, ours, theirs = make_llm(kv_store=tmp_path), prompt_of(40), prompt_of(60)
    mine = one(here, ours)
    settled(here)
    assert in_a_process(model_folder, tmp_path, ours) == (32, mine.outputs[0].token_ids)
    cached, tokens = in_a_process(model_folder, tmp_path, theirs)
    assert cached == 0
    warm = one(here, theirs)
    assert (warm.num_cached_tokens, warm.outputs[0].token_ids) == (48, tokens)


@pytest.mark.parametrize(
    "nodes, damage", [((0, 7), "gone"), ((3, 4), "flipped"), ((10, 11), "cut")]
)
def test_two_nodes_lost_while_the_engine_runs(make_llm, prompt_of, tmp_path, nodes, damage):
    llm, prompts = make_llm(kv_store=tmp_path), [prompt_of(4 * B + i, seed=i) for i in range(3)]
    cold = [one(llm, prompt).outputs[0].token_ids for prompt in prompts]
    settled(llm)
    hurt(store_of(llm), nodes, damage)
    warm = [one(llm, prompt) for prompt in prompts]
    assert [out.num_cached_tokens for out in warm] == [(4 * B + i - 1) // B * B for i in range(3)]
    assert [out.outputs[0].token_ids for out in warm] == cold
    assert repair(store_of(llm)).shards_rebuilt > 0
    assert repair(store_of(llm)).shards_rebuilt == 0


def hurt(store, nodes, damage):
    for node in nodes:
        folder = store.nodes.folders[node]
        if damage == "gone":
            shutil.rmtree(folder, ignore_errors=True)
            continue
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            with open(path, "r+b") as file:
                if damage == "cut":
                    file.truncate(5)
                else:
                    byte = file.read(1)
                    file.seek(0)
                    file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("nodes, damage", [((1, 5, 8), "gone"), (range(12), "cut")])
def test_three_lost_mean_computing_again_and_then_hits_again(
    make_llm, prompt_of, tmp_path, nodes, damage
):
    llm, prompt = make_llm(kv_store=tmp_path), prompt_of(15 * B)
    cold = one(llm, prompt)
    settled(llm)
    hurt(store_of(llm), nodes, damage)
    missed = one(llm, prompt)
    assert missed.num_cached_tokens == 0
    assert missed.outputs[0].token_ids == cold.outputs[0].token_ids
    settled(llm)
    warm = one(settled(make_llm(kv_store=tmp_path)), prompt)
    assert warm.num_cached_tokens == 14 * B
    assert warm.outputs[0].token_ids == cold.outputs[0].token_ids


def test_an_engine_of_another_model_or_dtype_is_refused(make_llm, tmp_path, tmp_path_factory):
    make_llm(kv_store=tmp_path)
    other = save_random(tmp_path_factory.mktemp("other"), seed=1)
    with pytest.raises(StoreError, match=r"model other.*") as error:
        make_llm(other, kv_store=tmp_path)
    assert "model model" in str(error.value)
    with pytest.raises(StoreError, match="float64.*float32"):
        make_llm(dtype="float32", kv_store=tmp_path)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"kv_store": {"quota": 5}}, "give a folder, or a dict with 'folder'"),
        ({"kv_store": {"folder": "x", "quota_bytes": 5}}, "quota of 5 bytes"),
        ({"kv_store": {"folder": "x", "kind": "movie"}}, "class 'movie'"),
        ({"kv_store": "x", "enable_prefix_caching": False}, "needs prefix caching"),
        ({"kv_store": "/dev/null/kv"}, "/dev/null/kv"),
    ],
)
def test_bad_settings_are_one_line(make_llm, tmp_path, monkeypatch, settings, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MinimoeError, match=words) as error:
        make_llm(**settings)
    assert "\n" not in str(error.value)


def test_a_store_that_fails_costs_hits_and_not_requests(make_llm, prompt_of, tmp_path):
    llm, prompt = make_llm(kv_store=tmp_path), prompt_of(3 * B)
    cold = one(llm, prompt)
    settled(llm)

    def fail(keys):
        raise sqlite3.OperationalError("disk I/O error")

    store_of(llm).meta.find = fail
    with pytest.warns(RuntimeWarning, match="disk I/O error; computing instead of loading"):
        again = one(llm, prompt)
    assert again.num_cached_tokens == 0
    assert again.outputs[0].token_ids == cold.outputs[0].token_ids


def test_a_full_disk_is_a_warning_and_service_goes_on(make_llm, prompt_of, tmp_path, monkeypatch):
    llm, plain, prompt = make_llm(kv_store=tmp_path), make_llm(), prompt_of(4 * B)

    def full(path, header, payload=b""):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("minimoe.kvstore.handoff.write_message", full)
    with pytest.warns(RuntimeWarning, match="No space left on device; blocks are not saved for"):
        out = one(llm, prompt)
    assert out.outputs[0].token_ids == one(plain, prompt).outputs[0].token_ids
    monkeypatch.undo()
    assert one(llm, prompt_of(2 * B, seed=5)).finished


def test_a_copy_is_made_before_the_page_is_used_again(make_llm, prompt_of, tmp_path):
    llm = make_llm(kv_store=tmp_path, num_gpu_blocks_override=6)
    disk = llm.engine.reuse.disk
    disk.tick = lambda idle: None  # a slow writer: nothing is handed over until it has to be
    prompts = [prompt_of(5 * B, seed=i) for i in range(6)]
    cold = [one(llm, prompt).outputs[0].token_ids for prompt in prompts]
    del disk.tick
    settled(llm)
    warm = [one(llm, prompt) for prompt in prompts]
    assert [out.num_cached_tokens for out in warm] == [4 * B] * 6
    assert [out.outputs[0].token_ids for out in warm] == cold


def test_loading_waits_until_the_pool_has_room(make_llm, prompt_of, tmp_path):
    llm = make_llm(kv_store=tmp_path, num_gpu_blocks_override=8, max_num_batched_tokens=512)
    prompt = prompt_of(5 * B)
    one(llm, prompt)
    settled(llm)
    llm.engine.add_request("long", prompt_of(6 * B, seed=1), GREEDY)
    llm.engine.step()
    llm.engine.add_request("waits", prompt, GREEDY)
    llm.engine.step()
    assert llm.engine.reuse.disk.counts["loaded"] == 0
    while llm.engine.has_unfinished_requests():
        outputs = llm.engine.step()
    assert outputs[0].num_cached_tokens == 4 * B
    assert llm.engine.reuse.disk.counts["loaded"] == 4


def test_loads_only_where_that_is_quicker(make_llm, prompt_of, tmp_path):
    llm, prompt = make_llm(kv_store=tmp_path, rule=True), prompt_of(6 * B + 1)
    one(llm, prompt)
    disk = settled(llm).engine.reuse.disk
    disk.computing = LineFit()
    for tokens in (64, 128):
        disk.observe_compute(tokens, tokens * 1e-9)
    assert not disk.worth_loading(6)
    assert one(llm, prompt).num_cached_tokens == 0
    for _ in range(50):
        for tokens in (64, 128):
            disk.observe_compute(tokens, 0.01 + tokens * 1e-2)
    assert disk.worth_loading(6) and disk.crossover_tokens() < B
    llm.engine.reuse.index.clear()
    assert one(llm, prompt).num_cached_tokens == 6 * B


def test_a_disk_that_was_slow_once_is_tried_again(make_llm, prompt_of, tmp_path):
    llm, prompt = make_llm(kv_store=tmp_path, rule=True), prompt_of(6 * B + 1)
    one(llm, prompt)
    disk = settled(llm).engine.reuse.disk
    disk.computing, disk.loading = LineFit(), LineFit()
    for tokens in (64, 128):
        disk.computing.add(tokens, tokens * 1.0)
    disk.loading.add(6, 1e6)
    cached = []
    for _ in range(TRY_AGAIN + 1):
        llm.engine.reuse.index.clear()
        cached.append(one(llm, prompt).num_cached_tokens)
    assert cached == [0] * TRY_AGAIN + [6 * B]


def test_retention_class_and_uses_reach_the_store(make_llm, prompt_of, tmp_path):
    llm = make_llm(kv_store={"folder": tmp_path, "kind": "agent"})
    prompt = prompt_of(3 * B)
    one(llm, prompt)
    settled(llm)
    before = store_of(llm).meta.all_segments()[0]
    old = store_of(llm).meta.expiry(before.id)
    kinds = store_of(llm).meta.db.execute("SELECT kind FROM segments").fetchall()
    assert kinds == [("agent",)]
    assert one(llm, prompt).num_cached_tokens == 2 * B
    llm.engine.reuse.flush()
    assert store_of(llm).meta.expiry(before.id) > old


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_blocks_to_bytes_and_back(dtype):
    planes = {
        "target": torch.randn(3, 9, B, 20).to(dtype),
        "draft": torch.randn(2, 9, B, 8).to(dtype),
    }
    blocks = [7, 0, 4]
    data = pack(planes, blocks)
    assert data.shape == (3, block_bytes(planes)) == (3, 16 * (3 * 20 + 2 * 8) * dtype.itemsize)
    empty = {name: torch.zeros_like(plane) for name, plane in planes.items()}
    unpack(empty, [1, 2, 8], data)
    for name, plane in planes.items():
        assert torch.equal(empty[name][:, [1, 2, 8]], plane[:, blocks])
        assert not empty[name][:, [0, 3, 4, 5, 6, 7]].any()
    planes["draft"][1, 0, 3, 2] = float("nan")
    assert finite(planes, pack(planes, blocks)).tolist() == [True, False, True]


def test_line_fit():
    fit, rng = LineFit(guess=(1.0, 2.0)), random.Random(0)
    assert fit.seconds(3) == 7.0
    for _ in range(100):
        size = rng.randrange(1, 50)
        fit.add(size, 0.5 + 0.25 * size)
    assert np.allclose(fit.line(), (0.5, 0.25))
    one_size = LineFit()
    one_size.add(4, 2.0)
    one_size.add(4, 2.0)
    assert one_size.seconds(8) == pytest.approx(4.0) and LineFit().seconds(1) is None
