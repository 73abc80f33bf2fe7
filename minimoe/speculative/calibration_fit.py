"""How a calibration is found, and how good it is: temperatures from left to right, weights, errors.

The error that counts is of the *product* up to each place against "all up to here were accepted".
"""

from collections.abc import Sequence

import numpy as np

from minimoe.speculative.calibration import PLAIN, Weights, sigmoid

BINS = 10
GRID = np.exp(np.arange(-80, 81) * 0.02)  # temperatures, 0.2 to 5; the middle is 1, no change
RIDGE = 1e-4  # keeps weights finite where everything was accepted


def fit_temperatures(logits: np.ndarray, accepted: np.ndarray) -> tuple[float, ...]:
    """Sequential temperature scaling (DSpark, arXiv 2607.05147): one divisor of the logits a place.

    Each makes the product up to its own place as true as it can be, given those before it; of
    equally good ones, the nearest to 1. It keeps the order of confidences.

    Args:
        logits: `[n, G]`.
        accepted: how many leading drafts were accepted, `[n]`, where all G were checked.
    """
    found, before = [], np.ones(len(logits))
    for place in range(logits.shape[1]):
        survived = accepted > place
        errors = [ece(before * sigmoid(logits[:, place] / t), survived) for t in GRID]
        best = GRID[np.asarray(errors) <= min(errors) + 1e-12]
        found.append(float(min(best, key=lambda t: abs(np.log(t)))))
        before = before * sigmoid(logits[:, place] / found[-1])
    return tuple(found)


def fit(logits: np.ndarray, accepted: np.ndarray, odds: np.ndarray | None = None) -> Weights:
    """Weights of a `Calibration` for one sampling temperature, with or without the odds `[n, G]`.

    Each place's weights are the likeliest ones (logistic regression over the passes that reached
    it); then the sums are scaled from left to right as in `fit_temperatures`.
    """
    sums, weights = np.empty(logits.shape), []
    for place in range(logits.shape[1]):
        inputs = [logits[:, place]] + ([] if odds is None else [odds[:, place]])
        x = np.stack([*inputs, np.ones(len(logits))], axis=1)
        reached = accepted >= place
        w = logistic(x[reached], accepted[reached] > place)
        sums[:, place] = x @ w
        weights.append((w[0], 0.0 if odds is None else w[1], w[-1]))
    scales = fit_temperatures(sums, accepted)
    return tuple(
        tuple(float(value / t) for value in row) for row, t in zip(weights, scales, strict=True)
    )


def logistic(x: np.ndarray, y: np.ndarray, rounds: int = 40) -> np.ndarray:
    """Weights `[k]` that make `sigmoid(x @ w)` likeliest for the outcomes `y [n]`: Newton's way."""
    w, ridge = np.zeros(x.shape[1]), RIDGE * np.eye(x.shape[1])
    for _ in range(rounds):
        p = sigmoid(x @ w)
        slope = x.T @ (p - y) / max(1, len(y)) + ridge @ w
        curvature = (x * (p * (1 - p))[:, None]).T @ x / max(1, len(y)) + ridge
        w = w - np.linalg.solve(curvature, slope)
    return w


def temperatures_only(temperatures: Sequence[float]) -> Weights:
    """What `fit_temperatures` found, as weights."""
    return tuple((1.0 / t, 0.0, 0.0) for t in temperatures)


def confidences(weights: Weights, logits: np.ndarray, odds: np.ndarray | None = None) -> np.ndarray:
    """Calibrated confidences from the head's `logits [n, G]` and the `odds [n, G]`: `[n, G]`."""
    head, of_odds, shift = np.array(weights).T
    total = head * logits + shift
    if odds is not None:
        total = total + of_odds * odds
    return sigmoid(total)


def survivals(weights: Weights, logits: np.ndarray, odds: np.ndarray | None = None) -> np.ndarray:
    """Running products of the calibrated confidences, `[n, G]`."""
    return confidences(weights, logits, odds).cumprod(axis=1)


def errors(said: np.ndarray, accepted: np.ndarray) -> list[float]:
    """Calibration error at each place, from survivals `[n, G]` and accepted counts `[n]`."""
    return [ece(said[:, place], accepted > place) for place in range(said.shape[1])]


def ece(said: np.ndarray, true: np.ndarray, bins: int = BINS) -> float:
    """Expected calibration error: |mean said - share true| over equal bins of [0, 1], weighted."""
    count, total_said, total_true = _bins(said, true, bins)
    return float(np.abs(total_said - total_true).sum() / max(1.0, count.sum()))


def reliability(said: np.ndarray, true: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Rows (mean said, share true, count) of the bins that hold anything: `[bins', 3]`."""
    count, total_said, total_true = _bins(said, true, bins)
    kept = count > 0
    return np.stack(
        [total_said[kept] / count[kept], total_true[kept] / count[kept], count[kept]], 1
    )


def _bins(said, true, bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    index = np.minimum((np.asarray(said) * bins).astype(int), bins - 1)
    sums = [np.bincount(index, weights, minlength=bins) for weights in (None, said, true)]
    return tuple(np.asarray(one, dtype=np.float64) for one in sums)


def ece_naive(said, true, bins: int = BINS) -> float:
    """The oracle of `ece`, one prediction at a time."""
    members = [[] for _ in range(bins)]
    for p, hit in zip(said, true, strict=True):
        members[min(int(p * bins), bins - 1)].append((float(p), float(hit)))
    error = 0.0
    for inside in members:
        if inside:
            said_mean = sum(p for p, _ in inside) / len(inside)
            hit_share = sum(hit for _, hit in inside) / len(inside)
            error += len(inside) / len(said) * abs(said_mean - hit_share)
    return error


def plain(length: int) -> Weights:
    """Raw confidences as weights."""
    return (PLAIN,) * length
