"""`Calibration`: confidences that mean what they say, at each place of the draft.

A budget multiplies confidences into survivals, so what must be right is the product: of prefixes
said to survive with 0.6, six in ten should. A calibrated logit is a weighted sum of what the
drafter says, with weights for each place:

* of the confidence head. It was trained to give the overlap of the two distributions, which is how
  often a *drawn* token is accepted.
* of the odds of the draft's likeliest token, for greedy requests only. There a draft is accepted if
  two argmaxes agree, and the head cannot tell two flat distributions that overlap from two peaks.
* of 1, a shift.

`calibration_fit.py` finds them. Source of the idea that the product is what to calibrate, from left
to right: DSpark, arXiv 2607.05147.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from minimoe.errors import MinimoeError

Weights = tuple[tuple[float, float, float], ...]  # [G]: of the head's logit, of the odds, the shift
PLAIN = (1.0, 0.0, 0.0)  # leaves a confidence as it is


@dataclass(frozen=True)
class Calibration:
    """`greedy` are the weights for requests at temperature 0, `drawn` for 1 and above; between the
    two they are mixed in proportion."""

    greedy: Weights
    drawn: Weights

    def __post_init__(self):
        shapes = {np.shape(rows) for rows in (self.greedy, self.drawn)}
        good = shapes == {(len(self.greedy), 3)} and np.isfinite([self.greedy, self.drawn]).all()
        if not good:
            raise MinimoeError(
                "a calibration needs two tables of as many places with 3 finite weights each; "
                "make it anew by `python -m minimoe.speculative.calibrate`"
            )

    @classmethod
    def none(cls, length: int) -> "Calibration":
        """A sigmoid of the head's logit, for drafts of up to `length`."""
        return cls((PLAIN,) * length, (PLAIN,) * length)

    @property
    def length(self) -> int:
        """The places it knows, G."""
        return len(self.greedy)

    def needs_odds(self, params: Sequence) -> bool:
        """Whether `apply` wants the odds for requests with these SamplingParams."""
        return any(row[1] for row in self.greedy) and any(one.temperature < 1 for one in params)

    def apply(self, logits, params: Sequence, odds=None):
        """P(accepted | all before accepted) `[B, G]`, a tensor or an array like the inputs.

        Args:
            logits: of the confidence head, `[B, G]`.
            params: the requests' SamplingParams.
            odds: `best_odds` of the draft's logits, `[B, G]`, where `needs_odds` says so.

        A draft shorter than the calibration uses its first places; MinimoeError for a longer one.
        """
        G = logits.shape[-1]
        if G > self.length:
            raise MinimoeError(
                f"confidences of {G} places and a calibration of {self.length}: calibrate this "
                "drafter anew"
            )
        if odds is None and self.needs_odds(params):
            raise MinimoeError("greedy requests are calibrated by the odds as well: give odds")
        rows = _mixed(self.greedy, self.drawn, tuple(one.temperature for one in params))[:, :G]
        array = isinstance(logits, np.ndarray)
        rows = rows if array else logits.new_tensor(rows, dtype=torch.float32)
        total = rows[..., 0] * logits + rows[..., 2]
        if odds is not None:
            total = total + rows[..., 1] * odds
        return sigmoid(total) if array else total.sigmoid()

    def save(self, path: str | Path, about: dict | None = None) -> None:
        """JSON; `about` says how it was made."""
        record = {"weights": {"0": self.greedy, "1": self.drawn}, **(about or {})}
        Path(path).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Calibration":
        """Raises MinimoeError for a file that is missing or is no calibration."""
        try:
            saved = json.loads(Path(path).read_text(encoding="utf-8"))["weights"]
            rows = [tuple(tuple(map(float, row)) for row in saved[key]) for key in ("0", "1")]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MinimoeError(f"no calibration in {path}: {error}; make it anew") from error
        return cls(*rows)


@lru_cache(maxsize=256)
def _mixed(greedy: Weights, drawn: Weights, temperatures: tuple[float, ...]) -> np.ndarray:
    """Weights `[B, G, 3]` for requests at these temperatures."""
    share = np.minimum(temperatures, 1.0)[:, None, None]
    return share * np.array(drawn) + (1 - share) * np.array(greedy)


def best_odds(logits: torch.Tensor) -> torch.Tensor:
    """Log odds, against all others, of the likeliest token of `logits [..., V]` at temperature 1:
    `[...]` float32, at most about 14."""
    logits = logits.float()
    best = logits.amax(-1)
    log_p = best - logits.logsumexp(-1)
    return log_p - torch.log1p(-log_p.exp().clamp(max=1 - 1e-6))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * np.asarray(x, dtype=np.float64))
