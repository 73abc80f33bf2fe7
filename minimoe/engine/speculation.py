"""`Speculation`: what the engine does around a step when a drafter runs.

Before scheduling, `draft` lets the drafter guess for every request in decode and the budget say how
many guesses are checked; they wait in `Sequence.draft`. The step computes them behind the newest
token. `tokens` then says which tokens the step gives each request, and `end_step` tells budget and
drafter how it went.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch

from minimoe.engine.plug_in_answers import checked_draft, counts_of, known_tokens, planned
from minimoe.engine.runner import Runner
from minimoe.engine.sampler import probabilities, sample
from minimoe.engine.scheduler import Scheduled, Scheduler
from minimoe.engine.sequence import Sequence
from minimoe.engine.step_profile import profile_steps
from minimoe.speculative.acceptance import Block, check_block, matching
from minimoe.speculative.chances import FREE, way
from minimoe.speculative.drafter import Draft, Drafter
from minimoe.speculative.step_times import StepTimes


@dataclass
class Round:
    """One drafted step in progress."""

    start: float
    draft: Draft | None = None
    rows: dict[Sequence, int] | None = None  # each request's row in the draft
    checked: tuple[list[int], list[int]] = ((), ())  # drafts checked and kept, by request
    requests: int = 0
    tokens: int = 0
    decoding: bool = False  # no request computes more than its newest token and drafts


class Speculation:
    """One drafter and one budget, for one engine.

    `make_budget(profile)` gives a `speculative.rules.Rule`, or a function that gives one and is
    called before the first step; `profile()` times the engine.
    """

    def __init__(self, drafter: Drafter, make_budget, scheduler: Scheduler, runner: Runner):
        self.drafter, self.scheduler, self.runner = drafter, scheduler, runner
        self.budget = make_budget(self.profile)
        self.round, self.paused = Round(0.0), set()

    def profile(self) -> StepTimes:
        """What rounds of this engine take now. Some page of the cache is lost for it."""
        scheduler = self.scheduler
        return profile_steps(
            self.runner, scheduler.pool, scheduler.max_num_seqs, scheduler.token_budget
        )

    def draft(self) -> None:
        """Guess for the requests in decode, as far as the budget wants it and tokens are left."""
        if not hasattr(self.budget, "choose"):
            self.budget = self.budget()
        self.round = Round(time.perf_counter())
        for seq in self.scheduler.running:
            seq.draft = []  # a step that failed may have left some
        seqs = [seq for seq in self.scheduler.running if self._could_draft(seq)]
        self.paused.clear()
        if not self._share(len(seqs)):
            return
        length = planned(self.budget.plan(len(seqs)), self.drafter.length) if seqs else 0
        if length == 0:
            return
        block = max(self.drafter.block, length)
        seqs = [seq for seq in seqs if self._make_room(seq, block)]
        self.runner.clear(self.scheduler.take_new_blocks())
        if seqs:
            self._draft(seqs, length)

    def _could_draft(self, seq: Sequence) -> bool:
        """In decode, not about to draw its last token, and not told to go without for once."""
        if seq in self.paused:
            return False
        return seq.num_remaining == 1 and len(seq.tokens) + 1 < seq.max_total

    def _share(self, drafted: int) -> int:
        """Checks of each request that the step can hold beside one token of every running request.
        Were drafts cut after `choose` instead, by what others left, then whether a guess is checked
        would depend on what it is, and the text with it."""
        free = self.scheduler.token_budget - len(self.scheduler.running)
        return max(0, free // max(1, drafted))

    def pause(self, seq: Sequence) -> None:
        """No guesses for the next step of this request."""
        self.paused.add(seq)

    def _make_room(self, seq: Sequence, block: int) -> bool:
        """Blocks for the drafter's own pass, and for the check if there is room."""
        first = seq.num_computed
        if self.scheduler.look_ahead(seq, first + block + 1) >= first + block:
            return True
        return not self.drafter.plane

    def _room(self, seq: Sequence) -> int:
        """Positions behind its newest token for which it has blocks."""
        return len(seq.blocks) * self.runner.block_size - seq.num_computed - 1

    def _draft(self, seqs: list[Sequence], length: int) -> None:
        draft = checked_draft(self.runner.draft(seqs, length), len(seqs))
        most = min(length, self._share(len(seqs)))
        limits = [
            max(0, min(most, made, seq.max_total - 1 - len(seq.tokens), self._room(seq)))
            for seq, made in zip(seqs, draft.lengths, strict=True)
        ]
        confidence = draft.confidence
        if confidence is not None:
            confidence = confidence.detach().cpu().numpy()
        others = self._other_tokens(len(seqs))
        counts = counts_of(self.budget.choose(confidence, list(limits), others), limits)
        ids, vocab = draft.ids.tolist(), self.runner.model.config.vocab_size
        for row, (seq, count) in enumerate(zip(seqs, counts, strict=True)):
            seq.metrics.drafted += max(0, int(draft.lengths[row]))
            seq.draft = known_tokens(ids[row][:count], vocab)
        self.round.draft = draft
        self.round.rows = {seq: row for row, seq in enumerate(seqs)}

    def _other_tokens(self, drafted: int) -> int:
        """Tokens that the step computes besides the newest one of each drafted request."""
        scheduler = self.scheduler
        remaining = sum(seq.num_remaining for seq in scheduler.running)
        starting = scheduler.waiting[: max(0, scheduler.max_num_seqs - len(scheduler.running))]
        remaining += sum(seq.num_remaining for seq in starting)
        return min(remaining, scheduler.token_budget) - min(drafted, scheduler.token_budget)

    def start_step(self, scheduled: Scheduled) -> None:
        """Note what goes into the step."""
        self.round.requests = len(scheduled)
        self.round.tokens = sum(count for _, count in scheduled)
        self.round.decoding = all(count == 1 + len(seq.draft) for seq, count in scheduled)

    def tokens(self, logits: torch.Tensor, seqs: list[Sequence]) -> list[list[int]]:
        """What the step gives each request: the drafts that stay, and one token more.

        `logits [T, V]` has one row for each request and one for each of its drafts.
        """
        counts = [len(seq.draft) for seq in seqs]
        if self.runner.check_graphs and not all(seq.params.greedy for seq in seqs):
            made = self._replay_check(logits, seqs)
            self._note(seqs, counts, [len(tokens) - 1 for tokens in made])
            return made
        starts = np.cumsum([0, *(1 + count for count in counts)]).tolist()
        draws = self._rejecting(seqs)
        if not draws:
            ids = self._sample(logits, seqs, counts).tolist()
            parts = [ids[start : start + 1 + n] for start, n in zip(starts, counts, strict=False)]
        else:
            parts = self._sample_both(logits, seqs, counts, starts, draws)
        made = []
        for seq, part in zip(seqs, parts, strict=True):
            kept = matching(part, seq.draft)
            made.append(part[: kept + 1])
        self._note(seqs, counts, [len(part) - 1 for part in made])
        return made

    def _no_q(self) -> bool:
        return self.round.draft is None or self.round.draft.probs is None

    def _replay_check(self, logits: torch.Tensor, seqs: list[Sequence]) -> list[list[int]]:
        rows = [(self.round.rows or {}).get(seq, 0) for seq in seqs]
        q = None if self._no_q() else self.round.draft.probs
        return self.runner.check_graphs.run(logits, seqs, q, rows)

    def _rejecting(self, seqs: list[Sequence]) -> list[int]:
        """Requests whose drafts were drawn by chance, and not by the noise of a seed."""
        if self._no_q():
            return []
        return [i for i, seq in enumerate(seqs) if seq.draft and way(seq.params) == FREE]

    def _sample(self, logits, seqs: list[Sequence], counts: list[int]) -> torch.Tensor:
        """The plain engine's token at every row."""
        params, seeds, positions = [], [], []
        for seq, count in zip(seqs, counts, strict=True):
            params += [seq.params] * (1 + count)
            seeds += [seq.seed] * (1 + count)
            positions += range(len(seq.tokens), len(seq.tokens) + 1 + count)
        return sample(logits, params, seeds, positions)

    def _sample_both(self, logits, seqs, counts, starts, draws: list[int]) -> list[list[int]]:
        """Requests in `draws` by rejection, the others by match; one transfer to the host."""
        others = [i for i in range(len(seqs)) if i not in set(draws)]
        accepted, last = self._reject(logits, [seqs[i] for i in draws], [starts[i] for i in draws])
        results = [accepted, last]
        if others:
            rows = [r for i in others for r in range(starts[i], starts[i] + 1 + counts[i])]
            part = logits[torch.tensor(rows, device=logits.device)]
            results.append(
                self._sample(part, [seqs[i] for i in others], [counts[i] for i in others])
            )
        ids = torch.cat(results).tolist()
        B, at = len(draws), 2 * len(draws)
        parts: list[list[int]] = [[]] * len(seqs)
        for i, kept, token in zip(draws, ids[:B], ids[B:], strict=False):
            parts[i] = [*seqs[i].draft[:kept], token]
        for i in others:
            parts[i] = ids[at : at + 1 + counts[i]]
            at += 1 + counts[i]
        return parts

    def _reject(self, logits, seqs: list[Sequence], starts: list[int]):
        """Rejection sampling: drafts kept and the token after them, two tensors `[B]`."""
        draft, device = self.round.draft, logits.device
        counts = [len(seq.draft) for seq in seqs]
        spread = [(seq, row) for seq, row, n in zip(seqs, starts, counts, strict=True)
                  for row in range(row, row + 1 + n)]  # fmt: skip
        rows = torch.tensor([row for _, row in spread], device=device)
        p = probabilities(logits[rows], [seq.params for seq, _ in spread])
        firsts = np.cumsum([0, *(1 + n for n in counts)]).tolist()
        G = draft.probs.shape[1]
        meta = [
            [self.round.rows[seq], first, n, seq.seed, len(seq.tokens), *seq.draft, *[0] * (G - n)]
            for seq, first, n in zip(seqs, firsts, counts, strict=False)
        ]
        meta = torch.tensor(meta, device=device)
        own, firsts, counts, seeds, positions = meta[:, :5].unbind(1)
        block = Block(firsts, counts, meta[:, 5:], draft.probs[own])
        return check_block(block, p, seeds, positions)

    def _note(self, seqs: list[Sequence], counts: list[int], kept: list[int]) -> None:
        drafted = [i for i, seq in enumerate(seqs) if self.round.rows and seq in self.round.rows]
        self.round.checked = ([counts[i] for i in drafted], [kept[i] for i in drafted])
        for i in drafted:
            if counts[i]:
                self.drafter.learn(seqs[i], counts[i], kept[i])

    def end_step(self) -> None:
        """After a step: drop what was not checked and tell the budget what the round took."""
        for seq in self.scheduler.running:
            seq.draft = []
        this = self.round
        if this.decoding:
            seconds, drafted = time.perf_counter() - this.start, this.rows is not None
            self.budget.observe(drafted, this.requests, this.tokens, seconds, *this.checked)
