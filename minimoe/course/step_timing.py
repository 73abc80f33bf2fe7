"""Single engine steps timed beside what they must do: work, calls of operations, seconds."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from torch.utils._python_dispatch import TorchDispatchMode

from minimoe import LLM, SamplingParams
from minimoe.bench.prompts import mixed_prompts
from minimoe.perf.hardware import Hardware
from minimoe.perf.roofline import Work, step_work, total

PROMPT = 64  # tokens in the cache of each request before decode is timed


@dataclass(frozen=True)
class Step:
    """One kind of step: its tokens, best seconds, work, and calls of torch operations."""

    name: str
    tokens: int
    seconds: float
    work: Work
    calls: int

    def parts(self, machine: Hardware) -> dict[str, float]:
        """Predicted seconds: calls x smallest call, bytes / bandwidth, FLOP / rate. float32.

        Bandwidth is that of a buffer as large as what the step reads: a small model stays in cache.
        """
        return {
            "overhead": self.calls * machine.overhead,
            "memory": self.work.bytes / read_at(machine, self.work.bytes),
            "arithmetic": self.work.flops / machine.matmul["float32"],
        }


class _Calls(TorchDispatchMode):
    """Counts the operations that torch dispatches while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def count_calls(run: Callable[[], object]) -> int:
    """How many torch operations `run` dispatches."""
    with _Calls() as calls:
        run()
    return calls.count


def read_at(machine: Hardware, size: float) -> float:
    """Bytes/s of reading a buffer of `size` bytes: the sweep's first size that holds it."""
    return next((step.read for step in machine.sweep if step.bytes >= size), machine.read)


def decode_step(llm: LLM, requests: int, steps: int = 12) -> Step:
    """A step that gives each of `requests` its next token; the best of `steps`."""
    params = SamplingParams(max_tokens=steps + 24, temperature=0.0, ignore_eos=True)
    prompts = mixed_prompts("tiny-moe", requests, PROMPT)
    _add(llm, prompts, params)
    for _ in range(-(-requests * PROMPT // 512) + 1):  # prefill, in steps of 512 tokens
        llm.engine.step()
    seconds = min(_seconds(llm.engine.step) for _ in range(steps))
    calls = count_calls(llm.engine.step)
    _finish(llm)
    work = total(step_work(llm.config, requests, requests * (PROMPT + steps)))
    return Step(f"decode, {requests}", requests, seconds, work, calls)


def prefill_step(llm: LLM, tokens: int, steps: int = 5) -> Step:
    """A step that computes a prompt of `tokens`, at most 512; the best of `steps`."""
    params = SamplingParams(max_tokens=1, temperature=0.0)
    prompt, times = mixed_prompts("tiny-moe", 1, tokens), []
    for _ in range(steps):
        _add(llm, prompt, params)
        times.append(_seconds(llm.engine.step))
    _add(llm, prompt, params)
    calls = count_calls(llm.engine.step)
    _finish(llm)
    work = total(step_work(llm.config, tokens, 0, requests=1)) + _causal(llm.config, tokens)
    return Step(f"prefill, {tokens}", tokens, min(times), work, calls)


def _causal(c, tokens: int) -> Work:
    """Attention of a prompt over itself, heads in full: each token sees those before it."""
    pairs = tokens * (tokens + 1) / 2
    per_pair = 2 * c.num_attention_heads * (c.qk_head_dim + c.v_head_dim)
    return Work(per_pair * pairs, tokens * c.kv_width * 4).times(c.num_hidden_layers)


def _add(llm: LLM, prompts, params) -> None:
    for i, prompt in enumerate(prompts):
        llm.engine.add_request(f"step-{i}", prompt, params)


def _finish(llm: LLM) -> None:
    while llm.engine.has_unfinished_requests():
        llm.engine.step()


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
