"""Counts of operations and bytes, by hand on a tiny config."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minimoe.config import ModelConfig
from minimoe.perf import roofline as r

TINY = ModelConfig.tiny()


def test_expert_layer_by_hand():
    # 6 rows over 3 experts of 2 x (gate, up) + down, D = 5, F = 7, 2-byte weights
    work = r.expert_layer(6, 3, 5, 7, 2)
    assert work.flops == 6 * 2 * (5 * 7 * 3)
    assert work.bytes == 3 * (5 * 7 * 3) * 2


def test_experts_count_distinct_not_rows():
    once, twice = (r.expert_layer(rows, 3, 5, 7, 2) for rows in (6, 12))
    assert twice.bytes == once.bytes and twice.flops == 2 * once.flops


def test_activations_by_hand():
    # 6 rows, D = 5, F = 7: in 5, hidden 7 twice, out 5 twice, result 5; two bytes each
    assert r.expert_activations(6, 5, 7, 2) == 6 * (5 + 14 + 10 + 5) * 2


def test_attention_by_hand():
    # one position, 6 heads, C = 64, R = 16: scores over 80 values, output over 64
    work = r.attention_decode(1, 6, 64, 16, 4)
    assert work.flops == 2 * 6 * (80 + 64)
    assert work.bytes == 80 * 4
    assert r.attention_decode(1, 64, 512, 64, 2).intensity == pytest.approx(121, abs=0.2)


def test_step_of_one_token_reads_the_active_weights_once():
    parts = r.step_work(TINY, tokens=1, contexts=0, itemsize=4)
    D, F = 192, 32
    attention = D * 6 * 48 + D * 80 + 6 * 32 * 64 + 6 * 32 * 64 + 6 * 32 * D
    weights = 6 * attention + 3 * D * 512 + 5 * (64 * D + 3 * D * 64 + 4 * 3 * D * F) + D * 2048
    assert r.total(parts).bytes == pytest.approx(4 * weights)
    assert r.total(parts).flops == pytest.approx(2 * weights)  # one multiply-add per weight


def test_every_parameter_is_read_when_all_experts_are_hit():
    parts = r.step_work(TINY, tokens=1, contexts=0, hit=64, itemsize=1)
    matrices = 8_024_000  # about: the whole model, less embedding and norms
    assert r.total(parts).bytes == pytest.approx(matrices - 192 * 2048, rel=0.01)


def test_distinct_by_enumeration():
    sets = list(itertools.combinations(range(4), 2))
    mean = sum(len({*a, *b, *c}) for a, b, c in itertools.product(sets, repeat=3)) / len(sets) ** 3
    assert r.distinct_uniform(4, 2, 3) == pytest.approx(mean)
    assert r.distinct_expected([0.5] * 4, 3) == pytest.approx(mean)


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 5000))
def test_distinct_is_between_k_and_all(E, K, T):
    K = min(K, E)
    assert K <= r.distinct_uniform(E, K, T) + 1e-9 <= E + 2e-9


def test_skewed_routing_hits_fewer():
    share = [2.0 * 0.9 / 4] * 4 + [2.0 * 0.1 / 60] * 60  # K = 2: nine tenths go to four experts
    assert r.distinct_expected(share, 8) < r.distinct_uniform(64, 2, 8)


def test_moe_needs_e_over_k_times_the_batch():
    moe, dense = (r.knee_tokens(E, K, knee=200.0, itemsize=2) for E, K in ((64, 4), (1, 1)))
    assert moe == 16 * dense == 16 * 200


def test_predict_and_roof():
    work = r.Work(flops=200.0, bytes=100.0)
    assert r.predict(work, bandwidth=50.0, rate=400.0, overhead=1.0) == 1.0 + 2.0 + 0.5
    assert r.roof(2.0, 50.0, 400.0) == 100.0 and r.roof(20.0, 50.0, 400.0) == 400.0
    assert r.away_from_knee(work, 50.0, 400.0) and not r.away_from_knee(work, 50.0, 100.0)
