"""Seconds of a piece of device work: CUDA graphs where they can be captured, else the clock."""

import datetime
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from minimoe.perf.hardware import best_seconds


def seconds_each(runs: list[Callable], device: str, graph: bool = True, budget: float = 0.2):
    """(seconds of one run, how it was timed). On CUDA the runs are captured into one graph, as an
    engine would replay them; several runs over different buffers keep a cache from helping."""
    if not device.startswith("cuda"):
        turn = iter(range(1 << 60))
        return best_seconds(lambda: runs[next(turn) % len(runs)](), device, budget), "clock"
    for run in runs:
        run()
    torch.cuda.synchronize()
    if not graph:
        all_runs = lambda: [run() for run in runs]  # noqa: E731
        return best_seconds(all_runs, device, budget) / len(runs), "eager"
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for run in runs:
            run()
    return _median_replay(captured, budget) / len(runs), "graph"


def _median_replay(graph, budget: float) -> float:
    times: list[float] = []
    graph.replay()
    while len(times) < 5 or (sum(times) < budget and len(times) < 50):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return sorted(times)[len(times) // 2]


def about(device: str) -> dict:
    """Date, device, versions and command: they belong beside any saved measurement."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("triton", "transformers"):
        try:
            versions[name] = __import__(name).__version__
        except ImportError:
            versions[name] = "not installed"
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    return {
        "date": datetime.date.today().isoformat(),
        "device": device,
        "versions": versions,
        "command": " ".join(["python -m minimoe", *words]),
    }


def save(result: dict, path: str | None) -> None:
    """Write a result to `path`, if there is one, with six digits of each number."""
    if path:
        Path(path).write_text(json.dumps(_rounded(result), indent=1) + "\n")


def _rounded(value):
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
