"""The same tokens on eight ranks, and on two that torchrun starts."""

import json
import os
import subprocess
import sys

from ep_runs import PROMPTS, alone, tokens

from minimoe import LLM, SamplingParams


def test_eight_ranks():
    llm = LLM("tiny-moe", device="cpu", expert_parallel_size=8)
    few = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)
    assert tokens(llm.generate(PROMPTS, few)) == [ids[:6] for ids in alone()]
    llm.close()


def command_line(*words: str, torchrun: bool = False) -> subprocess.CompletedProcess:
    launcher = ["torch.distributed.run", "--nproc-per-node", "2", "-m"] if torchrun else []
    words = ["minimoe", "generate", "def fib(n):", "--max-tokens=12", "--device=cpu", *words]
    env = dict(os.environ, OMP_NUM_THREADS="1")
    line = [sys.executable, "-m", *launcher, *words]
    return subprocess.run(line, capture_output=True, text=True, env=env, timeout=120)


def test_under_torchrun():
    """The command line on two ranks that torchrun starts; only rank 0 speaks."""
    said = command_line("--json"), command_line("--json", torchrun=True)
    one, together = (json.loads(each.stdout) for each in said)
    assert together["token_ids"] == one["token_ids"]


def test_another_size_than_torchruns():
    said = command_line("--expert-parallel-size=3", torchrun=True)
    assert said.returncode != 0
    assert "expert_parallel_size is 3 and torchrun started 2 ranks" in said.stderr
