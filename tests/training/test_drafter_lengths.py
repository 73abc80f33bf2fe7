"""Accepted length by length of the text: look-up replayed, loops found, totals by text."""

import numpy as np
import pytest
import torch
from models import random_model, small_config

from minimoe import LLM, SamplingParams
from minimoe.model.serving import ServingModel
from minimoe.speculative.dspark import DSpark
from minimoe.speculative.dspark_config import DSparkConfig
from minimoe.speculative.prompt_lookup import find_naive
from minimoe.speculative.serving_dspark import ServingDSpark
from minimoe.training.drafter_lengths import (
    LENGTHS,
    Turns,
    gap,
    ratio,
    render,
    repetition,
    replay_lookup,
    rows,
)
from minimoe.training.drafter_loop import DraftLoop


def replay_naive(text: list[int], first: int, length: int) -> list[tuple[int, int]]:
    """(start, accepted) of each pass, every earlier place looked at."""
    out, at = [], first
    while at < len(text) - 1:
        guess, accepted = find_naive(text[: at + 1], length, 1, 3), 0
        while accepted < len(guess) and at + 1 + accepted < len(text):
            if guess[accepted] != text[at + 1 + accepted]:
                break
            accepted += 1
        out.append((at, accepted))
        at += accepted + 1
    return out


@pytest.mark.parametrize("vocab", [2, 5, 50])
def test_look_up_is_replayed_as_by_the_naive_search(vocab):
    ids = np.random.default_rng(vocab).integers(0, vocab, (3, 60))
    turns = replay_lookup(ids, first=9, length=5)
    for number, text in enumerate(ids.tolist()):
        own = turns.sequence == number
        found = list(zip(turns.start[own].tolist(), turns.accepted[own].tolist(), strict=True))
        assert found == replay_naive(text, 9, 5)


def test_the_replay_has_as_many_passes_as_the_engine():
    config = {"method": "prompt_lookup", "num_speculative_tokens": 5, "scheduled": False}
    llm = LLM("tiny-moe", device="cpu", max_num_seqs=1, speculative_config=config)
    prompt = "def area(width, height):\n    return width * height\n\n\ndef volume("
    params = SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)
    out = llm.generate([prompt], params)[0]
    ids = np.array([out.prompt_token_ids + out.outputs[0].token_ids])
    turns = replay_lookup(ids, first=len(out.prompt_token_ids), length=5)
    assert len(turns.start) == out.metrics.steps - 1  # the first step reads the prompt
    assert turns.accepted.sum() > 0


def test_totals_count_whole_passes_that_start_in_time():
    turns = Turns(np.array([0, 0, 0, 1, 1]), np.array([4, 7, 9, 4, 8]), np.array([2, 1, 5, 3, 0]))
    assert turns.totals(3, end=9).tolist() == [[5, 2], [5, 2], [0, 0]]
    assert ratio(turns.totals(2, end=9)) == 2.5


def test_the_gap_of_equals_is_nothing_and_its_error_shrinks_with_prompts():
    rng = np.random.default_rng(0)
    errors = []
    for texts in (20, 500):
        one = np.stack([rng.integers(30, 60, texts), np.full(texts, 10)], 1)
        other = np.stack([rng.integers(30, 60, texts), np.full(texts, 10)], 1)
        assert gap(one, one) == (0.0, 0.0)
        errors.append(gap(one, other)[1])
    assert errors[0] > 3 * errors[1] > 0


def test_repetition_finds_loops():
    loop = [*range(10), *[50, 51, 52] * 6]  # from the twelfth 8-gram on, each stood before
    new = list(range(28))
    back = [*range(20), *range(8)]  # repeats its beginning at the very end
    assert repetition(np.array([new])) == (0.0, 0.0)
    repeated, looping = repetition(np.array([loop, new]))
    assert repeated == pytest.approx(8 / 42) and looping == 0.5
    assert repetition(np.array([back])) == (1 / 21, 1.0)


def test_rows_of_a_small_drafter():
    target = random_model(small_config(vocab_size=24))
    serving, loops = ServingModel(target), []
    prompts = torch.randint(2, 24, (4, 5), generator=torch.Generator().manual_seed(0))
    for rank in (6, 0):
        config = DSparkConfig.of(target, layers=2, taps=(0, 2), markov_rank=rank, length=3)
        dspark = DSpark(config, target.config).init_weights(std=0.3, seed=1).double().eval()
        drafter = ServingDSpark(dspark.requires_grad_(False), serving)
        loops.append(DraftLoop(serving, drafter, prompts, 48 + 3).run())
    found = rows(*loops, first=4)
    assert [row["tokens"] for row in found] == [n for n in LENGTHS if n <= 48]
    for row in found:
        assert 1 <= min(row["dspark"], row["no_markov"], row["lookup"]) <= 4
        assert row["times_lookup"] == pytest.approx(row["dspark"] / row["lookup"], rel=1e-3)
    assert len(render([{"domain": "code", "temperature": 0.0} | row for row in found])) > 100
