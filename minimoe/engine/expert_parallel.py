"""The engine in front of P ranks: hands requests out, steps all ranks together, mends the group.

    llm = LLM("tiny-moe", expert_parallel_size=4)

`ParallelEngine` has the face of `Engine`. It holds each request's tokens as they are delivered, so
when a rank dies, everything unfinished is given to the ranks that are left, to go on from there.
"""

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from minimoe.checkpoint import checkpoint_folder
from minimoe.config import ModelConfig
from minimoe.engine import rank_engine
from minimoe.engine.admission import Admission
from minimoe.engine.arguments import checked_length
from minimoe.engine.assigner import Assigner
from minimoe.engine.expert_parallel_config import ExpertParallelConfig
from minimoe.engine.outputs import RequestOutput
from minimoe.engine.rank_engine import Update
from minimoe.engine.wide import is_wide
from minimoe.errors import EngineError, MinimoeError
from minimoe.parallel.placement import Placement, balance, in_order, slots_for
from minimoe.parallel.supervisor import RankError, Ranks, RanksLost
from minimoe.tokenizer import Tokenizer


@dataclass(frozen=True)
class Failover:
    """One loss of ranks: at which step, which ranks, how many were left, and the seconds from the
    start of the step that failed to when the group was ready again."""

    step: int
    lost: list[int]
    size: int
    seconds: float


class ParallelEngine(Admission):
    """`Engine` over P ranks. Its scheduler is an `Assigner`; the ranks have the real ones."""

    def __init__(
        self,
        ranks: Ranks,
        config: ModelConfig,
        tokenizer: Tokenizer,
        settings: ExpertParallelConfig,
        *,
        num_blocks: int,
        placement: Placement,
        start: tuple,
        max_model_len: int,
        seed: int,
    ):
        assigner = Assigner(ranks.size)
        super().__init__(assigner, tokenizer, config, max_model_len, num_blocks, seed)
        self.ranks, self.settings, self.placement = ranks, settings, placement
        self._start = start  # what a rank that must load the model again needs
        self.failovers: list[Failover] = []
        self.steps = 0

    def step(self) -> list[RequestOutput]:
        """One step of all ranks; gives the requests that got tokens.

        When ranks are lost, the group re-forms and the step gives nothing: the next ones go on.
        Raises RankError, with the rank's traceback, when the step failed on a rank; all requests
        are aborted then.
        """
        if not self.has_unfinished_requests():
            return []
        self._mend()
        self.steps += 1
        start = time.perf_counter()
        every = self.settings.rebalance_every
        try:
            if every and self.steps % every == 0:
                self._rebalance_by_load()
            found = self.ranks.call_each(rank_engine.step, self.scheduler.take())
        except RanksLost as error:
            self._fail_over(error.ranks, start)
            return []
        except RankError:
            for request_id in list(self._requests):
                self.abort_request(request_id)
            raise
        updates = [update for one in found for update in one]
        return [self._apply(update) for update in updates if update.request_id in self._requests]

    def _apply(self, update: Update) -> RequestOutput:
        """Take over what a rank did for a request."""
        request, now = self._requests[update.request_id], time.perf_counter()
        seq, mine = request.seq, request.seq.metrics
        for token in update.tokens:
            seq.tokens.append(token)
            request.text.push(token)
        seq.logprobs += update.logprobs
        seq.num_cached = min(update.num_cached, len(seq.prompt_ids))
        first = mine.first_token or (now if update.tokens else None)
        seq.metrics = replace(update.metrics, arrival=mine.arrival, first_token=first)
        if update.finish_reason:
            request.text.finish()
            seq.metrics.finished = now
            seq.finish_reason = update.finish_reason
            self._end(seq, update.finish_reason)
        return request.output()

    def _fail_over(self, lost: list[int], start: float) -> None:
        """Go on with the ranks that are left, and with fewer still if some die meanwhile.

        start: when the step or the rebalance that failed had begun.
        """
        before = self.placement.ranks
        while True:
            size = self.ranks.reform()
            self.placement = self._in_order(size)
            try:
                self.ranks.call(rank_engine.resume, self.placement, *self._start)
                break
            except RanksLost as error:
                lost = lost + error.ranks
        unfinished = sorted(self.scheduler.rank_of, key=lambda seq: seq.arrival)
        self.scheduler.clear(size)
        for seq in unfinished:
            self.scheduler.add(seq)
        seconds = time.perf_counter() - start
        if size < before:
            self.failovers.append(Failover(self.steps, lost, size, seconds))

    def _mend(self) -> None:
        """After an error on a rank: form the group again, with all that are alive."""
        if not self.ranks.whole:
            self._fail_over([], time.perf_counter())

    def _call(self, function, *args) -> list:
        """On all ranks, mending the group before and, should one be lost, after."""
        self._mend()
        try:
            return self.ranks.call(function, *args)
        except RanksLost as error:
            self._fail_over(error.ranks, time.perf_counter())
            return self.ranks.call(function, *args)

    def _in_order(self, size: int) -> Placement:
        layers, experts = self.placement.layers, self.placement.experts
        slots = slots_for(experts, size, self.settings.spare_slots)
        return in_order(layers, experts, size, slots)

    def rebalance(self, placement: Placement) -> None:
        """From the next step on, experts sit as `placement` says; outputs stay the same.

        If a rank dies during it, the group re-forms with a placement of its own. Raises
        MinimoeError for a placement that does not fit.
        """
        self._mend()
        start = time.perf_counter()
        try:
            _told(lambda: self.ranks.call(rank_engine.rebalance, placement))
            self.placement = placement
        except RanksLost as error:
            self._fail_over(error.ranks, start)

    def _rebalance_by_load(self) -> None:
        load = self.expert_load()  # first: should a rank be lost here, size and slots change
        slots = self.placement.slots.shape[1]
        placement = balance(load, self.ranks.size, slots)
        self.ranks.call(rank_engine.rebalance, placement)
        self.placement = placement

    def expert_load(self, reset: bool = False) -> np.ndarray:
        """`[L, E]`: tokens of each expert over the last `window` steps, all ranks together."""
        return sum(self._call(rank_engine.expert_load, reset))

    def step_times(self, reset: bool = True) -> list[dict]:
        """Per rank, since the last reset: steps, seconds, of these own, experts, exchange and
        waiting; rows that its experts computed; bytes by kind, (sent, received); pairs, its own
        (token, expert) pairs by the rank that computes them; itemsize, bytes of one value."""
        return self._call(rank_engine.take_times, reset)

    def time_apart(self, on: bool = True) -> None:
        """Tell waiting from exchange, at the price of one more meeting for each message."""
        self._call(rank_engine.time_apart, on)

    def slow_down(self, rank: int, factor: float) -> None:
        """Make the experts of one rank take `factor` times as long, for real."""
        if not 0 <= rank < self.ranks.size:
            raise MinimoeError(f"rank {rank} is not in 0..{self.ranks.size - 1}: choose another")
        if not factor >= 1:
            raise MinimoeError(f"factor is {factor}: a rank can be slowed 1 time or more")
        self._call(rank_engine.slow, rank, factor)

    def close(self) -> None:
        """Let the ranks write what is still to be stored, and end them."""
        with suppress(EngineError):  # one that cannot has nothing left to write
            if self.ranks.whole:
                self.ranks.call(rank_engine.close)
        self.ranks.close()


def start_parallel(size: int, settings: dict | None, options: dict):
    """Start `size` ranks with these options of `LLM`; gives config, tokenizer and engine.

    Raises MinimoeError for a size, model or setting that cannot be.
    """
    settings = ExpertParallelConfig.of(settings)
    if is_wide(options["model"]):
        raise MinimoeError(
            "the wide model runs in one process: give a checkpoint for several ranks"
        )
    folder = checkpoint_folder(options["model"]).resolve()
    config = ModelConfig.load(folder)
    slots_for(config.n_routed_experts, size, settings.spare_slots)  # fails early if it cannot be
    length = checked_length(options["max_model_len"], config)
    device = str(options["device"]).partition(":")[0]
    start = (options, settings.spare_slots, settings.window)
    ranks = Ranks(size, device, settings.timeout, settings.threads)
    try:
        found = _told(lambda: ranks.call(rank_engine.start, *start))
    except BaseException:
        ranks.close()
        raise
    engine = ParallelEngine(
        ranks,
        config,
        Tokenizer(Path(folder)),
        settings,
        num_blocks=min(one["num_blocks"] for one in found),
        placement=found[0]["placement"],
        start=start,
        max_model_len=length,
        seed=options["seed"],
    )
    return config, engine.tokenizer, engine


def _told(run):
    """Bad input that a rank found is told as such, in one line."""
    try:
        return run()
    except RankError as error:
        if error.kind == "bad input":
            raise MinimoeError(error.reason) from error
        raise
