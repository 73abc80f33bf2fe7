"""Two sides on the same weights, prompts, dtype, threads: fresh processes, in turn, medians."""

import json
import platform
import subprocess
import sys
from statistics import median

from tqdm import tqdm

from minimoe.errors import MinimoeError


def compare(job: dict, rounds: int, against: str | None) -> dict:
    """Run the cases of `job` (see `side.py`) `rounds` times on each side, in turn.

    A baseline with several implementations is first run once with all of them, and then, case by
    case, with the fastest. Gives `{"seconds": {side: [median per case]}, "variant": [per case],
    "versions"}`.
    """
    sides = ["minimoe", against] if against else ["minimoe"]
    versions = {"python": platform.python_version(), "torch": _torch_version()}
    jobs = {side: {**job, "side": side} for side in sides}
    if against:
        jobs[against] = _with_fastest_variants(jobs[against])
    runs = {side: [] for side in sides}
    with tqdm(total=rounds * len(sides), desc="runs", file=sys.stderr, disable=None) as bar:
        for _ in range(rounds):
            for side in sides:
                result = _run_side(jobs[side])
                runs[side].append([min(case.values()) for case in result["seconds"]])
                versions |= result["versions"]
                bar.update()
    medians = {side: [median(case) for case in zip(*runs[side], strict=True)] for side in sides}
    variants = [case.get("variants", [None])[0] for case in jobs[sides[-1]]["cases"]]
    return {"seconds": medians, "variant": variants, "versions": versions}


def _with_fastest_variants(job: dict) -> dict:
    seconds = _run_side(job)["seconds"]
    cases = [
        {**case, "variants": [min(times, key=times.get)]}
        for case, times in zip(job["cases"], seconds, strict=True)
    ]
    return {**job, "cases": cases}


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
