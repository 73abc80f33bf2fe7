"""A reader's own expert layer in the engine: what an exercise of 01 plugs in, counted and timed.

The engine asks `ServingMoE.run_experts` for the answer of each expert layer. Expert parallelism
stands there when there are several ranks; here it is a function of the reader's.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from minimoe import LLM, SamplingParams
from minimoe.bench.prompts import mixed_prompts
from minimoe.model.serving import ServingMoE
from minimoe.ops.grouped_experts import silu_mul

REQUESTS, PROMPT, NEW = 16, 16, 8


def by_token(x, ids, weights, fetch) -> torch.Tensor:
    """One token and one expert at a time, `[T, D]`: fetches an expert for each that chose it."""
    out = torch.zeros_like(x)
    for token, chosen in enumerate(ids.tolist()):
        for place, expert in enumerate(chosen):
            out[token] += weights[token, place] * fetch(expert)(x[token : token + 1])[0]
    return out


def fetcher(moe: ServingMoE, fetched: list[int]) -> Callable:
    """`fetch(e)` of one layer: notes e, and gives expert e as a function of rows `[n, D]`."""
    gate_up, down = moe.experts.gate_up, moe.experts.down

    def fetch(expert: int) -> Callable:
        fetched.append(expert)
        return lambda rows: F.linear(silu_mul(F.linear(rows, gate_up[expert])), down[expert])

    return fetch


@contextmanager
def plugged(llm: LLM, run_experts: Callable | None) -> Iterator[list[int]]:
    """In all expert layers `run_experts(x, ids, weights, fetch)` answers; gives what was fetched.

    None leaves the engine's own, whose fetches nobody counts.
    """
    fetched: list[int] = []
    moes = [layer.ffn for layer in llm.model.layers if isinstance(layer.ffn, ServingMoE)]
    before = [moe.run_experts for moe in moes]
    for moe in moes if run_experts else []:
        fetch = fetcher(moe, fetched)
        moe.run_experts = lambda *step, fetch=fetch: run_experts(*step, fetch)
    try:
        yield fetched
    finally:
        for moe, own in zip(moes, before, strict=True):
            moe.run_experts = own


@dataclass(frozen=True)
class Trial:
    """A prefill step and the decode steps after it; fetches are those of one expert layer."""

    name: str
    tokens: list[list[int]]
    fetches: tuple[float, float]  # of the prefill step, of a decode step
    seconds: tuple[float, float]  # the same two


def trial(llm: LLM, name: str, run_experts: Callable | None) -> Trial:
    """16 prompts of 16 tokens in one step, then decode for all of them together; greedy. Run twice,
    and timed by the quicker: other programs only ever add time."""
    one, other = _run(llm, name, run_experts), _run(llm, name, run_experts)
    return replace(one, seconds=tuple(map(min, one.seconds, other.seconds)))


def _run(llm: LLM, name: str, run_experts: Callable | None) -> Trial:
    params = SamplingParams(max_tokens=NEW, temperature=0.0, ignore_eos=True)
    prompts, engine = mixed_prompts("tiny-moe", REQUESTS, PROMPT), llm.engine
    seqs = [engine.add_request(f"own-{i}", ids, params).seq for i, ids in enumerate(prompts)]
    with plugged(llm, run_experts) as fetched:
        first = _seconds(engine.step)
        in_prefill = len(fetched)
        rest = [_seconds(engine.step) for _ in range(NEW - 1)]
    layers = llm.config.num_hidden_layers - llm.config.first_k_dense_replace
    fetches = in_prefill / layers, (len(fetched) - in_prefill) / layers / (NEW - 1)
    return Trial(name, [seq.output_ids for seq in seqs], fetches, (first, min(rest)))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def fetches_table(trials: list[Trial]) -> str:
    """Experts fetched in one layer, in a prefill and in a decode step."""
    lines = [f"{'experts fetched by':<20}{'prefill, 256 tokens':>21}{'decode, 16 tokens':>19}"]
    for one in trials:
        lines.append(f"{one.name:<20}{one.fetches[0]:>21.0f}{one.fetches[1]:>19.0f}")
    return "\n".join(lines)


def times_table(trials: list[Trial]) -> str:
    """Milliseconds of the same two steps."""
    lines = [f"{'ms a step':<20}{'prefill, 256 tokens':>21}{'decode, 16 tokens':>19}"]
    for one in trials:
        first, rest = (1e3 * seconds for seconds in one.seconds)
        lines.append(f"{one.name:<20}{first:>21.1f}{rest:>19.1f}")
    return "\n".join(lines)
