"""`Calibration`: confidences that mean what they say, one temperature for each draft position.

A budget multiplies confidences into survivals, so what must be right is the product: among prefixes
said to survive with 0.6, six of ten should. Temperatures are found from left to right, each to make
the product up to its own position as true as it can be (sequential temperature scaling, DSpark,
arXiv 2607.05147). Dividing a logit by a temperature keeps the order of confidences.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from minimoe.errors import MinimoeError

BINS = 15
GRID = np.exp(np.arange(-80, 81) * 0.02)  # 0.2 to 5; its middle is 1, no change


@dataclass(frozen=True)
class Calibration:
    """`temperatures[0]` is a row of G temperatures for greedy requests, `temperatures[1]` for
    requests at temperature 1. Between the two, their logarithms are interpolated; above 1, the row
    for 1 is used."""

    temperatures: tuple[tuple[float, ...], tuple[float, ...]]

    def __post_init__(self):
        greedy, drawn = self.temperatures
        good = len(greedy) == len(drawn) and all(0 < t < float("inf") for t in (*greedy, *drawn))
        if not good:
            raise MinimoeError(
                f"calibration {self.temperatures}: it must be two rows of as many positive numbers"
            )

    @property
    def length(self) -> int:
        """G, the draft positions it was made for."""
        return len(self.temperatures[0])

    @classmethod
    def none(cls, length: int) -> "Calibration":
        """Leaves confidences as they are."""
        return cls(((1.0,) * length, (1.0,) * length))

    def rows(self, temperatures: Sequence[float]) -> np.ndarray:
        """Calibrating temperatures `[B, G]` for requests with these sampling temperatures."""
        return _rows(self.temperatures, tuple(temperatures))

    def apply(self, logits, params: Sequence) -> np.ndarray:
        """P(accepted | all before accepted) from confidence logits, both `[B, G]`; tensor or array.

        `params` are the requests' SamplingParams. A shorter draft uses the first temperatures; a
        longer one raises MinimoeError.
        """
        G = logits.shape[-1]
        if G > self.length:
            raise MinimoeError(
                f"confidences of {G} positions and a calibration of {self.length}: "
                "calibrate this drafter anew"
            )
        rows = self.rows([one.temperature for one in params])[:, :G]
        if isinstance(logits, np.ndarray):
            return sigmoid(logits / rows)
        return (logits.float() / logits.new_tensor(rows).float()).sigmoid()

    def save(self, path: str | Path, about: dict | None = None) -> None:
        """JSON; `about` says how it was made."""
        greedy, drawn = self.temperatures
        record = {"temperatures": {"0": greedy, "1": drawn}, **(about or {})}
        Path(path).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Calibration":
        """Raises MinimoeError for a file that is missing or is no calibration."""
        try:
            rows = json.loads(Path(path).read_text(encoding="utf-8"))["temperatures"]
            return cls((tuple(rows["0"]), tuple(rows["1"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MinimoeError(f"no calibration in {path}: {error}; make it anew") from error


@lru_cache(maxsize=256)
def _rows(known: tuple, temperatures: tuple[float, ...]) -> np.ndarray:
    greedy, drawn = np.log(known)
    share = np.minimum(temperatures, 1.0)[:, None]
    return np.exp(greedy + share * (drawn - greedy))


def fit(logits: np.ndarray, accepted: np.ndarray) -> tuple[float, ...]:
    """Sequential temperature scaling: the G temperatures.

    Args:
        logits: confidence logits `[n, G]`.
        accepted: how many leading drafts were accepted, `[n]`, where all G were checked.
    """
    found, before = [], np.ones(len(logits))
    for position in range(logits.shape[1]):
        survived = accepted > position
        column = logits[:, position].astype(np.float64)
        errors = [ece(before * sigmoid(column / t), survived) for t in GRID]
        best = np.flatnonzero(np.asarray(errors) <= min(errors) + 1e-12)
        found.append(float(min(GRID[best], key=lambda t: abs(np.log(t)))))  # ties: nearest to 1
        before = before * sigmoid(column / found[-1])
    return tuple(found)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * np.asarray(x, dtype=np.float64))


def survivals(logits: np.ndarray, temperatures: Sequence[float]) -> np.ndarray:
    """Running products of calibrated confidences `[n, G]`."""
    return sigmoid(logits / np.asarray(temperatures)).cumprod(axis=1)


def ece(said: np.ndarray, true: np.ndarray, bins: int = BINS) -> float:
    """Expected calibration error: |mean said - share true| over equal bins of [0, 1], weighted."""
    count, total_said, total_true = _bins(said, true, bins)
    return float(np.abs(total_said - total_true).sum() / max(1.0, count.sum()))


def reliability(said: np.ndarray, true: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Rows (mean said, share true, count) of the bins that hold anything: `[bins', 3]`."""
    count, total_said, total_true = _bins(said, true, bins)
    kept = count > 0
    safe = count[kept]
    return np.stack([total_said[kept] / safe, total_true[kept] / safe, safe], axis=1)


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
