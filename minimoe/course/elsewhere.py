"""Compute a prompt in another process, which then dies: `run_elsewhere` for a notebook.

As a program it loads a model with a store, answers one prompt and kills itself, as a node that
loses its power would: no clean-up, no goodbye. What its engine had handed over stays.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_elsewhere(folder: str | Path, prompt: list[int], model: str = "tiny-moe") -> dict:
    """Answer `prompt` in a process of its own that ends by SIGKILL.

    Gives its `pid`, `cached` tokens and `exit` code: -9 where a signal ended it.
    """
    job = json.dumps({"model": str(model), "folder": str(folder), "prompt": prompt})
    done = subprocess.run(
        [sys.executable, "-m", "minimoe.course.elsewhere"],
        input=job,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )
    if not done.stdout:
        raise RuntimeError(f"the other process failed: {done.stderr[-500:]}")
    return {**json.loads(done.stdout), "exit": done.returncode}


def wait_for_blocks(llm, count: int, seconds: float = 20.0) -> int:
    """Wait until the store holds `count` blocks or the time is over; how many it holds."""
    store, end = llm.engine.reuse.disk.store, time.monotonic() + seconds
    while store.stats()["blocks"] < count and time.monotonic() < end:
        time.sleep(0.05)
    return store.stats()["blocks"]


def main() -> None:
    from minimoe import LLM, SamplingParams

    job = json.loads(sys.stdin.read())
    llm = LLM(job["model"], device="cpu", kv_store=job["folder"])
    out = llm.generate([job["prompt"]], SamplingParams(max_tokens=1, temperature=0.0))[0]
    print(json.dumps({"pid": os.getpid(), "cached": out.num_cached_tokens}), flush=True)
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


if __name__ == "__main__":
    main()
