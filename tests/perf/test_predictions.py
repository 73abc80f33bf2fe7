"""The roofline model against what was measured on an H200, over every saved row."""

import pytest

from minimoe.course.measured import load
from minimoe.perf.roofline import Work, away_from_knee, predict

OVERHEAD = 12e-6  # seconds: the kernels of one layer start one after another


@pytest.mark.parametrize("name", ["h200-moe", "h200-attention"])
def test_within_a_quarter_away_from_the_knee(name):
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
    assert checked >= 6


def test_saved_rows_say_where_they_are_from():
    for name in ("h200-moe", "h200-attention"):
        saved = load(name)
        assert saved.roofs.name == "NVIDIA H200" and saved.command.startswith("python -m minimoe")
        assert saved.date and saved.versions["torch"] and "measured on NVIDIA H200" in saved.about()
        assert all(row["path"] in ("experts_triton", "decode_triton") for row in saved.rows)
