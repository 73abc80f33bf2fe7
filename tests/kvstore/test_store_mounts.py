"""A real full disk and a real read-only one: small mounts, where the system lets us make them."""

import subprocess
import sys

import numpy as np
import pytest

from minimoe import SamplingParams
from minimoe.kvstore.metadata import StoreError
from minimoe.kvstore.repair import repair
from minimoe.kvstore.store import BlockStore

BLOCK = 16_384


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 6 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def blocks(first, count):
    rng = np.random.default_rng(first)
    return [(i.to_bytes(32, "big"), rng.bytes(BLOCK)) for i in range(first, first + count)]


def test_a_full_disk_keeps_what_was_committed(small_disk):
    store = BlockStore(small_disk, "m", BLOCK, segment_bytes=16 * BLOCK)
    stored, full = [], False
    for first in range(0, 1000, 16):
        try:
            store.put(blocks(first, 16))
            stored += blocks(first, 16)
        except OSError as error:
            assert "No space left" in str(error)
            full = True
            break
    assert full and len(stored) > 100
    out = np.zeros((len(stored), BLOCK), np.uint8)
    assert store.get([key for key, _ in stored], out) == (len(stored), [])
    assert all(out[i].tobytes() == value for i, (_, value) in enumerate(stored))
    assert repair(store).strangers_removed == 0
    store.close()


def test_an_engine_on_a_full_disk_goes_on(small_disk, make_llm, prompt_of):
    (small_disk / "ballast").write_bytes(bytes(5 * 2**20))
    llm, plain = make_llm(kv_store=small_disk), make_llm()
    params = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
    with pytest.warns(RuntimeWarning, match="No space left|full"):
        for seed in range(12):
            prompt = [prompt_of(200, seed=seed)]
            out = llm.generate(prompt, params)[0].outputs[0].token_ids
            assert out == plain.generate(prompt, params)[0].outputs[0].token_ids
            llm.engine.reuse.flush(1.0)
    (small_disk / "ballast").unlink()


def test_a_read_only_disk_is_one_line(small_disk, make_llm):
    make_llm(kv_store=small_disk).close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for folder in (small_disk, small_disk / "new"):
        with pytest.raises(StoreError) as error:
            make_llm(kv_store=folder)
        assert "\n" not in str(error.value) and "give a folder" in str(error.value)
