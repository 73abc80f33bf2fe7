"""`Engine`: add requests, call `step` until none is left. One step is one forward pass."""

import math
import time

import torch

from minimoe.engine.admission import BLOCK_SIZE, Admission
from minimoe.engine.block_pool import BlockPool
from minimoe.engine.outputs import RequestOutput
from minimoe.engine.runner import Runner
from minimoe.engine.sampler import sample, top_logprobs
from minimoe.engine.scheduler import Scheduled, Scheduler
from minimoe.engine.sequence import Sequence
from minimoe.engine.speculation import Speculation
from minimoe.kvstore.reuse import make_reuse
from minimoe.model.serving import ServingModel
from minimoe.speculative.drafter import Drafter
from minimoe.tokenizer import Tokenizer


class Engine(Admission):
    """Continuous batching over one model. Not safe for calls from several threads at once."""

    def __init__(
        self,
        model: ServingModel,
        tokenizer: Tokenizer,
        *,
        max_model_len: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        num_blocks: int,
        seed: int,
        enable_prefix_caching: bool = True,
        fingerprint: str = "",
        kv_store=None,
        drafter: Drafter | None = None,
        make_budget=None,
    ):
        self.pool = BlockPool(num_blocks)
        scheduler = Scheduler(self.pool, BLOCK_SIZE, max_num_seqs, max_num_batched_tokens)
        super().__init__(scheduler, tokenizer, model.config, max_model_len, num_blocks, seed)
        eos = model.config.eos_token_id
        self.eos_ids = set(eos if isinstance(eos, list) else [eos])
        self.runner = Runner(model, num_blocks, BLOCK_SIZE, max_model_len, max_num_seqs, drafter)
        self.speculation = None
        if drafter:
            self.speculation = Speculation(drafter, make_budget, self.scheduler, self.runner)
        self.reuse = None
        if enable_prefix_caching:
            planes = self.runner.kv
            self.reuse = make_reuse(self.pool, planes, fingerprint, BLOCK_SIZE, kv_store)
        self.scheduler.reuse = self.reuse

    def _end(self, seq: Sequence, reason: str) -> None:
        super()._end(seq, reason)
        if self.speculation:
            self.speculation.drafter.forget(seq)

    def close(self) -> None:
        """Write what is still to be stored and end the store's writer. Only a store needs it."""
        if self.reuse:
            self.reuse.close()

    def step(self) -> list[RequestOutput]:
        """One forward pass; gives the requests that got a token, finished ones for the last time.

        A request whose logits are not numbers ends with finish reason "error"; the others go on.
        Should anything else fail, the step's requests are aborted before the exception goes on.
        """
        if self.speculation:
            self._draft()
        scheduled = self.scheduler.schedule()
        if not scheduled:
            return []
        try:
            return self._run(scheduled)
        except BaseException:
            self.abort_requests([seq.request_id for seq, _ in scheduled])
            raise

    def _draft(self) -> None:
        try:
            self.speculation.draft()
        except BaseException:
            self.abort_requests([seq.request_id for seq in self.scheduler.running])
            raise

    def _run(self, scheduled: Scheduled) -> list[RequestOutput]:
        start = time.perf_counter()
        self.runner.clear(self.scheduler.take_new_blocks())
        if self.speculation:
            self.speculation.start_step(scheduled)
        logits, finishing = self.runner.run(scheduled)
        for seq, count in scheduled:
            seq.num_computed += count - len(seq.draft)  # which of those stay is not known yet
            seq.metrics.steps += 1
        if self.reuse:
            self.reuse.name_blocks([seq for seq, _ in scheduled])
        outputs = self._add_tokens(logits, finishing) if finishing else []
        if self.speculation:
            self.speculation.end_step()
        if self.reuse:
            tokens, seconds = sum(count for _, count in scheduled), time.perf_counter() - start
            self.reuse.end_step(tokens, seconds, idle=not self.scheduler.has_unfinished)
        return outputs

    def _add_tokens(self, logits: torch.Tensor, finishing: list[Sequence]) -> list[RequestOutput]:
        logits, finishing, broken = self._split_broken(logits, finishing)
        outputs = self._append_tokens(logits, finishing) if finishing else []
        return outputs + [self._end_broken(seq) for seq in broken]

    def _append_tokens(self, logits: torch.Tensor, seqs: list[Sequence]) -> list[RequestOutput]:
        made = (
            self.speculation.tokens(logits, seqs) if self.speculation else self._draw(logits, seqs)
        )
        now = time.perf_counter()
        outputs, row = [], 0
        for seq, tokens in zip(seqs, made, strict=True):
            drafts = len(seq.draft)
            outputs.append(self._append(seq, tokens, logits[row : row + 1 + drafts], now))
            row += 1 + drafts
        return outputs

    def _append(self, seq: Sequence, tokens: list[int], logits, now: float) -> RequestOutput:
        """Add what a step gave a request, up to where it ends; `logits` has a row a token."""
        request, before, reason = self._requests[seq.request_id], len(seq.tokens), None
        seq.metrics.first_token = seq.metrics.first_token or now
        for row, token in enumerate(tokens):
            if seq.params.logprobs is not None:
                seq.logprobs.append(top_logprobs(logits[row], token, seq.params.logprobs))
            seq.tokens.append(token)
            reason = self._finish_reason(seq, token, request.text.push(token))
            if reason:
                break
        if seq.draft:
            self._keep_drafts(seq, min(len(tokens) - 1, len(seq.tokens) - before))
        if reason:
            request.text.finish()
            seq.metrics.finished = now
            self._end(seq, reason)
        return request.output()

    def _keep_drafts(self, seq: Sequence, accepted: int) -> None:
        """Drafts that stayed are computed; the last token never is."""
        seq.metrics.count_draft(len(seq.draft), accepted)
        seq.num_computed = len(seq.tokens) - 1
        if self.reuse and accepted:
            self.reuse.name_blocks([seq])

    def _finish_reason(self, seq: Sequence, token: int, stopped: bool) -> str | None:
        params = seq.params
        if stopped or token in params.stop_token_ids:
            return "stop"
        if token in self.eos_ids and not params.ignore_eos:
            return "stop"
        return "length" if len(seq.tokens) >= seq.max_total else None

    def _split_broken(self, logits: torch.Tensor, seqs: list[Sequence]):
        """Rows of finite logits with their requests, and the requests of the others. One with
        guesses gets another chance: a wrong guess may be what spoilt its rows."""
        if math.isfinite(logits.sum().item()):
            return logits, seqs, []
        good = torch.isfinite(logits).all(-1).tolist()
        rows, kept, broken, row = [], [], [], 0
        for seq in seqs:
            count = 1 + len(seq.draft)
            if all(good[row : row + count]):
                kept.append(seq)
                rows += range(row, row + count)
            elif seq.draft:
                self._compute_again(seq)
            else:
                broken.append(seq)
            row += count
        return logits[torch.tensor(rows, dtype=torch.long, device=logits.device)], kept, broken

    def _compute_again(self, seq: Sequence) -> None:
        """Take the step back for one request; its next one goes without guesses."""
        seq.num_computed -= 1
        first = seq.num_computed
        self.runner.clear_positions(seq, first, first + 1 + len(seq.draft))
        if self.reuse and seq.num_named > first // BLOCK_SIZE:
            self.reuse.discard(seq.blocks[first // BLOCK_SIZE : seq.num_named])
            seq.num_named = first // BLOCK_SIZE
        self.speculation.pause(seq)

    def _end_broken(self, seq: Sequence) -> RequestOutput:
        """Its KV rows may not be numbers either: nobody may find them as a prefix."""
        request = self._requests[seq.request_id]
        if self.reuse:
            self.reuse.discard(seq.blocks)
        self._end(seq, "error")
        return request.output()

    def _draw(self, logits: torch.Tensor, seqs: list[Sequence]) -> list[list[int]]:
        """One token for each request."""
        params, seeds = [seq.params for seq in seqs], [seq.seed for seq in seqs]
        if self.runner.check_graphs and not all(one.greedy for one in params):
            return self.runner.check_graphs.run(logits, seqs)
        positions = [len(seq.tokens) for seq in seqs]
        return [[token] for token in sample(logits, params, seeds, positions).tolist()]
