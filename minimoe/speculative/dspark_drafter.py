"""`DSparkDrafter`: DSpark behind the engine's `Drafter` interface.

One pass of the backbone for all requests, then the draws from left to right: each token's Markov
bias needs the token before it, the large product with the output head does not.
"""

from dataclasses import dataclass

import torch

from minimoe.speculative.calibration import Calibration, best_odds
from minimoe.speculative.chances import Chances
from minimoe.speculative.drafter import Draft, Drafter
from minimoe.speculative.serving_dspark import ServingDSpark


@dataclass
class Guess:
    """What one pass gives, before calibration."""

    ids: torch.Tensor  # [B, G]
    confidence: torch.Tensor  # [B, G] logits of the confidence head
    odds: torch.Tensor | None  # [B, G] of each place's likeliest token
    q: torch.Tensor | None  # [B, G, V]


class DSparkDrafter(Drafter):
    """Drafts `length` tokens, at most the block it was trained for; the block is always whole.

    `calibration` turns confidence logits into probabilities; without one a sigmoid does.
    """

    def __init__(
        self,
        served: ServingDSpark,
        length: int,
        name: str = "dspark",
        calibration: Calibration | None = None,
    ):
        self.served, self.length, self.name = served, length, name
        self.block, self.taps = served.length, tuple(served.taps)
        self.plane = (served.layers, served.width)
        self.calibration = calibration or Calibration.none(length)

    @property
    def places(self) -> int:
        """How many of the block's places are drawn from in the next pass."""
        return min(self.length, self.wanted or self.length)

    def attach(self, plane: torch.Tensor) -> None:
        self.pages = self.served.pages(plane)

    def observe(self, step) -> None:
        self.served.inject(step.taps, step.positions, step.slots, self.pages)

    def propose(self, seqs: list, step) -> Draft:
        device = step.positions.device
        anchors = torch.tensor([seq.tokens[-1] for seq in seqs], device=device)
        vocab = self.served.target.config.vocab_size
        params = [seq.params for seq in seqs]
        chances = Chances(seqs, self.places, vocab, device)
        guess = self.guess(anchors, step, chances, self.calibration.needs_odds(params))
        return self.calibrated(params, guess)

    @torch.inference_mode()
    def guess(self, anchors: torch.Tensor, step, chances, with_odds: bool) -> Guess:
        """Blocks behind `anchors [B]`; `chances` draws. The same calls whatever the tokens are, so
        that a CUDA graph can record them."""
        served, G = self.served, chances.length
        hidden = served.backbone(anchors, step, self.pages)[:, :G]  # [B, G, D]
        logits = served.base_logits(hidden)  # [B, G, V]
        tokens = [anchors]
        for place in range(G):
            own, bias = logits[:, place], served.bias(tokens[-1])
            if bias is not None:
                own += bias
            tokens.append(chances.draw(place, own))
        before = torch.stack(tokens[:-1], 1).flatten()  # [B * G]
        return Guess(
            ids=torch.stack(tokens[1:], 1),
            confidence=served.confidence(hidden.flatten(0, 1), before).view(-1, G),
            odds=best_odds(logits) if with_odds else None,
            q=torch.stack(chances.q, 1) if chances.q else None,
        )

    def calibrated(self, params: list, guess: Guess) -> Draft:
        """The guess as the engine wants it."""
        confidence = self.calibration.apply(guess.confidence.float(), params, guess.odds)
        return Draft(guess.ids, [guess.ids.shape[1]] * len(params), guess.q, confidence)
