"""The same tokens on eight ranks, and on two that torchrun starts."""

import json
import os
import subprocess
import sys

import pytest
from ep_runs import PROMPTS, alone, run_with, tokens

from minimoe import LLM, SamplingParams
from minimoe.bench.ep import by_formula
from minimoe.parallel.placement import balance


def test_eight_ranks():
    llm = LLM("tiny-moe", device="cpu", expert_parallel_size=8)
    few = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)
    assert tokens(llm.generate(PROMPTS, few)) == [ids[:6] for ids in alone()]
    llm.close()


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_all_sizes_at_full_length(ranks):
    """Tokens, logits to a constant, and bytes, with a rebalance in the middle."""
    spares = {"spare_slots": 1}
    llm = LLM("tiny-moe", device="cpu", expert_parallel_size=ranks, expert_parallel_config=spares)
    slots = llm.engine.placement.slots.shape[1]
    every = SamplingParams(max_tokens=2, temperature=0.0, logprobs=llm.config.vocab_size)
    one = LLM("tiny-moe", device="cpu").generate(PROMPTS[:4], every)
    llm.engine.step_times()
    for mine, theirs in zip(llm.generate(PROMPTS[:4], every), one, strict=True):
        for a, b in zip(mine.outputs[0].logprobs, theirs.outputs[0].logprobs, strict=True):
            assert max(abs(a[token] - b[token]) for token in b) < 1e-4
    times = llm.engine.step_times()
    assert [one["bytes"] for one in times] == by_formula(llm, times)
    better = balance(llm.engine.expert_load(), ranks, slots)
    assert run_with(llm, {7: lambda: llm.engine.rebalance(better)}) == alone()
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
