"""A kernel's time from its bytes and operations, with three numbers fitted to measured rows.

    seconds = overhead + ((bytes / bandwidth)^1.5 + (operations / rate)^1.5)^(1/1.5)

With the exponent 1 memory and arithmetic would come one after the other, with a large one both at
once; 1.5 lies between, and predicted rows that it had not seen better than 1, 2 or 3. Bandwidth and
rate are shares of the machine's measured roofs: they say how good the kernel is, and may be carried
to another chip. Label of what comes out: *derived*.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minimoe.perf.roofline import Work

OVERLAP = 1.5
OVERHEADS = (1e-6, 5e-5)  # seconds: from less than a launch to some ten of them
SHARES = (0.25, 1.05)  # of a roof; a kernel that only reads may come out a little above it
POINTS, ZOOMS = 13, 4


@dataclass(frozen=True)
class Kernel:
    """How well a kernel uses a machine. Shares are of measured roofs, overhead in seconds."""

    overhead: float
    bandwidth: float
    rate: float

    def seconds(self, work: Work, bandwidth: float, rate: float) -> float:
        """Time on a machine that can read `bandwidth` bytes/s and compute `rate` FLOP/s."""
        memory = work.bytes / (self.bandwidth * bandwidth)
        arithmetic = work.flops / (self.rate * rate)
        return self.overhead + (memory**OVERLAP + arithmetic**OVERLAP) ** (1 / OVERLAP)


def fit(rows: Sequence[tuple[Work, float]], bandwidth: float, rate: float) -> Kernel:
    """The kernel that comes closest to measured `rows` of (work, seconds) on a machine.

    It minimises worst + root-mean-square relative error, by grids that narrow: always the same
    answer, and never one outside of what is possible. Raises ValueError below three rows.
    """
    if len(rows) < 3:
        raise ValueError(f"{len(rows)} rows for three numbers: give at least 3")
    memory = (np.array([work.bytes for work, _ in rows]) / bandwidth) ** OVERLAP
    arithmetic = (np.array([work.flops for work, _ in rows]) / rate) ** OVERLAP
    measured = np.array([seconds for _, seconds in rows])
    limits = [OVERHEADS, SHARES, SHARES]
    around = [np.geomspace(*limit, POINTS) for limit in limits]
    for _ in range(ZOOMS):
        loss = _losses(around, memory, arithmetic, measured)
        best = np.unravel_index(loss.argmin(), loss.shape)
        point = [float(axis[i]) for axis, i in zip(around, best, strict=True)]
        around = [_narrower(*each) for each in zip(around, point, limits, strict=True)]
    return Kernel(*point)


def _losses(around, memory, arithmetic, measured) -> np.ndarray:
    """`[n, n, n]` over overheads, bandwidth shares and rate shares."""
    overhead, read, compute = np.meshgrid(*around, indexing="ij")
    times = memory / read[..., None] ** OVERLAP + arithmetic / compute[..., None] ** OVERLAP
    error = np.log((overhead[..., None] + times ** (1 / OVERLAP)) / measured)  # [n, n, n, rows]
    return np.abs(error).max(-1) + np.sqrt((error**2).mean(-1))


def _narrower(axis: np.ndarray, value: float, limit: tuple[float, float]) -> np.ndarray:
    """A grid from one step of `axis` below `value` to one above, within the limits."""
    step = axis[1] / axis[0]
    return np.clip(np.geomspace(value / step, value * step, POINTS), *limit)
