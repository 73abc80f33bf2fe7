"""`Drafter`: whoever guesses the next tokens. The engine knows this interface and no drafter."""

from dataclasses import dataclass

import torch


@dataclass
class Draft:
    """Guesses for B requests, G places each, of which the first `lengths[b]` were guessed."""

    ids: torch.Tensor  # [B, G] long
    lengths: list[int]
    probs: torch.Tensor | None = None  # [B, G, V] what they were drawn from; None: no chance in it
    confidence: torch.Tensor | None = None  # [B, G] P(stays | those before it stay)


class Drafter:
    """Base class: a drafter that needs nothing of the target and guesses nothing.

    A request here is the engine's `Sequence`: `tokens` (prompt and output), `num_computed`,
    `params`, `seed`, `metrics`. Texts stay right whatever a drafter proposes, as long as `probs`
    is what it drew from.
    """

    name = "none"  # goes into the fingerprint of stored KV
    length = 0  # G, guesses for each request at most
    wanted: int | None = None  # set before each `propose`: fewer will do; None: all
    block = 0  # positions of its plane that one pass takes, at least `length`
    plane: tuple[int, int] | None = None  # (layers, width) of its own KV, if it keeps any
    taps: tuple[int, ...] = ()  # target layers after which it wants the residual stream

    def attach(self, plane: torch.Tensor | None) -> None:
        """Once, before all else: its KV plane `[layers, blocks, block_size, width]`."""

    def observe(self, step) -> None:
        """After each forward pass: note what it needs of the tokens just computed; with `taps`,
        `step.taps [T, taps * D]` is filled. Rows of drafts that do not stay are written again
        later. A CUDA graph records the call: what it does to tensors is done again, no more."""

    def propose(self, seqs: list, step) -> Draft:
        """Guess what follows `tokens` of each request; all but the last are computed. `step` is a
        pass of `block` tokens for each, at the positions from `num_computed`, for drafters with
        a plane; None for others."""
        ids = torch.zeros(len(seqs), max(1, self.length), dtype=torch.long)
        return Draft(ids, [0] * len(seqs))

    def learn(self, seq, checked: int, accepted: int) -> None:
        """How the last guess for one request went."""

    def forget(self, seq) -> None:
        """The request has ended."""
