"""Which expert sits in which slot of which rank, and how its tokens are split among its copies.

    placement = balance(load, ranks=8, slots=72)       # load [L, E]: tokens per layer and expert
    peak_to_mean(placement, load)                      # [L], 1.0 is perfect

Every rank has Q / P slots in every layer; spares hold second copies of busy experts. `eplb.py` has
the algorithm.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from minimoe.errors import MinimoeError
from minimoe.parallel import eplb

CYCLE = 240  # tokens after which a split among copies repeats; up to 6, 8, 10, 12 divide it
STRIDE = 149  # coprime to 240 and near its golden section: a few tokens in a row are spread out


class PlacementError(MinimoeError):
    """Slots, ranks, loads or speeds that cannot be placed."""


@dataclass(frozen=True, eq=False)
class Placement:
    """Slot q is on rank q // (Q / P). `share` is the part of its expert's tokens that it gets."""

    slots: np.ndarray  # [L, Q] the expert in each slot, each expert at least once
    share: np.ndarray  # [L, Q] the copies of an expert sum to 1
    ranks: int
    experts: int

    @property
    def layers(self) -> int:
        """How many layers are placed."""
        return self.slots.shape[0]

    @property
    def per_rank(self) -> int:
        """Physical slots on each rank, Q / P."""
        return self.slots.shape[1] // self.ranks

    def copies(self) -> np.ndarray:
        """`[L, E]`: how many slots hold each expert."""
        return _count(self.slots, self.experts)

    @cached_property
    def cycle(self) -> np.ndarray:
        """`[L, E, 240]`: token number t goes for expert e to slot `cycle[layer, e, t % 240]`.

        Copies take turns in proportion to their shares: one look-up for even and uneven splits.
        """
        order = np.argsort(self.slots, axis=1, kind="stable")  # copies of an expert side by side
        until = np.cumsum(np.take_along_axis(self.share, order, 1), axis=1)  # [L, Q]
        copies = self.copies()
        first = np.cumsum(copies, axis=1) - copies  # [L, E] where they begin in `order`
        turn = (np.arange(CYCLE) * STRIDE % CYCLE + 0.5) / CYCLE  # evenly spaced
        position = np.repeat(first[:, :, None], CYCLE, axis=2)  # [L, E, 240]
        for copy in range(int(copies.max()) - 1):
            at = np.minimum(first + copy, first + copies - 1)
            passed = np.take_along_axis(until, at, 1) - np.arange(self.experts)  # [L, E] in 0 .. 1
            more = (copy < copies - 1)[:, :, None] & (passed[:, :, None] <= turn + 1e-9)
            position += more
        found = np.take_along_axis(order, position.reshape(self.layers, -1), 1)
        return found.reshape(position.shape)


def _count(slots: np.ndarray, experts: int) -> np.ndarray:
    return np.stack([np.bincount(row, minlength=experts) for row in slots])


def slots_for(experts: int, ranks: int, spares_per_rank: int = 0) -> int:
    """Slots of all ranks together. An E that P does not divide is rounded up: more spares."""
    if not 1 <= ranks <= experts:
        raise PlacementError(f"{ranks} ranks for {experts} experts: use 1 to {experts} ranks")
    return ranks * (-(-experts // ranks) + spares_per_rank)


def in_order(layers: int, experts: int, ranks: int, slots: int | None = None) -> Placement:
    """Experts in order, before any load is known; spare slots hold the first ones once more."""
    slots = slots or slots_for(experts, ranks)
    _check_slots(experts, ranks, slots)
    row = np.arange(slots) % experts
    return with_even_shares(np.tile(row, (layers, 1)), ranks, experts)


def balance(
    load: np.ndarray,
    ranks: int,
    slots: int,
    speed: np.ndarray | None = None,
    rounds: int | None = None,
) -> Placement:
    """Spread `load [L, E]` so that the busiest rank has little more than the mean.

    `speed [P]`: tokens a second of each rank, in any unit; then time is balanced in place of
    tokens. Copies of an expert may get uneven shares of its tokens. `rounds`: how often slots are
    exchanged and shares fitted (None: 2, or 6 where speeds differ). Raises PlacementError for what
    cannot be placed.
    """
    load = _checked_load(load)
    speed = _checked_speed(speed, ranks)
    _check_slots(load.shape[1], ranks, slots)
    expert, copies = eplb.replicate(load, slots, most=ranks)
    weight = np.take_along_axis(load / copies, expert, 1)  # [L, Q]
    packed = eplb.separate(eplb.pack(weight, expert, ranks, speed), weight, expert)
    kind = expert[np.arange(len(load))[:, None, None], packed]  # [L, P, Q/P]
    share = 1 / copies[np.arange(len(load))[:, None, None], kind]
    if rounds is None:
        rounds = 2 if speed.min() == speed.max() else 6
    for _ in range(rounds):
        eplb.swap(kind, share, load, speed)
        eplb.fit_shares(kind, share, load, speed)
    return Placement(
        kind.reshape(len(load), -1), share.reshape(len(load), -1), ranks, load.shape[1]
    )


def adjust(
    before: Placement, load: np.ndarray, exchanges: int = 8, speed: np.ndarray | None = None
) -> Placement:
    """The placement in force, made fit for a new `load [L, E]` by a few moves of weights.

    `balance` starts from nothing, and nearly every slot gets another expert. This one keeps the
    copies there are, splits tokens among them anew, and exchanges at most 2 x `exchanges` pairs of
    slots per layer; with 0, no weights move at all. Raises PlacementError like `balance`.
    """
    load, speed = _checked_load(load), _checked_speed(speed, before.ranks)
    if load.shape != (before.layers, before.experts):
        wanted = f"{before.layers} layers x {before.experts} experts"
        raise PlacementError(f"load has shape {load.shape}: the placement has {wanted}")
    shape = (before.layers, before.ranks, before.per_rank)
    kind, share = before.slots.reshape(shape).copy(), before.share.reshape(shape).copy()
    eplb.fit_shares(kind, share, load, speed, sweeps=2)
    for _ in range(2):
        eplb.swap(kind, share, load, speed, exchanges)
        eplb.fit_shares(kind, share, load, speed)
    flat = (before.layers, -1)
    return Placement(kind.reshape(flat), share.reshape(flat), before.ranks, before.experts)


def with_even_shares(slots: np.ndarray, ranks: int, experts: int) -> Placement:
    """Each copy of an expert gets the same part of its tokens. slots: `[L, Q]`."""
    copies = _count(slots, experts)
    if not copies.all():
        layer, expert = np.argwhere(copies == 0)[0]
        raise PlacementError(f"expert {expert} of layer {layer} has no slot: give it one")
    return Placement(slots, 1 / np.take_along_axis(copies, slots, 1), ranks, experts)


def rank_load(placement: Placement, load: np.ndarray) -> np.ndarray:
    """Tokens of each rank `[L, P]` when experts get `load [L, E]`."""
    each = np.take_along_axis(np.asarray(load, dtype=float), placement.slots, 1) * placement.share
    return each.reshape(placement.layers, placement.ranks, -1).sum(2)


def peak_to_mean(
    placement: Placement, load: np.ndarray, speed: np.ndarray | None = None
) -> np.ndarray:
    """`[L]`: the busiest rank over the mean; with `speed`, the longest time over the least possible
    one. A layer without load counts as 1."""
    busy = rank_load(placement, load)
    speed = np.ones(placement.ranks) if speed is None else np.asarray(speed, dtype=float)
    best = busy.sum(1) / speed.sum()
    return np.where(best > 0, (busy / speed).max(1) / np.where(best > 0, best, 1), 1.0)


def moves(before: Placement, after: Placement) -> list[tuple[int, int, int]]:
    """(layer, slot, expert) of every slot whose weights must come from elsewhere."""
    if before.slots.shape != after.slots.shape:
        shapes = f"{before.slots.shape} and {after.slots.shape}"
        raise PlacementError(f"placements of shapes {shapes} differ: keep layers and slots")
    changed = np.argwhere(before.slots != after.slots).tolist()
    return [(layer, slot, int(after.slots[layer, slot])) for layer, slot in changed]


class Window:
    """Loads of the last `steps` steps, `[L, E]`: what the next layout is made for."""

    def __init__(self, layers: int, experts: int, steps: int):
        self.kept = np.zeros((steps, layers, experts))
        self.seen = 0

    def add(self, counts: np.ndarray) -> None:
        """One step's tokens per layer and expert, summed over all ranks."""
        self.kept[self.seen % len(self.kept)] = counts
        self.seen += 1

    def load(self) -> np.ndarray:
        """`[L, E]`, the sum."""
        return self.kept.sum(0)


def _checked_load(load: np.ndarray) -> np.ndarray:
    load = np.asarray(load, dtype=float)
    if load.ndim != 2 or not load.size:
        raise PlacementError(f"load has shape {load.shape}: give layers x experts")
    if not (np.isfinite(load).all() and (load >= 0).all()):
        raise PlacementError("load has a negative or missing value: give counts of tokens")
    return load


def _checked_speed(speed, ranks: int) -> np.ndarray:
    speed = np.ones(ranks) if speed is None else np.asarray(speed, dtype=float)
    if speed.shape != (ranks,) or not (np.isfinite(speed).all() and (speed > 0).all()):
        raise PlacementError(f"speed {speed.tolist()} for {ranks} ranks: give one above 0 for each")
    return speed


def _check_slots(experts: int, ranks: int, slots: int) -> None:
    if not 1 <= ranks <= experts:
        raise PlacementError(f"{ranks} ranks for {experts} experts: use 1 to {experts} ranks")
    if slots % ranks:
        near = -(-slots // ranks) * ranks
        raise PlacementError(f"{slots} slots on {ranks} ranks: use a multiple, such as {near}")
    if not experts <= slots <= experts * ranks:
        limits = f"{slots_for(experts, ranks)} to {experts * ranks}"
        raise PlacementError(f"{slots} slots for {experts} experts on {ranks} ranks: use {limits}")
