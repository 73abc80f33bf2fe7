"""One rank of an expert-parallel engine: a whole engine for its own requests, and a share of the
experts of all.

The functions at the end run on ranks, called by `expert_parallel.py` through `parallel/rank.py`, or
by `run_together` under torchrun. Attention, KV cache, scheduler and drafts of a rank know nothing
of the others; only `Experts` is replaced.
"""

import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from minimoe.checkpoint import checkpoint_folder
from minimoe.engine.outputs import RequestOutput
from minimoe.engine.params import SamplingParams
from minimoe.engine.sequence import Metrics
from minimoe.errors import MinimoeError
from minimoe.model.serving import ServingMoE
from minimoe.parallel.dispatch import (
    ExpertParallel,
    Shard,
    SlotTable,
    check_placement,
    finish_step,
)
from minimoe.parallel.placement import Placement, Window, in_order, slots_for
from minimoe.parallel.reshard import move_experts, rank_slots, read_experts


@dataclass
class Job:
    """A request as a rank gets it: new, or to be gone on with after `tokens` were delivered."""

    request_id: str
    prompt_ids: list[int]
    params: SamplingParams  # with a seed
    tokens: list[int] = field(default_factory=list)
    logprobs: list[dict[int, float]] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)


@dataclass
class Update:
    """What a step gave one request."""

    request_id: str
    tokens: list[int]
    logprobs: list[dict[int, float]]
    finish_reason: str | None
    num_cached: int
    metrics: Metrics


class RankEngine:
    """`LLM` on one rank, its experts spread over the group."""

    def __init__(self, context, options: dict, spare_slots: int = 0, window: int = 1000):
        from minimoe.engine.llm import LLM

        self.context = context
        self.folder = checkpoint_folder(options["model"])
        self.llm = LLM(**{**options, "device": context.device})
        self.engine = self.llm.engine
        self.engine.runner.graphs = None  # their kernels and sizes would be fixed; these are not
        config = self.llm.config
        self.moes = [
            (index, layer.ffn)
            for index, layer in enumerate(self.llm.model.layers)
            if isinstance(layer.ffn, ServingMoE)
        ]
        if not self.moes:
            raise MinimoeError(f"{self.folder} has no expert layers: use expert_parallel_size=1")
        self.window = Window(len(self.moes), config.n_routed_experts, window)
        self.agree()
        slots = slots_for(config.n_routed_experts, context.size, spare_slots)
        self.placement = in_order(len(self.moes), config.n_routed_experts, context.size, slots)
        self._told: dict[str, int] = {}  # tokens of each request that the parent knows
        self._install([self._slices(index, moe) for index, (_, moe) in enumerate(self.moes)])

    def agree(self) -> None:
        """Raise MinimoeError unless all ranks have the same weights, by their sums."""
        parts = [self.llm.model.embed, self.llm.model.head_t]
        parts += [moe.router for _, moe in self.moes]
        parts += [weight for _, moe in self.moes for weight in moe.experts.parameters()]
        mine = [float(part.sum(dtype=torch.float64)) for part in parts]
        for rank, theirs in enumerate(self.context.wire.gather(mine)):
            same = len(theirs) == len(mine) and np.allclose(theirs, mine, rtol=1e-9)
            if not same:
                raise MinimoeError(
                    f"rank {rank} has other weights than rank {self.context.rank} "
                    f"({self.folder.name}): give every rank the same checkpoint and dtype"
                )

    def _slices(self, index: int, moe: ServingMoE) -> tuple[torch.Tensor, torch.Tensor]:
        """This rank's experts out of the whole layer, which was loaded to begin with."""
        own = rank_slots(self.placement, index, self.context.rank)
        return moe.experts.gate_up.data[own], moe.experts.down.data[own]

    def _install(self, weights: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Put `ExpertParallel` in the place of `Experts` in every layer."""
        slowdown = self.layers[0].shard.slowdown if hasattr(self, "layers") else 1.0
        self.layers: list[ExpertParallel] = []
        context = self.context
        for index, ((_, moe), pair) in enumerate(zip(self.moes, weights, strict=True)):
            table = SlotTable(self.placement, index, context.rank, self.llm.model.device)
            self.layers.append(ExpertParallel(index, table, Shard(*pair), context.wire))
            moe.experts = moe.run_experts = self.layers[-1]
            self.llm.model.textbook.layers[self.moes[index][0]].ffn.experts = None
        self.slow(slowdown)

    def slow(self, factor: float) -> None:
        """This rank's experts take `factor` times as long."""
        for layer in self.layers:
            layer.shard.slowdown = factor

    def rebalance(self, placement: Placement) -> None:
        """Another placement from the next step on; missing weights come from other ranks."""
        self._check(placement)
        weights = [
            tuple(
                move_experts(part, index, self.placement, placement, self.context.wire)
                for part in (layer.shard.gate_up, layer.shard.down)
            )
            for index, layer in enumerate(self.layers)
        ]
        self.placement = placement
        self._install(weights)

    def reshard(self, placement: Placement) -> None:
        """After ranks were lost: drop all requests, read this rank's experts from disk."""
        self._check(placement)
        for request_id in list(self._told):
            self.engine.abort_request(request_id)
        self._told.clear()
        self.placement = placement
        model = self.llm.model
        self._install(
            [
                read_experts(
                    self.folder,
                    layer,
                    rank_slots(placement, index, self.context.rank),
                    model.dtype,
                    model.device,
                )
                for index, (layer, _) in enumerate(self.moes)
            ]
        )

    def _check(self, placement: Placement) -> None:
        experts = self.llm.config.n_routed_experts
        check_placement(placement, len(self.moes), experts, self.context.size)

    def add(self, job: Job) -> None:
        """Queue a request; what was delivered before is part of what it starts from."""
        request = self.engine.add_request(job.request_id, job.prompt_ids, job.params)
        request.seq.tokens += job.tokens
        request.seq.logprobs += job.logprobs
        request.seq.metrics = job.metrics
        for token in job.tokens:
            request.text.push(token)
        self._told[job.request_id] = len(request.seq.tokens)

    def abort(self, request_id: str) -> None:
        """End a request; one that this rank does not have is no error."""
        self.engine.abort_request(request_id)
        self._told.pop(request_id, None)

    def step(self) -> list[Update]:
        """One step together with all ranks; gives what this rank's requests got."""
        return [self._update(output) for output in self.step_engine()[1]]

    def step_engine(self) -> tuple[bool, list[RequestOutput]]:
        """One step together with all ranks, empty if this one has no work.

        Gives whether any rank had work, and the engine's outputs.
        """
        start = time.perf_counter()
        outputs = self.engine.step()
        busy = finish_step(self.layers)
        times = self.context.wire.times
        times.steps += 1
        times.seconds += time.perf_counter() - start
        self.window.add(torch.stack([layer.take_load() for layer in self.layers]).cpu().numpy())
        return busy, outputs

    def _update(self, output) -> Update:
        done = output.outputs[0]
        told = self._told[output.request_id] - len(output.prompt_token_ids)
        if done.finish_reason:
            del self._told[output.request_id]
        else:
            self._told[output.request_id] += len(done.token_ids) - told
        return Update(
            output.request_id,
            list(done.token_ids[told:]),
            (done.logprobs or [])[told:],
            done.finish_reason,
            output.num_cached_tokens,
            replace(output.metrics),
        )

    def take_times(self, reset: bool) -> dict:
        """What this rank spent its steps on, since the last reset."""
        wire = self.context.wire
        found = {**vars(wire.times), "own": wire.times.own}
        found["bytes"] = {kind: tuple(both) for kind, both in wire.bytes.items()}
        found |= {"pairs": wire.pairs, "itemsize": self.llm.model.dtype.itemsize}
        if reset:
            wire.reset()
        return found


# What the parent calls on every rank; the first argument is the rank's context.


def start(context, options: dict, spare_slots: int, window: int) -> dict:
    """Load the model; gives what the parent must know of it."""
    rank = context.state["engine"] = RankEngine(context, options, spare_slots, window)
    return {"num_blocks": rank.engine.pool.num_blocks, "placement": rank.placement}


def step(context, jobs: list[Job], aborted: list[str]) -> list[Update]:
    """Drop and take requests, then one step together with the other ranks."""
    rank = context.state["engine"]
    for request_id in aborted:
        rank.abort(request_id)
    for job in jobs:
        rank.add(job)
    return rank.step()


def rebalance(context, placement: Placement) -> None:
    """See `RankEngine.rebalance`."""
    context.state["engine"].rebalance(placement)


def resume(context, placement: Placement, *args) -> None:
    """After a re-form: keep the model and reshard it; a new process starts from the beginning."""
    if "engine" in context.state:
        context.state["engine"].reshard(placement)
    else:
        start(context, *args)


def expert_load(context, reset: bool) -> np.ndarray:
    """`[L, E]`: choices of this rank's own tokens over the window."""
    window = context.state["engine"].window
    load = window.load()
    if reset:
        window.kept[:] = 0
    return load


def take_times(context, reset: bool) -> dict:
    """See `RankEngine.take_times`."""
    return context.state["engine"].take_times(reset)


def slow(context, rank: int, factor: float) -> None:
    """Make the experts of one rank take `factor` times as long."""
    if context.rank == rank:
        context.state["engine"].slow(factor)


def time_apart(context, on: bool) -> None:
    """Let ranks meet before each message, so that waiting is told from exchange."""
    context.wire.apart = on


def close(context) -> None:
    """Write what is still to be stored."""
    context.state.pop("engine").llm.close()
