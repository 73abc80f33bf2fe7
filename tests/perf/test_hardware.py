"""Measuring a machine: the shape of the result, not the machine."""

import json

import pytest
import torch

from minimoe.perf import hardware as h
from minimoe.perf.chips import CHIPS


@pytest.fixture(scope="module")
def machine():
    torch.set_num_threads(2)
    return h.measure("cpu", seconds=1.0)


def test_a_machine_has_roofs(machine):
    assert machine.read > 0 and machine.copy > 0 and machine.overhead > 0
    assert set(machine.matmul) == {"float32", "bfloat16"}
    assert machine.knee("float32") == machine.matmul["float32"] / machine.read
    assert machine.label == "measured here" and machine.threads == torch.get_num_threads()


def test_a_measurement_survives_a_file(machine):
    assert h.from_dict(json.loads(json.dumps(machine.to_dict()))) == machine


def test_caches_show_as_steps():
    sizes = [2**i for i in range(10)]
    reads = [100, 101, 99, 100, 40, 41, 40, 10, 11, 10]
    sweep = [h.Sweep(size, read, read) for size, read in zip(sizes, reads, strict=True)]
    assert h.cache_steps(sweep) == [2**3, 2**6]
    flat = [h.Sweep(size, 50.0, 50.0) for size in sizes]
    assert h.cache_steps(flat) == []


def test_sizes_fit_into_memory():
    assert max(h.sweep_sizes("cpu")) <= h.free_memory("cpu") // 5
    cache = h.last_level_cache()
    assert cache is None or cache >= 2**15


def test_the_bar_is_silent_unless_asked(capsys):
    h.Bar(2).step("reading")
    assert capsys.readouterr().err == ""
    bar = h.Bar(2, show=True)
    bar.step("reading")
    bar.step("done")
    assert "done" in capsys.readouterr().err


def test_best_of_repeats():
    calls = []
    assert 0 < h.best_seconds(lambda: calls.append(1), "cpu", budget=0.01) < 0.01
    assert len(calls) >= 4


@pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda c: c.name)
def test_chips_name_their_source(chip):
    assert chip.source and chip.label in ("reported", "derived")
    assert chip.on_chip < chip.memory and chip.knee() > 1


def test_memory_is_about_a_thousand_times_the_on_chip_memory():
    """The post's "roughly a thousand": shared memory to HBM, within a factor of five."""
    for name in ("H100", "H200", "B200"):
        assert 1000 < CHIPS[name].memory / CHIPS[name].on_chip < 5000
