"""Two sides on the same weights, prompts, dtype and threads: fresh processes, interleaved, medians."""

import json
import platform
import subprocess
import sys
from statistics import median

from tqdm import tqdm

from minimoe.errors import MinimoeError

SIDES = ("minimoe", "transformers")


def compare(job: dict, rounds: int, against: str | None) -> dict:
    """Run `job` (see `side.py`) `rounds` times on each side, in turn.

    Gives `{"seconds": {side: [per case, the median over rounds]}, "variant": [per case], "versions"}`.
    The baseline's figure is that of its fastest variant for the case.
    """
    sides = [side for side in SIDES if side == "minimoe" or side == against]
    runs = {side: [] for side in sides}
    versions = {"python": platform.python_version(), "torch": _torch_version()}
    with tqdm(total=rounds * len(sides), desc="runs", file=sys.stderr, disable=None) as bar:
        for _ in range(rounds):
            for side in sides:
                result = _run_side({**job, "side": side})
                runs[side].append(result["seconds"])
                versions |= result["versions"]
                bar.update()
    best = {side: _fastest_variant(results) for side, results in runs.items()}
    return {
        "seconds": {side: [seconds for seconds, _ in cases] for side, cases in best.items()},
        "variant": [name for _, name in best[sides[-1]]],
        "versions": versions,
    }


def _fastest_variant(runs: list[dict]) -> list[tuple[float, str]]:
    """Per case the smallest median over runs, and the variant that has it."""
    cases = len(next(iter(runs[0].values())))
    return [
        min((median(run[name][case] for run in runs), name) for name in runs[0])
        for case in range(cases)
    ]


def _run_side(job: dict) -> dict:
    command = [sys.executable, "-m", "minimoe.bench.side"]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MinimoeError(f"the {job['side']} side failed: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def _torch_version() -> str:
    import torch

    return torch.__version__
