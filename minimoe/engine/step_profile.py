"""`Rounds`: made-up requests, to time what a round of this engine takes, drafting included."""

import random
import time

from minimoe.engine.block_pool import BlockPool
from minimoe.engine.params import SamplingParams
from minimoe.engine.runner import Runner
from minimoe.engine.sampler import sample
from minimoe.engine.sequence import Sequence
from minimoe.speculative.profile import profile
from minimoe.speculative.step_times import StepTimes

CONTEXT = 128  # computed tokens of each request
GROWTH = 4  # from one number of requests to the next


class Rounds:
    """Decode requests with random tokens, whose KV all lies in one borrowed block."""

    def __init__(self, runner: Runner, pool: BlockPool):
        self.runner, self.pool = runner, pool
        self.random = random.Random(0)
        self.block = pool.allocate()

    def close(self) -> None:
        """Give the block back, empty."""
        self.runner.clear([self.block])
        self.pool.release([self.block])

    def measure(self, requests: int, checks: list[int] | None) -> float:
        """Seconds of one round: a plain step, or draft and then check so many of each request."""
        seqs = [self._request(i) for i in range(requests)]
        start = time.perf_counter()
        if checks is not None:
            ids = self.runner.draft(seqs).ids.tolist()
            for seq, guess, count in zip(seqs, ids, checks, strict=True):
                seq.draft = guess[:count]
        logits, _ = self.runner.run([(seq, 1 + len(seq.draft)) for seq in seqs])
        rows, zeros = len(logits), [0] * len(logits)
        sample(logits, [seqs[0].params] * rows, zeros, zeros).tolist()
        seconds = time.perf_counter() - start
        for seq in seqs:
            self.runner.drafter.forget(seq)
        return seconds

    def _request(self, number: int) -> Sequence:
        size, width = self.runner.block_size, self.runner.drafter.block
        context = min(CONTEXT, self.runner.max_model_len // 2)
        vocab = self.runner.model.config.vocab_size
        seq = Sequence(
            request_id=f"profile-{number}",
            prompt_ids=[self.random.randrange(vocab) for _ in range(context + 1)],
            params=SamplingParams(temperature=0.0),
            seed=0,
            max_total=self.runner.max_model_len,
        )
        seq.num_computed = context
        reach = context + 1 + max(width, self.runner.drafter.length)
        seq.blocks = [self.block] * -(-reach // size)
        return seq


def profile_steps(runner: Runner, pool: BlockPool, max_num_seqs: int, budget: int) -> StepTimes:
    """Time this engine for up to `max_num_seqs` requests and `budget` tokens in a step."""
    length = runner.drafter.length
    most = max(1, min(max_num_seqs, budget // (1 + length)))
    stairs = runner.graphs.sizes if runner.graphs else ()
    steps = stairs or [GROWTH**i for i in range(10)]  # each captured size costs its own
    sizes = sorted({size for size in steps if size < most} | {most})
    rounds = Rounds(runner, pool)
    try:
        return profile(rounds.measure, sizes, length, stairs)
    finally:
        rounds.close()
