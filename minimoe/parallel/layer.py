"""One expert layer with random weights on real ranks: the smallest thing that shows who waits.

    with Ranks(2) as ranks:
        ranks.call(layer.build, in_order(1, 8, 2), D=512, F=512, K=2)
        ranks.call(layer.run, tokens=256)          # a report per rank

The functions run on the ranks; the first argument is the rank's context.
"""

import statistics
import time

import torch

from minimoe.parallel.dispatch import ExpertParallel, Shard, SlotTable, check_placement
from minimoe.parallel.placement import Placement
from minimoe.parallel.reshard import move_experts, rank_slots

FIELDS = ("seconds", "own", "experts", "exchange", "waiting")


def build(
    context, placement: Placement, D: int, F: int, K: int, seed: int = 0, dtype=torch.float32
) -> int:
    """Make this rank's experts; the same seed gives an expert the same weights on any rank.

    placement: of one layer, on as many ranks as there are. Gives the rank's bytes of weights.
    """
    check_placement(placement, 1, placement.experts, context.size)
    experts = rank_slots(placement, 0, context.rank)
    where = {"device": context.device, "dtype": dtype}
    gate_up = torch.stack([_weight(seed, 2 * e, 2 * F, D, **where) for e in experts])
    down = torch.stack([_weight(seed, 2 * e + 1, D, F, **where) for e in experts])
    context.state["layer"] = _layer(context, placement, gate_up, down)
    context.state["placement"], context.state["K"] = placement, K
    return gate_up.nbytes + down.nbytes


def _weight(seed: int, number: int, rows: int, columns: int, device, dtype) -> torch.Tensor:
    random = torch.Generator(device).manual_seed(seed * 100_003 + number)
    values = torch.randn(rows, columns, generator=random, device=device)
    return (values / columns**0.5).to(dtype)


def _layer(context, placement: Placement, gate_up, down) -> ExpertParallel:
    table = SlotTable(placement, 0, context.rank, context.device)
    return ExpertParallel(0, table, Shard(gate_up, down), context.wire)


def place(context, placement: Placement) -> int:
    """Move the weights to another placement. Gives the bytes that this rank received."""
    old, layer = context.state["placement"], context.state["layer"]
    check_placement(placement, 1, old.experts, context.size)
    before = context.wire.bytes["move"][1]
    parts = (layer.shard.gate_up, layer.shard.down)
    moved = [move_experts(part, 0, old, placement, context.wire) for part in parts]
    new = _layer(context, placement, *moved)
    new.shard.slowdown = layer.shard.slowdown
    context.state["layer"], context.state["placement"] = new, placement
    return context.wire.bytes["move"][1] - before


def slow(context, factor: float) -> None:
    """From now on this rank's experts take `factor` times as long."""
    context.state["layer"].shard.slowdown = factor


def inputs(context, tokens: int, seed: int = 0, skew: float = 0.0):
    """This rank's `x [T, D]`, `ids [T, K]` and `weights [T, K]`.

    skew: expert e is as popular as 1 / (1 + e) ** skew; 0 makes all alike.
    """
    layer, K = context.state["layer"], context.state["K"]
    random = torch.Generator().manual_seed(seed * 1009 + context.rank)
    weights = layer.shard.gate_up
    popular = (1.0 + torch.arange(layer.table.experts)).pow(-skew)
    ids = torch.multinomial(popular.expand(tokens, -1), K, generator=random)
    x = torch.randn(tokens, weights.shape[2], generator=random)
    shares = torch.rand(tokens, K, generator=random)
    device = weights.device
    return x.to(device, weights.dtype), ids.to(device), shares.to(device, weights.dtype)


@torch.inference_mode()
def run(context, tokens: int, repeats: int = 10, seed: int = 0, skew: float = 0.0) -> dict:
    """Run the layer `repeats` times on the same tokens, each time from a common start.

    Gives "seconds", the median of a step by the clock. Then, from as many steps again in which
    ranks meet before every message, the medians "own" (apart from waiting and exchange),
    "experts", "exchange" and "waiting". And of one step: "rows" that this rank's experts computed,
    "load" `[E]` of its own tokens, "bytes" (sent, received), "output" `[T, D]`.
    """
    wire, layer = context.wire, context.state["layer"]
    work = inputs(context, tokens, seed, skew)
    layer(*work)  # warm up, and connect
    plain = [_step(context, work) for _ in range(repeats)]
    layer.take_load()
    wire.reset()
    wire.apart = True
    try:
        found = [_step(context, work) for _ in range(repeats)]
    finally:
        wire.apart = False
    report = {name: _median(found, name) for name in FIELDS} | {
        "seconds": _median(plain, "seconds"),
        "rows": found[-1]["rows"],
        "load": layer.take_load().cpu() // repeats,
        "bytes": (wire.bytes.sent // repeats, wire.bytes.received // repeats),
    }
    return report | {"output": found[-1]["output"].cpu()}


def _step(context, work: tuple) -> dict:
    """One step from a common start."""
    wire = context.wire
    wire.times.reset()
    wire.barrier()
    start = time.perf_counter()
    output = context.state["layer"](*work)
    if output.is_cuda:
        torch.cuda.synchronize()
    wire.times.seconds = time.perf_counter() - start
    names = (*FIELDS, "rows")
    return {name: getattr(wire.times, name) for name in names} | {"output": output}


def _median(steps: list[dict], name: str) -> float:
    return statistics.median(step[name] for step in steps)
