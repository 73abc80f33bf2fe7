"""`StaticCheck`: both rules of acceptance in buffers at fixed addresses, for a CUDA graph.

Without drafts (G = 0) what is left is the draw of one token for each request.
"""

import torch

from minimoe.engine.sequence import Sequence
from minimoe.ops.sampling import (
    exponential_noise,
    filters_of,
    keep_likeliest,
    softmax_at,
    uniform_noise,
)
from minimoe.speculative.acceptance import ACCEPT, Block
from minimoe.speculative.chances import FILTERS, FREE, GREEDY, SEEDED, StaticRows, way


class StaticCheck:
    """`size` requests with up to G drafts each; `kind` as in `chances.kind_of`."""

    def __init__(
        self,
        size: int,
        kind: frozenset[int],
        dtype: torch.dtype,
        length: int,
        vocab: int,
        device: torch.device,
    ):
        self.size, self.kind, self.length, self.vocab = size, kind, length, vocab
        G = length
        # Rows: rule, seed, position, count, row of q; then rows of logits; then drafts.
        self._logit_rows, self._drafts = slice(5, 6 + G), slice(6 + G, 6 + 2 * G)
        self._whole = StaticRows(6 + 2 * G, size, torch.long, device)
        self._real = StaticRows(4, size, torch.float32, device)
        self.whole, self.real = self._whole.values, self._real.values
        self.logits = torch.zeros(size * (G + 1), vocab, dtype=dtype, device=device)
        wide = torch.promote_types(dtype, torch.float32)
        self.q = None
        if FREE in kind and G:
            self.q = torch.zeros(size, G, vocab, dtype=wide, device=device)

    def fill(self, seqs: list[Sequence], logits: torch.Tensor, q, q_rows: list[int]) -> None:
        """Take what one step computed; rows beyond the given requests repeat the first."""
        whole, real, start = [], [], 0
        G = self.length
        for seq, q_row in zip(seqs, q_rows, strict=True):
            count = len(seq.draft)
            rule = way(seq.params) if q is not None and count else min(way(seq.params), SEEDED)
            rows = [start + min(place, count) for place in range(G + 1)]
            draft = [*seq.draft, *[0] * (G - count)]
            whole.append([rule, seq.seed, len(seq.tokens), count, q_row, *rows, *draft])
            real.append((seq.params.temperature, *filters_of(seq.params, self.vocab)))
            start += 1 + count
        self._whole.fill(whole)
        self._real.fill(real)
        torch.index_select(logits, 0, self.whole[self._logit_rows].T.flatten(), out=self.logits)
        if self.q is not None and q is not None:
            self.q[:, : q.shape[1]] = q.index_select(0, self.whole[4])

    def run(self) -> torch.Tensor:
        """What a graph records: drafts kept and the token after them, `[2, size]`."""
        G, V = self.length, self.vocab
        rules, seeds, positions, counts = self.whole[:4]
        drafts = self.whole[self._drafts].T  # [B, G]
        places = torch.arange(G + 1, device=seeds.device)
        p = self._probabilities()  # [B * (G + 1), V]
        at = positions[:, None] + places  # [B, G + 1]
        noise = exponential_noise(
            seeds[:, None].expand_as(at).flatten(), at.flatten(), V, seeds.device
        )
        greedy = (rules == GREEDY)[:, None]
        best = self.logits.argmax(-1).view_as(at)
        drawn = torch.where(greedy, best, (p / noise).argmax(-1).view_as(at))
        same = (drawn[:, :G] == drafts) & (places[:G] < counts[:, None])
        accepted = same.long().cumprod(1).sum(1)
        token = drawn.gather(1, accepted[:, None])[:, 0]
        if self.q is not None:
            block = Block(torch.arange(self.size, device=seeds.device) * (G + 1), counts, drafts,
                          self.q)  # fmt: skip
            kept = block.accepted(p, uniform_noise(seeds[:, None], at[:, :G], ACCEPT, seeds.device))
            other = (block.last(p, kept) / noise[block.starts + kept]).argmax(-1)
            free = rules == FREE
            accepted, token = torch.where(free, kept, accepted), torch.where(free, other, token)
        return torch.stack([accepted, token])

    def _probabilities(self) -> torch.Tensor:
        settings = self.real.repeat_interleave(self.length + 1, dim=1)  # [4, B * (G + 1)]
        p = softmax_at(self.logits, settings[0])
        return keep_likeliest(p, *settings[1:]) if FILTERS in self.kind else p
