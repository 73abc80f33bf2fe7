"""Batches of token rows, drawn from the token stream of each domain.

Drawing depends on nothing but the seed and the step, so training can stop and resume anywhere and
see the same rows.
"""

import zlib
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from minimoe.errors import MinimoeError

# Share of rows moved to the start of the next document. Short documents always start a row, as they
# start a prompt. Source files are longer than a row, so most of their rows start inside one.
ALIGNED = {"code": 0.25}


class DomainStream:
    """Rows from one domain's stream of documents, each token about once an epoch.

    An epoch cuts the stream into rows from a random shift and shuffles them.
    """

    def __init__(self, name: str, tokens: np.ndarray, length: int, begin_id: int, seed: int):
        if len(tokens) < 2 * (length + 1):
            raise MinimoeError(
                f"domain {name!r} has {len(tokens)} tokens, rows of {length} need at least "
                f"{2 * (length + 1)}: build a larger corpus or train on shorter rows"
            )
        self.tokens = torch.from_numpy(tokens.astype(np.int32))
        self.length = length
        self.seed = (seed, zlib.crc32(name.encode()))
        self.aligned = ALIGNED.get(name, 1.0)
        self.begins = np.flatnonzero(tokens == begin_id)
        self.windows = (len(tokens) - 1) // length - 1  # one row is kept free for the shift
        self._epoch = lru_cache(maxsize=2)(self._draw_epoch)

    def starts(self, first: int, count: int) -> np.ndarray:
        """Where rows number `first` to `first + count - 1` of this domain start. [count]"""
        rows = range(first, first + count)
        return np.array([self._epoch(row // self.windows)[row % self.windows] for row in rows])

    def rows(self, first: int, count: int) -> Tensor:
        """Those rows and the token that follows each: [count, length + 1] on the CPU."""
        starts = torch.from_numpy(self.starts(first, count))
        return self.tokens[starts[:, None] + torch.arange(self.length + 1)]

    def _draw_epoch(self, epoch: int) -> np.ndarray:
        random = np.random.default_rng((*self.seed, epoch))
        starts = random.integers(self.length) + self.length * np.arange(self.windows)
        moved = self._next_document(starts)
        starts = np.where(random.random(self.windows) < self.aligned, moved, starts)
        return random.permutation(starts)

    def _next_document(self, starts: np.ndarray) -> np.ndarray:
        """Move each start to the next document, or leave it if no whole row is left there."""
        padded = np.append(self.begins, len(self.tokens))
        moved = padded[np.searchsorted(self.begins, starts)]
        return np.where(moved + self.length < len(self.tokens), moved, starts)


class Batches:
    """Training batches with a fixed number of rows of each domain, in the order of the mix."""

    def __init__(self, streams: dict[str, np.ndarray], counts: dict[str, int], length: int,
                 begin_id: int = 0, seed: int = 0, device: str = "cpu"):  # fmt: skip
        self.counts = counts
        self.device = device
        self.streams = {
            name: DomainStream(name, streams[name], length, begin_id, seed) for name in counts
        }

    def draw(self, step: int) -> Tensor:
        """The batch of this step, [B, length + 1] int64 on the device."""
        parts = [self.streams[name].rows(step * n, n) for name, n in self.counts.items()]
        batch = torch.cat(parts).long()
        if self.device.startswith("cuda"):
            batch = batch.pin_memory()
        return batch.to(self.device, non_blocking=True)

    def by_domain(self, values: Tensor) -> dict[str, Tensor]:
        """Split values of the rows [B, ...] by domain."""
        return dict(zip(self.counts, values.split(list(self.counts.values())), strict=True))


def held_out_rows(tokens: np.ndarray, length: int, limit: int) -> Tensor:
    """Up to `limit` rows [rows, length + 1] spread evenly over a held-out stream, always the same.

    Raises MinimoeError when the stream is shorter than one row.
    """
    whole = (len(tokens) - 1) // length
    if whole == 0:
        raise MinimoeError(f"{len(tokens)} held-out tokens are fewer than one row of {length}")
    picked = np.unique(np.linspace(0, whole - 1, min(limit, whole)).astype(int)) * length
    return torch.from_numpy(tokens.astype(np.int64)[picked[:, None] + np.arange(length + 1)])
