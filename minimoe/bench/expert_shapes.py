"""Expert layers worth timing, and the routed rows that one rank of P receives."""

from dataclasses import dataclass, replace

import torch

from minimoe.errors import MinimoeError
from minimoe.perf.hardware import free_memory, last_level_cache


@dataclass(frozen=True)
class ExpertShape:
    """One rank's part of an expert layer. Letters as in the dimension key."""

    name: str
    D: int
    F: int
    E: int  # experts on this rank
    K: int
    P: int = 1  # ranks: T tokens *per rank* choose among E * P experts
    note: str = ""

    def weight_bytes(self, itemsize: int) -> int:
        """Bytes of all E experts: three matrices of D x F each."""
        return self.E * 3 * self.D * self.F * itemsize


# V4.1-Flash has 384 experts; its reported deployment adds spare copies (52 and 7 a GPU).
SHAPES = {
    "tiny": ExpertShape("tiny", D=192, F=32, E=64, K=4),
    "cpu": ExpertShape("cpu", D=2048, F=1408, E=64, K=6),
    "ep8": ExpertShape("ep8", D=5120, F=2304, E=48, K=6, P=8),
    "ep8-spares": ExpertShape("ep8-spares", D=5120, F=2304, E=52, K=6, P=8),
    "ep64": ExpertShape("ep64", D=5120, F=2304, E=6, K=6, P=64),
    "ep64-spares": ExpertShape("ep64-spares", D=5120, F=2304, E=7, K=6, P=64),
}
CACHES = 8  # the large CPU layer: weights this many times the last-level cache
TURNS = 6  # of runs over different experts
MEMORY_SHARE = 0.25  # of what is free


def sized(shape: ExpertShape, itemsize: int, device: str = "cpu") -> ExpertShape:
    """The "cpu" shape grown to eight times the last-level cache, or to what memory allows."""
    if shape.name != "cpu":
        needed = shape.weight_bytes(itemsize)
        if needed > 0.8 * free_memory(device):
            raise MinimoeError(
                f"shape {shape.name!r} needs {needed / 2**30:.1f} GiB of weights, free are "
                f"{free_memory(device) / 2**30:.1f} GiB: choose another with --shapes"
            )
        return shape
    wanted = CACHES * (last_level_cache() or 32 << 20)
    fits = int(free_memory(device) * MEMORY_SHARE)
    while shape.F > 64 and 8 * 3 * shape.D * shape.F * itemsize > fits:
        shape = replace(shape, F=shape.F // 2)
    expert = 3 * shape.D * shape.F * itemsize
    experts = max(8, min(-(-wanted // expert), fits // expert))
    times = experts * expert / wanted * CACHES
    note = f"{experts} experts of hidden {shape.F}, {times:.1f} times the last-level cache"
    if wanted > fits:
        note += ", as much as a quarter of the free memory holds"
    return replace(shape, E=experts, note=note)


def routed(shape: ExpertShape, T: int, device: str, seed: int = 0) -> torch.Tensor:
    """ids `[T', K]` of the tokens that reach this rank when T tokens on each of P ranks choose K
    of E * P experts at random; -1 where a choice is another rank's."""
    generator = torch.Generator(device).manual_seed(seed)
    scores = torch.rand(shape.P * T, shape.P * shape.E, generator=generator, device=device)
    ids = scores.topk(shape.K, dim=1).indices
    ids = torch.where(ids < shape.E, ids, -1)
    return ids[(ids >= 0).any(1)].contiguous()


def at_most(shape: ExpertShape, per_expert: int, device: str) -> torch.Tensor:
    """ids `[T', K]` that give every expert exactly `per_expert` rows."""
    order = torch.randperm(shape.E, device=device, generator=torch.Generator(device).manual_seed(0))
    copies = order.repeat(per_expert)
    return copies[: len(copies) // shape.K * shape.K].view(-1, shape.K).contiguous()


def random_weights(shape: ExpertShape, dtype, device: str, seed: int = 0):
    """`gate_up [E, 2F, D]` and `down [E, D, F]`, scaled so that values stay near one."""
    return (
        _random((shape.E, 2 * shape.F, shape.D), shape.D, dtype, device, seed),
        _random((shape.E, shape.D, shape.F), shape.F, dtype, device, seed + 1),
    )


def weight_sets(shape: ExpertShape, dtype, device: str) -> list:
    """Pairs (gate_up, down) to take turns with, so that a cache still holds no weight that is met.

    On a CPU one token's experts would fit in a large cache: the pairs are windows over a list of up
    to half as many experts more, each K further on."""
    if device.startswith("cuda"):
        sets = 3 if shape.weight_bytes(dtype.itemsize) < 1 << 30 else 1
        return [random_weights(shape, dtype, device, seed=2 * i) for i in range(sets)]
    sets = 1 + min(TURNS - 1, shape.E // 2 // shape.K) if shape.name == "cpu" else 1
    more = replace(shape, E=shape.E + (sets - 1) * shape.K)
    gate_up, down = random_weights(more, dtype, device)
    starts = range(0, sets * shape.K, shape.K)
    return [(gate_up[at : at + shape.E], down[at : at + shape.E]) for at in starts]


def _random(size, fan_in: int, dtype, device: str, seed: int) -> torch.Tensor:
    out = torch.empty(size, dtype=dtype, device=device)
    if device.startswith("cuda"):
        generator = torch.Generator(device).manual_seed(seed)
        return out.normal_(generator=generator).mul_(fan_in**-0.5)
    # A CPU draws slowly: repeat one random block, of odd length so that no two rows are equal.
    block = torch.randn((1 << 20) + 7, generator=torch.Generator().manual_seed(seed))
    block = (block * fan_in**-0.5).to(dtype)
    for part in out.view(-1).split(len(block)):
        part.copy_(block[: len(part)])
    return out
