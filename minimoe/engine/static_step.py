"""`StaticStep`: a step of single-row tokens in buffers at fixed addresses, for CUDA graphs.

Every token is a row of its own, with its context length and, through its request, a row of the
block table. KV rows are written before they are read, so the lengths alone say who sees whom: one
form serves decode, the check of drafts, and the drafter's own blocks.
"""

import numpy as np
import torch

from minimoe.engine.sequence import Sequence
from minimoe.model.step import ShortGroup, Step


class BlockTables:
    """Block tables of the running requests on the device, a row each; only changes are copied."""

    def __init__(self, requests: int, width: int, block_size: int, device: torch.device):
        self.block_size = block_size
        pin = device.type == "cuda"
        self._host = torch.zeros(requests, width, dtype=torch.long, pin_memory=pin)
        self._rows: list[list[int]] = [[] for _ in range(requests)]
        self.host = self._host.numpy()
        self.device = self._host.to(device)

    @property
    def width(self) -> int:
        """Blocks in the longest table."""
        return self.host.shape[1]

    def fill(self, seqs: list[Sequence]) -> None:
        """Row i becomes that of request i."""
        changed = False
        for i, seq in enumerate(seqs):
            if seq.blocks != self._rows[i]:
                self.host[i, : len(seq.blocks)] = seq.blocks
                self._rows[i] = list(seq.blocks)
                changed = True
        if changed:
            self.device[: len(seqs)].copy_(self._host[: len(seqs)], non_blocking=True)

    def slots(self, owners: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """KV slots of `positions [T]` of the requests in rows `owners [T]`."""
        size = self.block_size
        return self.host[owners, positions // size] * size + positions % size


class StaticStep:
    """`size` tokens; `fill` renews the values, `begin` is the first of what a graph records."""

    def __init__(self, size: int, tables: BlockTables, device: torch.device, tap_layers=()):
        self.size, self.tables = size, tables
        self._meta = torch.zeros(5, size, dtype=torch.long, pin_memory=device.type == "cuda")
        self.meta = self._meta.to(device)
        ids, positions, slots, lengths, self.owners = self.meta
        group = ShortGroup(
            tokens=size,
            requests=size,
            block_table=None,
            length=tables.width * tables.block_size,
            mask=None,
            new_tokens=1,
            lengths=lengths,
        )
        self.step = Step(
            ids=ids,
            positions=positions,
            slots=slots,
            logit_rows=None,
            short=group,
            tap_layers=tap_layers,
        )

    def begin(self) -> None:
        """Look up each token's row of the block table."""
        table = self.tables.device.index_select(0, self.owners)
        self.step.short.block_table = table.view(-1)

    def fill_check(self, seqs: list[Sequence]) -> None:
        """The newest token of each request and its drafts."""
        self.tables.fill(seqs)
        starts = np.array([seq.num_computed for seq in seqs])
        counts = np.array([1 + len(seq.draft) for seq in seqs])
        owners = np.arange(len(seqs)).repeat(counts)
        positions = _from_starts(starts, counts, owners)
        ids = [token for seq in seqs for token in (seq.tokens[-1], *seq.draft)]
        self._fill(ids, positions, positions + 1, owners)

    def fill_blocks(self, seqs: list[Sequence], width: int) -> None:
        """A block of `width` places behind the computed tokens of each request; as ids, its newest
        token."""
        self.tables.fill(seqs)
        starts = np.array([seq.num_computed for seq in seqs])
        owners = np.arange(len(seqs)).repeat(width)
        positions = (starts[:, None] + np.arange(width)).ravel()
        ids = np.array([seq.tokens[-1] for seq in seqs])
        self._fill(ids[owners], positions, starts[owners] + width, owners, width)

    def _fill(self, ids, positions, lengths, owners, width: int = 1) -> None:
        """Rows beyond the given ones repeat the first `width`, whose KV rows are then written again
        with the same values."""
        meta, T = self._meta.numpy(), len(positions)
        meta[0, :T], meta[1, :T], meta[3, :T], meta[4, :T] = ids, positions, lengths, owners
        meta[2, :T] = self.tables.slots(owners, positions)
        if T < self.size:
            meta[:, T:] = np.tile(meta[:, :width], (self.size - T) // width)
        self.meta.copy_(self._meta, non_blocking=True)


def _from_starts(starts: np.ndarray, counts: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """`counts[b]` consecutive numbers from `starts[b]` on, for all b."""
    firsts = counts.cumsum() - counts
    return np.arange(len(owners)) + (starts - firsts)[owners]
