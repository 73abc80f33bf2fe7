"""Expert parallelism: tokens go to the ranks that hold their experts, and results come back.

A rank computes attention for its own requests and holds Q / P expert slots of every layer. In each
MoE layer it goes through three phases; between them the wire carries rows from rank to rank.

    pack      sort the T * K (token, expert) pairs by the slot that serves them, count them
              -> counts, then a row of D values per pair (dispatch)
    compute   run the rows that came through this rank's experts
              -> the same number of rows back (combine)
    unpack    put the results in token order and sum each token's K results with its weights

`ExpertParallel` is one real rank. `VirtualExperts` runs the same phases for P virtual ranks in one
process, so that 64 of them can be studied on a laptop. The form that sends one row per pair is that
of DeepEP's low-latency mode (github.com/deepseek-ai/DeepEP).
"""

import time

import numpy as np
import torch

from minimoe.errors import EngineError, MinimoeError
from minimoe.ops.grouped_experts import experts_serve, lay_out
from minimoe.parallel.placement import CYCLE, Placement
from minimoe.parallel.wire import VirtualWire, Wire

DONE = -1  # in place of a layer's number: this rank has no more work in this step


def check_placement(placement: Placement, layers: int, experts: int, ranks: int) -> None:
    """Raise MinimoeError unless every expert of every layer has a slot on one of the ranks."""
    slots = placement.slots
    if placement.ranks != ranks or slots.shape[0] != layers or slots.shape[1] % ranks:
        raise MinimoeError(
            f"a placement of {slots.shape[0]} layers and {slots.shape[1]} slots on "
            f"{placement.ranks} ranks does not fit {layers} layers on {ranks} ranks"
        )
    wanted = np.arange(experts)
    for layer, row in enumerate(slots):
        if not np.array_equal(np.unique(row), wanted):
            missing = sorted(set(wanted.tolist()) ^ set(row.tolist()))[:4]
            raise MinimoeError(
                f"the placement of layer {layer} must hold each of the experts 0..{experts - 1}: "
                f"wrong or missing {missing}"
            )


class SlotTable:
    """One layer's placement as dispatch uses it: which slot serves the next token of an expert.

    Copies of an expert take turns, whoever asks: token number t of expert e goes to
    `cycle[e, t % CYCLE]`, and t runs on from step to step. Each rank starts at its own number, so
    that ranks with few tokens do not all begin with the first copy.
    """

    def __init__(self, placement: Placement, layer: int, rank: int = 0, device="cpu"):
        self.slots = placement.slots[layer]  # [Q]
        self.ranks, self.per_rank = placement.ranks, placement.per_rank
        self.experts, self.rank = placement.experts, rank
        self.cycle = torch.from_numpy(placement.cycle[layer]).to(device)  # [E, CYCLE]
        self.copied = len(self.slots) > self.experts
        self.seen = torch.full((self.experts,), rank, dtype=torch.long, device=device)

    def choose(self, ids: torch.Tensor) -> torch.Tensor:
        """Experts `ids [T, K]` to the slots that serve them, `[T, K]`."""
        if not self.copied:
            return self.cycle[:, 0][ids]
        flat = ids.flatten()
        order = torch.argsort(flat, stable=True)
        counts = count(flat, self.experts)
        nth = torch.empty_like(flat)
        nth[order] = torch.arange(len(flat), device=flat.device)
        nth -= (counts.cumsum(0) - counts)[flat]  # 0, 1, ... within its expert
        turn = (self.seen[flat] + nth) % CYCLE
        self.seen += counts
        return self.cycle[flat, turn].view_as(ids)


def count(values: torch.Tensor, size: int) -> torch.Tensor:
    """How often each of 0..size-1 occurs in `values`, `[size]`, without waiting for a GPU."""
    zeros = torch.zeros(size, dtype=torch.long, device=values.device)
    return zeros.scatter_add_(0, values.flatten(), torch.ones_like(values.flatten()))


def pack(x: torch.Tensor, slots: torch.Tensor, table: SlotTable):
    """Rows of `x [T, D]` in the order of `slots [T, K]`, which sorts them by rank too.

    Gives rows `[T * K, D]`, the pair that each row is of `[T * K]`, and counts `[P, Q / P]`.
    """
    order = torch.argsort(slots.flatten(), stable=True)
    counts = count(slots, table.ranks * table.per_rank).view(table.ranks, table.per_rank)
    return x.index_select(0, order // slots.shape[1]), order, counts


def unpack(rows: torch.Tensor, order: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Results `[T * K, D]` in packed order to the weighted sum per token, `[T, D]`."""
    by_pair = torch.empty_like(rows).index_copy_(0, order, rows)
    by_token = by_pair.view(*weights.shape, rows.shape[1])  # [T, K, D]
    return torch.bmm(weights[:, None].to(rows.dtype), by_token)[:, 0]


class Shard:
    """The weights of one rank's slots in one layer: `gate_up [Q/P, 2F, D]`, `down [Q/P, D, F]`.

    With `slowdown` above 1 the rank really is that many times as slow: it sleeps after computing.
    """

    def __init__(self, gate_up: torch.Tensor, down: torch.Tensor):
        self.gate_up, self.down = lay_out(gate_up, down)
        self.local = torch.arange(len(gate_up), device=gate_up.device)
        self.slowdown = 1.0

    def compute(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """`rows [M, D]` from all ranks, sorted by sender and then by slot; `counts [P, Q/P]`."""
        if len(rows) == 0:
            return rows
        start = time.perf_counter()
        local = self.local.repeat(len(counts))
        ids = local.repeat_interleave(counts.flatten(), output_size=len(rows))  # [M]
        ones = rows.new_ones(len(rows), 1)
        out = experts_serve(rows, ids[:, None], ones, self.gate_up, self.down)
        if self.slowdown > 1:
            if rows.is_cuda:
                torch.cuda.synchronize()
            time.sleep((self.slowdown - 1) * (time.perf_counter() - start))
        return out


class ExpertParallel:
    """One layer of one rank: stands where `Experts` stood, and is called like it.

    Every rank must call its layers in the same order and equally often; see `finish_step`.
    """

    def __init__(self, layer: int, table: SlotTable, shard: Shard, wire: Wire):
        self.layer, self.table, self.shard, self.wire = layer, table, shard, wire
        self.called = False  # since the last `finish_step`, with tokens of this rank
        self.load = torch.zeros_like(table.seen)  # [E] pairs of this rank's own tokens

    def __call__(self, x, ids, weights) -> torch.Tensor:
        """`x [T, D]`, `ids [T, K]`, `weights [T, K]` to `[T, D]`; T may be 0."""
        self.called = True
        if len(ids):
            self.load += count(ids, self.table.experts)
        rows, order, counts = pack(x, self.table.choose(ids), self.table)
        arrived, there = self.tell(counts, self.layer), counts.sum(1).tolist()
        pairs = zip(self.wire.pairs, there, strict=True)
        self.wire.pairs = [before + now for before, now in pairs]
        return unpack(self._there_and_back(rows, there, arrived), order, weights)

    def take_load(self) -> torch.Tensor:
        """`[E]`: (token, expert) pairs of this rank's own tokens since the last call."""
        load, self.load = self.load, torch.zeros_like(self.load)
        return load

    def tell(self, counts: torch.Tensor, layer: int) -> torch.Tensor | None:
        """Exchange counts `[P, Q/P]`, each with the number of the layer that its sender is in.

        Gives what arrived, or None when this rank and all others are done with the step.
        """
        header = counts.new_full((len(counts), 1), layer)
        arrived = self.wire.counts(torch.cat([header, counts], dim=1))
        layers = set(arrived[:, 0].tolist())
        if layers == {DONE}:
            return None
        if layers - {DONE} != {self.layer}:
            raise EngineError(
                f"ranks are out of step: rank {self.wire.rank} is in layer {self.layer}, others "
                f"in {sorted(layers - {self.layer})}: all must run the same layers"
            )
        return arrived[:, 1:]

    def _there_and_back(self, rows, there: list[int], arrived) -> torch.Tensor:
        """Dispatch, compute, combine: `[T * K, D]` to the same rows' results."""
        here = arrived.sum(1).tolist()
        rows = self.wire.all_to_all(rows, there, here, "dispatch")
        start = time.perf_counter()
        rows = self.shard.compute(rows, arrived)
        if self.wire.apart and rows.is_cuda:
            torch.cuda.synchronize()
        self.wire.times.experts += time.perf_counter() - start
        self.wire.times.rows += len(rows)
        return self.wire.all_to_all(rows, here, there, "combine")

    def take_part(self, done: bool) -> bool:
        """Serve the others in this layer without tokens of one's own.

        `done`: as the first of its step this call also asks whether anyone has work; False if not.
        """
        nothing = self.table.seen.new_zeros(self.table.ranks, self.table.per_rank)
        arrived = self.tell(nothing, DONE if done else self.layer)
        if arrived is None:
            return False
        weights = self.shard.gate_up
        rows = weights.new_empty(0, weights.shape[2])
        self._there_and_back(rows, [0] * self.table.ranks, arrived)
        return True


def finish_step(layers: list[ExpertParallel]) -> bool:
    """Call it when a rank has made its forward passes of a step: none, one or several.

    Others may still be at it and need this rank's experts, so it takes part in their passes with
    no tokens of its own, until every rank has come here. All ranks leave together, with True if
    any of them made a pass.
    """
    busy = layers[0].called
    while layers[0].take_part(done=True):
        busy = True
        for layer in layers[1:]:
            layer.take_part(done=False)
    layers[0].called = False
    return busy


class VirtualExperts:
    """One layer of P virtual ranks in this process, called like `Experts`.

    The rows of a call are dealt out to ranks as evenly as they go, in order: rank 0 has the first.
    """

    def __init__(self, layer: int, placement: Placement, gate_up, down, wire: VirtualWire):
        """`gate_up [E, 2F, D]` and `down [E, D, F]` of all experts; each rank gets its slots'."""
        self.wire = wire
        self.tables = [
            SlotTable(placement, layer, rank, gate_up.device) for rank in range(placement.ranks)
        ]
        self.shards = []
        for slots in np.split(placement.slots[layer], placement.ranks):
            own = torch.from_numpy(slots).to(gate_up.device)
            self.shards.append(Shard(gate_up[own], down[own]))

    def __call__(self, x, ids, weights) -> torch.Tensor:
        parts = [part.tensor_split(len(self.tables)) for part in (x, ids, weights)]
        return torch.cat(self.exchange(*parts))

    def exchange(self, x: list, ids: list, weights: list) -> list[torch.Tensor]:
        """One entry per rank: `x [T, D]`, `ids [T, K]`, `weights [T, K]` to `[T, D]`."""
        packed = [
            pack(rows, table.choose(chosen), table)
            for rows, chosen, table in zip(x, ids, self.tables, strict=True)
        ]
        rows, orders, counts = zip(*packed, strict=True)
        arrived = self.wire.counts(list(counts))
        there = [own.sum(1).tolist() for own in counts]
        here = [own.sum(1).tolist() for own in arrived]
        rows = self.wire.all_to_all(rows, there, "dispatch")
        rows = [
            shard.compute(own, sizes)
            for shard, own, sizes in zip(self.shards, rows, arrived, strict=True)
        ]
        rows = self.wire.all_to_all(rows, here, "combine")
        return [unpack(*one) for one in zip(rows, orders, weights, strict=True)]
