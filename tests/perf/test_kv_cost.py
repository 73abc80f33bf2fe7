"""Cache costs against reported figures, hand-computed values, and counting step by step."""

import random

import pytest

from minimoe.perf import kv_cost as k


def test_bytes_per_token_match_what_is_reported():
    got = k.BYTES_PER_TOKEN
    assert got["V3 (MLA)"] == 70_272 and got["V4.1-Flash"] == 890
    assert got["V4-Flash"] == 3514.25 and round(got["V4-Flash"]) == k.REPORTED["V4-Flash"]


def test_v41_keeps_437_times_less_than_the_first_deepseek():
    """DeepSeek reports the factor; 95 x 2 x 8 x 128 x 2 B."""
    first = k.BYTES_PER_TOKEN["DeepSeek 67B (GQA)"]
    assert first == 389_120 and int(first / k.BYTES_PER_TOKEN["V4.1-Flash"]) == 437


def test_multi_head_v3():
    assert k.per_head(61, 128, 192, 128, 2) == 4_997_120  # 61 x 128 x 320 x 2


def test_expert_slices():
    """18.8 MB an expert: 6 of them in 40 layers are 4.51 GB. V3: 4 of 44.04 MB in 58."""
    assert k.V41_EP64 / (6 * 40) == pytest.approx(18.80e6, rel=1e-3)
    assert pytest.approx(4.51e9, rel=1e-3) == k.V41_EP64 and k.V41_EP8 == 8 * k.V41_EP64
    assert k.V3_EP64 == 4 * 44_040_192 * 58


def test_sparse_reads_at_the_chart_s_context():
    """Keys: 3 x 65,536 + 131,072 + 4 x 16,384; entries 38 x 512; window 40 x 128."""
    reads = k.SparseReads()
    assert reads.scored_keys(131_072) == 393_216
    assert reads.per_step(131_072) == 393_216 * 68 + 19_456 * 288 + 5_120 * 584 == 35_332_096
    assert reads.per_step(131_072, 4) == 35_332_096 + 3 * 19_456 * 288
    assert reads.per_step(0) == 0


def test_step_and_crossing():
    assert k.step_seconds(600.0, 4, 100.0, 1000.0, 0.5) == 1.5
    assert k.crossing_context(1000.0, 5, 20.0) == 10.0


def test_paged_rounds_each_request_up():
    assert k.paged([1, 16, 17, 0], 16) == 16 + 16 + 32
    assert k.paged([], 16) == 0


def test_steps_by_hand():
    assert k.static_steps([1, 9, 2, 2], 2) == 9 + 2
    assert k.continuous_steps([1, 9, 2, 2], 2) == 9  # 1, 2 and 2 run one after the other beside 9
    assert k.static_steps([], 4) == k.continuous_steps([], 4) == 0
    assert k.static_plan([1, 9, 2], 2) == [(0, 0, 1), (1, 0, 9), (0, 9, 11)]


def counted(lengths: list[int], slots: int) -> int:
    """Continuous batching, one step after another."""
    waiting, running, steps = list(lengths), [], 0
    while waiting or running:
        while waiting and len(running) < slots:
            running.append(waiting.pop(0))
        running = [left - 1 for left in running if left > 1]
        steps += 1
    return steps


def test_continuous_equals_counting_and_never_loses():
    rng = random.Random(0)
    for _ in range(200):
        lengths = [rng.randrange(1, 30) for _ in range(rng.randrange(20))]
        slots = rng.randrange(1, 7)
        steps = k.continuous_steps(lengths, slots)
        assert steps == counted(lengths, slots) <= k.static_steps(lengths, slots)
        plan = k.static_plan(lengths, slots)
        assert max((end for *_, end in plan), default=0) == k.static_steps(lengths, slots)
