"""Draft and verify, many sequences at once: what a drafter is worth, measured.

The same rules as the engine's, in their plainest form. Every pass drafts G tokens for each
sequence, runs the target over the anchor and the drafts, keeps the drafts up to the first that is
refused and adds one token of the target's own (Leviathan et al., arXiv 2211.17192).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from minimoe.engine.admission import BLOCK_SIZE
from minimoe.model.serving import ServingModel
from minimoe.speculative.calibration import best_odds
from minimoe.speculative.serving_dspark import ServingDSpark
from minimoe.training.drafter_rows import PagedRows


@dataclass
class Passes:
    """What happened, one row for each pass of each sequence, in order of sequences, then passes.

    `ids [B, P + new_tokens]` are the texts. Columns of the passes, `[N]`: `sequence`, `turn`,
    `accepted` of G drafts, `start` (position of the anchor), `confidence [N, G]` (logits), and
    `odds [N, G]` of the draft's likeliest token.
    """

    ids: Tensor
    sequence: Tensor
    turn: Tensor
    start: Tensor
    accepted: Tensor
    confidence: Tensor
    odds: Tensor


class DraftLoop:
    """B prompts of equal length, continued by `new_tokens` at one temperature (0 or above)."""

    def __init__(
        self, model: ServingModel, drafter: ServingDSpark, prompts: Tensor, new_tokens: int,
        temperature: float = 0.0,
    ):  # fmt: skip
        self.model, self.drafter, self.temperature = model, drafter, temperature
        self.first = prompts.shape[1] - 1  # position of the first anchor
        self.last = self.first + new_tokens
        G, rows = drafter.length, len(prompts)
        self.paged = PagedRows(model, rows, self.last + 2 * G + 2)
        shape = (drafter.layers, self.paged.blocks, BLOCK_SIZE, drafter.width)
        plane = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self.draft_pages = drafter.pages(plane)
        self.ids = torch.zeros(rows, self.paged.length, dtype=torch.long, device=model.device)
        self.ids[:, : self.first + 1] = prompts.to(model.device)
        self.computed = torch.zeros(rows, 1, dtype=torch.long, device=model.device)  # p

    @torch.inference_mode()
    def run(self, seed: int = 0) -> Passes:
        """Until every sequence has its tokens."""
        torch.manual_seed(seed)
        self._prefill()
        log, turn = [], 0
        while bool((self.computed < self.last).any()):
            log.append(self._turn(turn))
            turn += 1
        columns = [torch.cat(column) for column in zip(*log, strict=True)]
        sequence, turn_of, *_ = columns
        order = torch.argsort(sequence * turn + turn_of)
        columns = [column[order].cpu() for column in columns]
        return Passes(self.ids[:, : self.last + 1].cpu(), *columns)

    def _prefill(self) -> None:
        for _ in range(self.first):
            self._compute(self.ids.gather(1, self.computed))
            self.computed += 1

    def _compute(self, ids: Tensor) -> Tensor:
        """The target over `ids [B, L]` from the computed positions on; gives logits."""
        positions = self.computed + torch.arange(ids.shape[1], device=ids.device)
        step = self.paged.step(ids, positions)
        logits, taps = self.paged.run(step, self.drafter.taps)
        self.drafter.inject(taps, step.positions, step.slots, self.draft_pages)
        return logits

    def _turn(self, turn: int) -> tuple[Tensor, ...]:
        anchors, active = self.ids.gather(1, self.computed)[:, 0], self.computed[:, 0] < self.last
        drafts, q, confidence, odds = self._draft(anchors)
        p = self._probabilities(self._compute(torch.cat([anchors[:, None], drafts], 1)))
        accepted = self._accept(drafts, p, q)  # [B]
        start = self.computed[:, 0].clone()
        self._append(drafts, accepted, self._bonus(accepted, p, q), active)
        rows = active.nonzero()[:, 0]
        turns = torch.full_like(rows, turn)
        return rows, turns, start[rows], accepted[rows], confidence[rows], odds[rows]

    def _draft(self, anchors: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Ids `[B, G]`, what they were drawn from `[B, G, V]`, confidence logits and the odds of
        the likeliest token, both `[B, G]`."""
        G, drafter = self.drafter.length, self.drafter
        positions = self.computed + torch.arange(G, device=anchors.device)
        lengths = (self.computed + G).expand(-1, G)
        step = self.paged.step(positions, positions, lengths)
        hidden = drafter.backbone(anchors, step, self.draft_pages)
        previous, ids, q, confidence, odds = anchors, [], [], [], []
        for k in range(G):
            confidence.append(drafter.confidence(hidden[:, k], previous))
            logits = drafter.logits(hidden[:, k], previous)
            odds.append(best_odds(logits))
            q.append(self._probabilities(logits))
            previous = self._draw(q[-1])
            ids.append(previous)
        sure = torch.stack(confidence, 1).float(), torch.stack(odds, 1)
        return torch.stack(ids, 1), torch.stack(q, 1), *sure

    def _probabilities(self, logits: Tensor) -> Tensor:
        """One-hot at temperature 0."""
        if self.temperature == 0:
            return torch.zeros_like(logits, dtype=torch.float32).scatter_(
                -1, logits.argmax(-1, keepdim=True), 1.0
            )
        return torch.softmax(logits.float() / self.temperature, -1)

    def _draw(self, p: Tensor) -> Tensor:
        """One id from each row of `p [B, V]`."""
        return (p / torch.empty_like(p).exponential_()).argmax(-1)

    def _accept(self, drafts: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """How many of the drafts stand: each with chance min(1, p / q) if all before it did."""
        chosen = drafts[..., None]
        ratio = p[:, :-1].gather(-1, chosen) / q.gather(-1, chosen)  # [B, G, 1]
        stands = torch.rand_like(ratio) < ratio
        return stands[..., 0].long().cumprod(1).sum(1)

    def _bonus(self, accepted: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """The token after the accepted ones: from max(0, p - q) where a draft was refused."""
        rows, G = torch.arange(len(p), device=p.device), self.drafter.length
        at = p[rows, accepted]  # [B, V]
        refused = q[rows, accepted.clamp_max(G - 1)] * (accepted < G)[:, None]
        left = (at - refused).clamp_min(0)
        return self._draw(torch.where(left.sum(-1, keepdim=True) > 0, left, at))

    def _append(self, drafts: Tensor, accepted: Tensor, bonus: Tensor, active: Tensor) -> None:
        """Write the new tokens behind the anchors; rows that are done stay as they are."""
        count = torch.arange(drafts.shape[1] + 1, device=drafts.device)
        new = torch.where(count < accepted[:, None], torch.cat([drafts, bonus[:, None]], 1), 0)
        new = new.scatter(1, accepted[:, None], bonus[:, None])  # [B, G + 1]
        places = self.computed + 1 + count
        kept = self.ids.gather(1, places)
        self.ids.scatter_(1, places, torch.where(active[:, None], new, kept))
        self.computed += torch.where(active, accepted + 1, 0)[:, None]
