"""How the requests of a batch draw their drafts, each with its own sampling parameters.

Greedy: the likeliest token. Seeded: with the very noise that the target will draw with, so that
both mostly draw the same. Others: with noise that nobody else uses, fresh each time, since a
position may be guessed several times; what they are drawn from, q, is kept.
"""

import torch

from minimoe.ops.sampling import (
    draw_by_sum,
    exponential_noise,
    filters_of,
    keep_likeliest,
    probabilities,
    softmax_at,
    uniform_noise,
)

DRAFT = 2  # the stream of noise that drafts are drawn with; acceptance has another
GREEDY, SEEDED, FREE = 0, 1, 2
FILTERS = 3


def way(params) -> int:
    """Which of the three ways a request draws."""
    if params.greedy:
        return GREEDY
    return FREE if params.seed is None else SEEDED


def fresh_position(seq) -> int:
    """Where its next token stands, and how much was guessed before: never the same twice."""
    return len(seq.tokens) + (seq.metrics.drafted << 32)


class Chances:
    """Noise for G places of each request of one batch."""

    def __init__(self, seqs: list, length: int, vocab: int, device):
        self.length = length
        ways = [way(seq.params) for seq in seqs]
        drawn = [row for row, kind in enumerate(ways) if kind != GREEDY]
        free = [i for i, row in enumerate(drawn) if ways[row] == FREE]
        seeded = [i for i, row in enumerate(drawn) if ways[row] == SEEDED]
        self.params = [seqs[row].params for row in drawn]
        self.everyone = len(drawn) == len(seqs)
        self.drawn, self.free, self.seeded = (
            torch.tensor(rows, device=device) if rows else None for rows in (drawn, free, seeded)
        )
        self.q: list[torch.Tensor] = []  # [B, V] for each place, where some request is free
        if free:
            keys = [(seqs[drawn[i]].seed, fresh_position(seqs[drawn[i]])) for i in free]
            self.uniform = uniforms(*torch.tensor(keys, device=device).unbind(1), length)
        if seeded:
            keys = [(seqs[drawn[i]].seed, len(seqs[drawn[i]].tokens)) for i in seeded]
            self.noise = noises(*torch.tensor(keys, device=device).unbind(1), length, vocab)

    def draw(self, place: int, logits: torch.Tensor) -> torch.Tensor:
        """Tokens `[B]` for one place of the block from `logits [B, V]`."""
        if self.drawn is None:
            return logits.argmax(-1)
        p = probabilities(logits if self.everyone else logits[self.drawn], self.params)
        chosen = self.drawn.new_empty(len(p))
        if self.seeded is not None:
            chosen[self.seeded] = (p[self.seeded] / self.noise[:, place]).argmax(-1)
        if self.free is not None:
            chosen[self.free] = draw_by_sum(p[self.free], self.uniform[:, place])
        if self.everyone:
            ids, q = chosen, p
        else:
            ids = logits.argmax(-1).index_copy_(0, self.drawn, chosen)
            q = p.new_zeros(logits.shape).index_copy_(0, self.drawn, p)
        if self.free is not None:
            self.q.append(q)
        return ids


class StaticRows:
    """`width` numbers of each of B requests, `values [width, B]`, at a fixed address."""

    def __init__(self, width: int, requests: int, dtype: torch.dtype, device: torch.device):
        pin = device.type == "cuda"
        self._host = torch.zeros(width, requests, dtype=dtype, pin_memory=pin)
        self.values = self._host.to(device)

    def fill(self, rows: list) -> None:
        """One row of numbers a request; requests beyond those given repeat the first."""
        rows = rows + rows[:1] * (self._host.shape[1] - len(rows))
        self._host.copy_(torch.tensor(rows, dtype=self._host.dtype).T)
        self.values.copy_(self._host, non_blocking=True)


class StaticChances:
    """The same for B requests in buffers at fixed addresses, for a CUDA graph.

    `kind` says what is prepared for besides greedy requests: any of SEEDED, FREE and FILTERS.
    """

    def __init__(
        self, kind: frozenset[int], requests: int, length: int, vocab: int, device: torch.device
    ):
        self.kind, self.length, self.vocab = kind, length, vocab
        self._whole = StaticRows(4, requests, torch.long, device)
        self._real = StaticRows(4, requests, torch.float32, device)
        self.whole, self.real = self._whole.values, self._real.values
        self.q: list[torch.Tensor] = []

    def fill(self, seqs: list) -> None:
        """Take these requests; rows beyond them repeat the first."""
        if not self.kind:
            return
        whole, real = [], []
        for seq in seqs:
            whole.append((way(seq.params), seq.seed, len(seq.tokens), fresh_position(seq)))
            real.append((seq.params.temperature, *filters_of(seq.params, self.vocab)))
        self._whole.fill(whole)
        self._real.fill(real)

    def begin(self) -> None:
        """First of what a graph records: the noise of all places."""
        self.q = []
        _, seeds, positions, fresh = self.whole
        if SEEDED in self.kind:
            self.noise = noises(seeds, positions, self.length, self.vocab)
        if FREE in self.kind:
            self.uniform = uniforms(seeds, fresh, self.length)

    def draw(self, place: int, logits: torch.Tensor) -> torch.Tensor:
        """As `Chances.draw`."""
        ids = logits.argmax(-1)
        if not self.kind:
            return ids
        ways, temperatures = self.whole[0], self.real[0]
        p = softmax_at(logits, temperatures)
        if FILTERS in self.kind:
            p = keep_likeliest(p, *self.real[1:])
        if SEEDED in self.kind:
            ids = torch.where(ways == SEEDED, (p / self.noise[:, place]).argmax(-1), ids)
        if FREE in self.kind:
            ids = torch.where(ways == FREE, draw_by_sum(p, self.uniform[:, place]), ids)
            self.q.append(p)
        return ids


def kind_of(seqs: list) -> frozenset[int]:
    """What the requests of a batch need besides a greedy choice."""
    needs = {way(seq.params) for seq in seqs} - {GREEDY}
    if any(seq.params.filters and not seq.params.greedy for seq in seqs):
        needs.add(FILTERS)
    return frozenset(needs)


def uniforms(seeds: torch.Tensor, positions: torch.Tensor, length: int) -> torch.Tensor:
    """`[B, G]` for `seeds [B]` and the first `positions [B]`."""
    places = torch.arange(length, device=seeds.device)
    return uniform_noise(seeds[:, None], positions[:, None] + places, DRAFT, seeds.device)


def noises(seeds: torch.Tensor, positions: torch.Tensor, length: int, vocab: int) -> torch.Tensor:
    """The target's own noise at G positions from `positions [B]` on, `[B, G, V]`."""
    places = torch.arange(length, device=seeds.device)
    positions = (positions[:, None] + places).flatten()
    seeds = seeds[:, None].expand(-1, length).flatten()
    return exponential_noise(seeds, positions, vocab, seeds.device).unflatten(0, (-1, length))
