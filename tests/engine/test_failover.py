"""Ranks that die in the middle of service: every request ends as if nothing had happened."""

import os
import random
import time

import pytest
from ep_runs import GREEDY, PROMPTS, alone, run_with, tokens

from minimoe import LLM
from minimoe.parallel.placement import balance


def pids_gone(pids) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(os.path.exists(f"/proc/{pid}") for pid in pids):
            return True
        time.sleep(0.05)
    return False


def lose_one_of_four(step: int, victim: int) -> None:
    """SIGKILL at a step: all requests end with the tokens they would have had."""
    llm = LLM("tiny-moe", device="cpu", expert_parallel_size=4)
    pids = llm.engine.ranks.pids
    assert run_with(llm, {step: lambda: llm.engine.ranks.kill(victim)}) == alone()
    (failover,) = llm.engine.failovers
    assert failover.size == 3 and victim in failover.lost
    assert failover.seconds < 30
    assert tokens(llm.generate(PROMPTS[:4], GREEDY)) == alone()[:4]
    llm.close()
    assert pids_gone(pids)


def test_a_rank_dies_in_the_middle():
    lose_one_of_four(11, 2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_a_rank_dies_at_a_random_step(seed):
    draw = random.Random(seed)
    lose_one_of_four(draw.randrange(1, 32), draw.randrange(4))


def test_drafts_are_checked_together_and_a_rank_dies_in_a_rebalance():
    """Ranks draft by themselves and check in the same pass."""
    spec = {"method": "prompt_lookup", "num_speculative_tokens": 3}
    llm = LLM("tiny-moe", device="cpu", expert_parallel_size=2, speculative_config=spec)
    outputs = llm.generate(PROMPTS, GREEDY)
    assert tokens(outputs) == alone()
    assert sum(out.metrics.accepted for out in outputs) > 0
    better = balance(llm.engine.expert_load(), 2, 64)

    def lose_one_while_experts_move():
        llm.engine.ranks.kill(0)
        llm.engine.rebalance(better)

    assert run_with(llm, {5: lose_one_while_experts_move}) == alone()
    assert llm.engine.failovers[0].size == 1
    llm.close()


def test_a_rank_dies_just_before_a_rebalance_by_load():
    """64 experts on 3 ranks take 66 slots, on 2 ranks 64: the number must be that of the ranks
    that are left."""
    llm = LLM("tiny-moe", device="cpu", expert_parallel_size=3,
              expert_parallel_config={"rebalance_every": 2})  # fmt: skip
    assert run_with(llm, {5: lambda: llm.engine.ranks.kill(1)}) == alone()
    assert [failover.size for failover in llm.engine.failovers] == [2]
    assert llm.engine.placement.slots.shape[1] == 64
    llm.close()
