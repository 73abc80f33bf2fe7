"""How sure a median of paired ratios is: bootstrap over the pairs."""

import numpy as np


def lower_bound(values: list[float], confidence: float = 0.95, draws: int = 4000) -> float:
    """Below this lies the true median with a probability of half of 1 - `confidence`: the lower end
    of its two-sided interval. The seed is fixed."""
    return interval(values, confidence, draws)[0]


def interval(values: list[float], confidence: float = 0.95, draws: int = 4000):
    """Two-sided percentile interval of the median."""
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(values), (draws, len(values)))
    medians = np.median(np.asarray(values)[picks], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return float(low), float(high)
