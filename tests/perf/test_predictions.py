"""The roofline model against what was measured, over every saved row."""

import pytest

from minimoe.course.measured import FOLDER, load
from minimoe.perf.roofline import Work, away_from_knee, predict

OVERHEAD = 12e-6  # seconds: the kernels of one layer start one after another
ON_CPU = sorted(path.stem for path in FOLDER.glob("cpu-*.json"))


@pytest.mark.parametrize("name, least", [("h200-moe", 6), ("h200-attention", 6)])
def test_within_a_quarter_away_from_the_knee_on_a_gpu(name, least):
    assert rows_within_a_quarter(name) >= least


@pytest.mark.parametrize("name", ON_CPU)
def test_within_a_quarter_away_from_the_knee_on_a_cpu(name):
    assert rows_within_a_quarter(name) >= 3


def rows_within_a_quarter(name: str) -> int:
    """How many rows of the file are away from the knee: all of them predicted within 25 %."""
    saved = load(name)
    bandwidth, rate = saved.roofs.read, saved.roofs.matmul[saved.dtype]
    checked = 0
    for row in saved.rows:
        work = Work(row["flops"], row["bytes"] + row.get("activation_bytes", 0))
        if "ragged" in row["shape"] or not away_from_knee(work, bandwidth, rate):
            continue
        ratio = predict(work, bandwidth, rate, OVERHEAD) / row["seconds"]
        assert 0.75 < ratio < 1.25, (row["shape"], row.get("tokens"), row.get("context"), ratio)
        checked += 1
    return checked


@pytest.mark.parametrize("name", ON_CPU)
def test_cpu_rows_say_where_they_are_from(name):
    saved = load(name)
    assert saved.command.startswith("python -m minimoe bench moe") and saved.date
    assert saved.roofs.device == "cpu" and saved.roofs.threads > 0 and saved.versions["torch"]


def test_saved_rows_say_where_they_are_from():
    for name in ("h200-moe", "h200-attention"):
        saved = load(name)
        assert saved.roofs.name == "NVIDIA H200" and saved.command.startswith("python -m minimoe")
        assert saved.date and saved.versions["torch"] and "measured on NVIDIA H200" in saved.about()
        assert all(row["path"] in ("experts_triton", "decode_triton") for row in saved.rows)
