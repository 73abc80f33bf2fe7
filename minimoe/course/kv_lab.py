"""What 02_kv_cache measures on the engine: blocks taken, decode steps by context, and batching."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from minimoe.engine.llm import LLM
from minimoe.engine.params import SamplingParams
from minimoe.engine.sequence import Sequence

GREEDY = {"temperature": 0.0, "ignore_eos": True}


def make_prompt(length: int, salt: int = 0) -> list[int]:
    """Token ids of no meaning, the same at every call."""
    return [10 + (7 * place + 13 * salt) % 2000 for place in range(length)]


def blocks_by_length(llm: LLM, lengths: list[int]) -> dict[int, int]:
    """Prompts of these lengths in one step: how many blocks of the pool each then holds."""
    engine, params = llm.engine, SamplingParams(max_tokens=2, **GREEDY)
    made = [engine.add_request(f"length-{n}", make_prompt(n, n), params) for n in lengths]
    engine.step()
    held = {n: len(request.seq.blocks) for n, request in zip(lengths, made, strict=True)}
    for n in lengths:
        engine.abort_request(f"length-{n}")
    return held


def running_at_once(llm: LLM, lengths: list[int]) -> int:
    """Requests with these prompts, offered all at once: how many the pool lets run after a step."""
    params = SamplingParams(max_tokens=2, **GREEDY)
    for i, length in enumerate(lengths):
        llm.engine.add_request(f"offer-{i}", make_prompt(length, i), params)
    llm.engine.step()
    running = len(llm.engine.scheduler.running)
    for i in range(len(lengths)):
        llm.engine.abort_request(f"offer-{i}")
    return running


def read_bandwidth(mebibytes: int = 128, rounds: int = 5) -> float:
    """Bytes a second at which this machine sums a buffer that no cache holds; the best round."""
    buffer = torch.ones(mebibytes * 2**18)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        buffer.sum()
        times.append(time.perf_counter() - start)
    return buffer.nbytes / min(times)


def decode_seconds(llm: LLM, requests: int, contexts: list[int], rounds: int = 15) -> list[float]:
    """Time of one decode step in which each request sees so many cached positions, by context.

    The best of some rounds, since other programs only ever add to it; each round goes through all
    contexts, so that a busy moment does not fall on one of them. The cached rows are zeros: what
    they hold does not change how long reading them takes.
    """
    steps = [_decoding(llm, requests, context) for context in contexts]
    best = [float("inf")] * len(steps)
    with torch.inference_mode():
        for _ in range(rounds + 1):
            for i, seqs in enumerate(steps):
                start = time.perf_counter()
                llm.engine.runner.run([(seq, 1) for seq in seqs])
                best[i] = min(best[i], time.perf_counter() - start)
    for seqs in steps:
        for seq in seqs:
            llm.engine.pool.release(seq.blocks)
    return best


def _decoding(llm: LLM, requests: int, context: int) -> list[Sequence]:
    """Requests with all but their last token in the cache."""
    engine, params = llm.engine, SamplingParams(max_tokens=1, **GREEDY)
    seqs = []
    for i in range(requests):
        count = -(-context // engine.scheduler.block_size)
        blocks = [engine.pool.allocate() for _ in range(count)]
        engine.runner.clear(blocks)
        ids = make_prompt(context, i)
        seqs.append(
            Sequence(str(i), ids, params, 0, context + 1, blocks=blocks, num_computed=context - 1)
        )
    return seqs


@dataclass(frozen=True)
class Run:
    """A set of requests run to its end: forward passes, tokens made, seconds."""

    steps: int
    tokens: int
    seconds: float

    def share(self, slots: int) -> float:
        """Of the places in all steps, the part that made a token."""
        return self.tokens / (self.steps * slots)


def run_batches(llm: LLM, lengths: list[int], batch: int) -> Run:
    """Requests that make `lengths` tokens, `batch` of them added whenever the engine is empty.

    With `batch` at the number of slots this is static batching. With all requests in one batch the
    engine fills each slot as it gets free: continuous batching.
    """
    engine, steps, start = llm.engine, 0, time.perf_counter()
    for first in range(0, len(lengths), batch):
        for i, length in enumerate(lengths[first : first + batch], first):
            params = SamplingParams(max_tokens=length, **GREEDY)
            engine.add_request(f"batch-{i}", make_prompt(8, i), params)
        while engine.has_unfinished_requests():
            engine.step()
            steps += 1
    return Run(steps, sum(lengths), time.perf_counter() - start)


@dataclass(frozen=True)
class Ends:
    """When requests ended, in steps since they were all added."""

    last: int
    mean: float


def ends_in_turn(llm: LLM, lengths: list[int], turn: Callable | None = None) -> Ends:
    """Requests that make `lengths` tokens, all added at once, run to their end.

    turn: `turn(new_tokens, arrival)` says who starts next, the lowest first; it becomes the
    scheduler's `order` as long as they run. None: first come, first served.
    """
    scheduler, before = llm.engine.scheduler, llm.engine.scheduler.order
    first = llm.engine.add_request("first", make_prompt(8), SamplingParams(**GREEDY)).seq.arrival
    llm.engine.abort_request("first")  # it only told where the count of arrivals stands
    if turn:
        scheduler.order = lambda seq: turn(seq.params.max_tokens, seq.arrival - first - 1)
    try:
        return _run_to_ends(llm, lengths)
    finally:
        scheduler.order = before


def _run_to_ends(llm: LLM, lengths: list[int]) -> Ends:
    engine, ends, steps = llm.engine, [], 0
    for i, length in enumerate(lengths):
        params = SamplingParams(max_tokens=length, **GREEDY)
        engine.add_request(f"turn-{i}", make_prompt(8, i), params)
    while engine.has_unfinished_requests():
        steps += 1
        ends += [steps] * sum(out.finished for out in engine.step())
    return Ends(steps, sum(ends) / len(ends))
