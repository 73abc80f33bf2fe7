"""Expert weights on their way to a rank: from the checkpoint, or from the ranks that hold them."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from minimoe.checkpoint import weight_files
from minimoe.errors import CheckpointError
from minimoe.parallel.placement import Placement
from minimoe.parallel.wire import Wire

PARTS = ("gate_proj", "up_proj", "down_proj")


def rank_slots(placement: Placement, layer: int, rank: int) -> list[int]:
    """The experts in the slots of one rank."""
    first = rank * placement.per_rank
    return placement.slots[layer, first : first + placement.per_rank].tolist()


def read_experts(
    folder: str | Path, layer: int, experts: list[int], dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """`gate_up [n, 2F, D]` and `down [n, D, F]` of these experts of model layer `layer`.

    Reads those tensors alone. Raises CheckpointError when one is missing or damaged.
    """
    prefix = f"model.layers.{layer}.mlp.experts"
    names = [[f"{prefix}.{expert}.{part}.weight" for part in PARTS] for expert in experts]
    found = _read(Path(folder), {name for three in names for name in three})
    parts = [[found[name].to(device, dtype) for name in three] for three in names]
    gate_up = torch.stack([torch.cat([gate, up]) for gate, up, _ in parts])
    return gate_up, torch.stack([down for _, _, down in parts])


def _read(folder: Path, wanted: set[str]) -> dict[str, torch.Tensor]:
    found = {}
    for file in weight_files(folder):
        try:
            with safe_open(file, framework="pt") as tensors:
                names = wanted.intersection(tensors.keys())
                found |= {name: tensors.get_tensor(name) for name in names}
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{file}: {error}: copy the file again") from None
    missing = sorted(wanted - found.keys())
    if missing:
        raise CheckpointError(f"{folder}: tensor {missing[0]} is missing")
    return found


def move_experts(
    weights: torch.Tensor, layer: int, old: Placement, new: Placement, wire: Wire
) -> torch.Tensor:
    """Give every rank the weights that a new placement wants of it, `[Q/P, ...]` to `[Q'/P, ...]`.

    `weights` are this rank's slots under the old placement. What a rank holds already stays; the
    rest comes from a rank that has it, all of them in one all-to-all. Both placements are known to
    all ranks, so nobody has to ask.
    """
    sources = [_sources(layer, old, new, rank) for rank in range(wire.size)]
    mine = rank_slots(old, layer, wire.rank)
    out, send = [], []
    for asked in sources:
        wanted = [expert for source, expert in asked if source == wire.rank]
        send.append(len(wanted))
        out += [mine.index(expert) for expert in wanted]
    own = sources[wire.rank]
    receive = [sum(source == rank for source, _ in own) for rank in range(wire.size)]
    rows = weights.flatten(1)[out].contiguous()
    arrived = wire.all_to_all(rows, send, receive, "move")
    # What arrived is sorted by sender, each sender's part in the order of this rank's slots.
    order = sorted(range(len(own)), key=lambda slot: own[slot][0])
    place = torch.empty(len(own), dtype=torch.long, device=weights.device)
    place[torch.tensor(order, device=weights.device)] = torch.arange(len(own), device=place.device)
    return arrived[place].unflatten(1, weights.shape[1:])


def _sources(layer: int, old: Placement, new: Placement, rank: int) -> list[tuple[int, int]]:
    """(rank that gives it, expert) of each slot of `rank`: itself where it holds the expert, else
    holders in turn, so that no single one has to send everything."""
    holders: dict[int, list[int]] = {}
    for source in range(old.ranks):
        for expert in rank_slots(old, layer, source):
            holders.setdefault(expert, []).append(source)
    wanted = rank_slots(new, layer, rank)
    return [(rank if rank in holders[e] else holders[e][rank % len(holders[e])], e) for e in wanted]
