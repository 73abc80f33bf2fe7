"""Getting started is quick: the help needs no torch, the model is ready in a moment.

The times are asserted loosely, since a busy machine is slow; they are printed with `pytest -s`.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "numpy", "matplotlib", "tokenizers", "safetensors", "zfec", "transformers")


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from minimoe.__main__ import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "print(*(name for name in sys.modules if '.' not in name))"
    )
    loaded = set(run(code).split())
    assert "argparse" in loaded and not loaded & set(HEAVY)


def test_help_takes_a_moment():
    """Half a second is the aim, on a quiet laptop."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "minimoe", "--help"], cwd=ROOT, capture_output=True, check=True
        )
        times.append(time.perf_counter() - start)
    print(f"--help: {min(times):.2f} s")
    assert min(times) < 3


def test_the_model_is_ready_soon():
    """Two seconds are the aim, from an empty process to the first token's engine."""
    code = (
        "import time\n"
        "start = time.perf_counter()\n"
        "from minimoe import LLM, SamplingParams\n"
        "llm = LLM('tiny-moe', device='cpu')\n"
        "ready = time.perf_counter() - start\n"
        "llm.generate(['a'], SamplingParams(max_tokens=1))\n"
        "print(ready, time.perf_counter() - start)"
    )
    ready, first = map(float, run(code).split())
    print(f"LLM() ready: {ready:.2f} s, first token: {first:.2f} s")
    assert ready <= first < 30
