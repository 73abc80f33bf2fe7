"""`Rule`: what an engine asks about its drafts each step. `FixedLength` and `Threshold` are static.

A rule of your own subclasses `Rule`, overrides `choose`, and goes to the engine as
`speculative_config={"method": "dspark", "budget": YourRule(5)}`.
"""

import numpy as np

from minimoe.errors import MinimoeError
from minimoe.speculative.admission import survival

PRIOR_RATE, PRIOR_WEIGHT = 0.7, 8.0  # before any was seen, and worth how many tries
MEMORY = 0.98  # of observed acceptance, per step


class Rule:
    """Drafts `length` tokens a request each step and checks all of them.

    `plan` comes before drafting, `choose` after it, `observe` after the step. To stay exact, what
    `choose` gives for position j of a request must not depend on the token at j or later ones: the
    confidence of position j + 1 does.
    """

    def __init__(self, length: int):
        if not (isinstance(length, int) and length >= 0):
            raise MinimoeError(f"draft length is {length!r}: it must be a whole number from 0 on")
        self.length = length
        self.rates = AcceptanceRates(max(1, length))
        self._uses_rates = True

    @property
    def draft_next(self) -> bool:
        """Whether the next step should draft, if the requests stay as many."""
        return self.length > 0

    def plan(self, requests: int) -> int:
        """How many positions to draft for each of `requests` in the next step; 0: a plain step."""
        return self.length

    def choose(self, confidence, lengths: list[int], plain_tokens: int = 0) -> list[int]:
        """How many leading drafts of each request to check.

        Args:
            confidence: `[B, G]`, the probability that each draft is accepted if all before it are;
                None where the drafter has no such head.
            lengths: how many were drafted for each request, at most G.
            plain_tokens: other tokens in the same pass.
        """
        return list(lengths)

    def observe(self, drafted, requests, tokens, seconds, checked=(), accepted=()) -> None:
        """What the step did: seconds of the whole round, and per request how many drafts were
        checked and accepted."""
        if self._uses_rates:
            self.rates.observe(checked, accepted)

    def survival(self, confidence, lengths: list[int]) -> np.ndarray:
        """`[B, G]`, from the confidences or, without any, from the acceptance seen so far."""
        self._uses_rates = confidence is None
        if confidence is None:
            confidence = np.broadcast_to(self.rates.by_position, (len(lengths), self.rates.length))
        return survival(np.asarray(confidence), lengths)


class FixedLength(Rule):
    """Checks the first `length` drafts of every request; 0 never drafts."""

    def choose(self, confidence, lengths, plain_tokens=0):
        return [min(self.length, drafted) for drafted in lengths]


class Threshold(Rule):
    """Checks the drafts whose survival is at least `limit`, however busy the engine is."""

    def __init__(self, length: int, limit: float):
        super().__init__(length)
        if not 0 <= limit <= 1:
            raise MinimoeError(f"the survival limit is {limit}: it must be between 0 and 1")
        self.limit = limit

    def choose(self, confidence, lengths, plain_tokens=0):
        a = self.survival(confidence, lengths)
        return np.minimum((a >= self.limit).sum(1), lengths).tolist()


class AcceptanceRates:
    """Share of drafts accepted at each position, of those whose prefix was accepted."""

    def __init__(self, length: int):
        self.length = length
        self.tried = np.full(length, PRIOR_WEIGHT)
        self.accepted = np.full(length, PRIOR_WEIGHT * PRIOR_RATE)

    @property
    def by_position(self) -> np.ndarray:
        """Accepted share at each position of a block, of those that were checked there."""
        return self.accepted / self.tried  # [G]

    def observe(self, checked, accepted) -> None:
        """Count one step; what is older counts less and less."""
        if not len(checked):
            return
        places = np.arange(self.length)
        checked, accepted = np.asarray(checked)[:, None], np.asarray(accepted)[:, None]
        reached = (places < checked) & (places <= accepted)  # [B, G]
        prior = (1 - MEMORY) * PRIOR_WEIGHT  # what was never tried again drifts back to it
        self.tried = MEMORY * self.tried + prior + reached.sum(0)
        hits = (reached & (places < accepted)).sum(0)
        self.accepted = MEMORY * self.accepted + prior * PRIOR_RATE + hits
