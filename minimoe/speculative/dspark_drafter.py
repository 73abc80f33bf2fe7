"""`DSparkDrafter`: DSpark behind the engine's `Drafter` interface.

One pass of the backbone for all requests, then the draws from left to right: each token's Markov
bias needs the token before it, the large product with the output head does not.
"""

import torch

from minimoe.ops.sampling import draw_by_sum, exponential_noise, probabilities, uniform_noise
from minimoe.speculative.calibration import best_odds
from minimoe.speculative.drafter import Draft, Drafter
from minimoe.speculative.serving_dspark import ServingDSpark

DRAFT = 2  # the stream of noise that drafts are drawn with; acceptance has another


class Chances:
    """How the requests of one batch draw their drafts, with noise for all G places.

    Greedy: the likeliest. Seeded: with the very noise that the target will draw with, so that both
    mostly draw the same. Others: with fresh noise each time, and q is kept.
    """

    def __init__(self, seqs: list, length: int, vocab: int, device):
        drawn = [row for row, seq in enumerate(seqs) if not seq.params.greedy]
        free = [i for i, row in enumerate(drawn) if seqs[row].params.seed is None]
        seeded = [i for i, row in enumerate(drawn) if seqs[row].params.seed is not None]
        self.params = [seqs[row].params for row in drawn]
        self.everyone = len(drawn) == len(seqs)
        self.drawn, self.free, self.seeded = (
            torch.tensor(rows, dtype=torch.long, device=device) if rows else None
            for rows in (drawn, free, seeded)
        )
        self.q: list[torch.Tensor] = []
        if free:
            seeds, at = _keys([seqs[drawn[i]] for i in free], length, fresh=True)
            self.uniform = uniform_noise(seeds, at, DRAFT, device)  # [free, G]
        if seeded:
            seeds, at = _keys([seqs[drawn[i]] for i in seeded], length)
            noise = exponential_noise(seeds.flatten(), at.flatten(), vocab, device)
            self.noise = noise.unflatten(0, (len(seeded), length))  # [seeded, G, V]

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


def _keys(seqs: list, length: int, fresh: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Seeds and positions `[B, G]` that key the noise; `fresh`: never the same twice, although a
    position may be guessed several times."""
    seeds = torch.tensor([seq.seed for seq in seqs])[:, None].expand(-1, length)
    first = [len(seq.tokens) + (seq.metrics.drafted << 32 if fresh else 0) for seq in seqs]
    return seeds, torch.tensor(first)[:, None] + torch.arange(length)


class DSparkDrafter(Drafter):
    """Drafts `length` tokens, at most the block it was trained for; the block is always whole.

    `calibration` turns confidence logits `[B, G]` and the requests' params into probabilities;
    without one a sigmoid does.
    """

    def __init__(self, served: ServingDSpark, length: int, name: str = "dspark", calibration=None):
        self.served, self.length, self.name = served, length, name
        self.block, self.taps = served.length, tuple(served.taps)
        self.plane = (served.layers, served.width)
        self.calibration = calibration

    def attach(self, plane: torch.Tensor) -> None:
        self.pages = self.served.pages(plane)

    def observe(self, step) -> None:
        self.served.inject(step.taps, step.positions, step.slots, self.pages)

    @torch.inference_mode()
    def propose(self, seqs: list, step) -> Draft:
        served, G = self.served, self.length
        anchors = torch.tensor([seq.tokens[-1] for seq in seqs], device=step.positions.device)
        hidden = served.backbone(anchors, step, self.pages)[:, :G]  # [B, G, D]
        base = served.base_logits(hidden)  # [B, G, V]
        chances = Chances(seqs, G, base.shape[2], base.device)
        tokens, seen = [anchors], []
        for place in range(G):
            bias = served.bias(tokens[-1])
            seen.append(base[:, place] if bias is None else base[:, place] + bias)
            tokens.append(chances.draw(place, seen[-1]))
        before = torch.stack(tokens[:-1], 1).flatten()  # [B * G]
        confidence = served.confidence(hidden.flatten(0, 1), before).view(-1, G)
        return Draft(
            torch.stack(tokens[1:], 1),
            [G] * len(seqs),
            torch.stack(chances.q, 1) if chances.q else None,
            self._calibrated(confidence, seen, seqs),
        )

    def _calibrated(self, confidence: torch.Tensor, logits: list, seqs: list) -> torch.Tensor:
        """Probabilities `[B, G]` from the head's logits and, for G places, `logits [B, V]`."""
        if self.calibration is None:
            return confidence.sigmoid()
        params = [seq.params for seq in seqs]
        wanted = self.calibration.needs_odds(params)
        odds = best_odds(torch.stack(logits, 1)) if wanted else None
        return self.calibration.apply(confidence, params, odds)
