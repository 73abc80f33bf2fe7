"""Who makes everyone wait: speeds of ranks and links, from times that leave waiting out.

Balanced token counts cannot show a slow rank: it has as many tokens as the others and takes longer.
Nor can the length of a step: all ranks end together, having waited for the slowest. So each rank
times its own work apart from waiting (`Times.own` in `wire.py`), and these are compared.

    speed = rank_speeds(seconds, rows)             # [P], 1.0 is the median rank
    placement = balance(load, ranks, slots, speed) # placement.py: loads weighed by speed
    find_slow(probe_table(ranks.call(probe)))      # a slow rank, or a slow link between two
"""

import itertools
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch

from minimoe.parallel.placement import Placement, balance, rank_load

TOLERANCE = 1.3  # times slower than the others before it is called slow


def rank_speeds(seconds: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Speed of each rank `[P]`, as a multiple of the median rank's.

    `seconds [S, P]` of own work and expert `rows [S, P]` in S steps (or `[P]`: one). A step costs a
    rank (fixed + rows x each) / speed; fixed and each are the same for all and fitted, fixed only
    where the rows vary enough to tell. Raises ValueError for shapes that differ or no time at all.
    """
    seconds, rows = (np.atleast_2d(np.asarray(a, dtype=float)) for a in (seconds, rows))
    if seconds.shape != rows.shape:
        raise ValueError(f"seconds {seconds.shape} and rows {rows.shape} differ: give one per step")
    if not (seconds.max(initial=0) > 0 and np.isfinite(seconds).all()):
        raise ValueError("no rank has spent any time: run some steps first")
    speed = np.ones(seconds.shape[1])
    for _ in range(20):
        cost = _step_cost(seconds * speed, rows)
        ratio = np.where(seconds > 0, cost / np.where(seconds > 0, seconds, 1), 1.0)
        speed = np.median(ratio, axis=0)
        speed = speed / np.median(speed)
    return speed


def _step_cost(work: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`[S, P]`: what the rows should take at speed 1, by a least-squares line through `work`."""
    if (rows.std(0) < 0.1 * rows.mean(0)).all():
        return work.sum() / max(rows.sum(), 1.0) * rows
    slope, fixed = np.polyfit(rows.ravel(), work.ravel(), 1)
    if fixed < 0 or slope <= 0:
        return work.sum() / max(rows.sum(), 1.0) * rows
    return fixed + slope * rows


def step_seconds(
    placement: Placement, load: np.ndarray, speed: np.ndarray, row: float = 1.0, fixed: float = 0.0
) -> np.ndarray:
    """The step model: `[L]` seconds until the last rank is done with each layer of `load [L, E]`.

    `row` and `fixed`: seconds of one row and of none, on a rank of speed 1.
    """
    return ((fixed + row * rank_load(placement, load)) / speed).max(1)


@dataclass(frozen=True)
class WonBack:
    """Step times with all ranks alike, with slow ones under a balance that counts tokens, and under
    one that weighs them by speed."""

    even: float
    blind: float
    aware: float

    @property
    def share(self) -> float:
        """Part of the loss that weighing by speed wins back; 1 where nothing was lost."""
        lost = self.blind - self.even
        return (self.blind - self.aware) / lost if lost > 0 else 1.0

    @property
    def factor(self) -> float:
        """Step time with slow ranks over step time without, tokens balanced."""
        return self.blind / self.even


def model(load: np.ndarray, ranks: int, slots: int, speed: np.ndarray, **cost) -> WonBack:
    """What `step_seconds` says for ranks of this `speed [P]`, all layers of `load [L, E]` added."""
    speed = np.asarray(speed, dtype=float)
    blind, aware = balance(load, ranks, slots), balance(load, ranks, slots, speed)
    runs = ((blind, np.ones(ranks)), (blind, speed), (aware, speed))
    return WonBack(*(float(step_seconds(p, load, s, **cost).sum()) for p, s in runs))


# ---- links


def probe(context, size: int = 1 << 20, repeats: int = 5) -> list[float]:
    """Runs on a rank: seconds `[P]` of exchanging `size` bytes with each other rank.

    One pair of ranks at a time, so that nothing else blurs its time. For demonstrations,
    `context.state["link_delays"]` may hold {rank: seconds} to add.
    """
    wire, values = context.wire, torch.zeros(size // 4, device=context.device)
    out, delays = [0.0] * context.size, context.state.get("link_delays", {})
    for pair in itertools.combinations(range(context.size), 2):
        other = sum(pair) - context.rank if context.rank in pair else None
        counts = [len(values) * (rank == other) for rank in range(context.size)]
        rows = values if other is not None else values[:0]
        times = []
        for _ in range(repeats):
            wire.gather(None)  # start together
            start = time.perf_counter()
            time.sleep(delays.get(other, 0.0))
            wire.all_to_all(rows, counts, counts, "probe")[:1].cpu()  # on a GPU: until it is there
            times.append(time.perf_counter() - start)
        if other is not None:
            out[other] = statistics.median(times)
    return out


def delay_link(context, other: int, seconds: float) -> None:
    """Runs on a rank: from now on `probe` takes so much longer from here to rank `other`."""
    context.state.setdefault("link_delays", {})[other] = seconds


def probe_table(reports: list[list[float]]) -> np.ndarray:
    """What `probe` gave on each rank, to `[P, P]` seconds, the same in both directions."""
    times = np.array(reports, dtype=float)
    return np.maximum(times, times.T)


@dataclass(frozen=True)
class Slow:
    """A rank (one number) that is `factor` times as slow as the best, or a link (two) that takes
    `factor` times as long as its two ranks explain."""

    ranks: tuple[int, ...]
    factor: float

    def __str__(self) -> str:
        if len(self.ranks) == 1:
            return f"rank {self.ranks[0]} is {self.factor:.1f} times as slow as the best"
        a, b = self.ranks
        return (
            f"the link between ranks {a} and {b} takes {self.factor:.1f} times as long as its two "
            "ranks explain"
        )


def find_slow(times: np.ndarray, tolerance: float = TOLERANCE) -> list[Slow]:
    """Slow ranks and links from pairwise `times [P, P]`, the slowest first.

    A rank is slow if it is slow with everyone, its quickest partner included; a link is slow if it
    takes longer than its two ranks explain. Raises ValueError below 3 ranks: with one link nobody
    can tell.
    """
    times = np.asarray(times, dtype=float)
    ranks = len(times)
    if times.shape != (ranks, ranks) or ranks < 3:
        raise ValueError(f"times of shape {times.shape}: give a square table of 3 ranks or more")
    apart = np.where(np.eye(ranks, dtype=bool), np.inf, times)
    own = apart.min(1) / apart.min()  # [P]
    found = [Slow((i,), float(own[i])) for i in range(ranks) if own[i] > tolerance]
    explained = apart.min() * np.maximum(own[:, None], own)
    excess = times / explained
    found += [
        Slow((i, j), float(excess[i, j]))
        for i in range(ranks)
        for j in range(i + 1, ranks)
        if excess[i, j] > tolerance
    ]
    return sorted(found, key=lambda slow: -slow.factor)
