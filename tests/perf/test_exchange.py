"""The all-to-all model beside DeepEP's reported table."""

import json

import pytest

from minimoe.perf import exchange as x


def test_three_numbers_fit_the_twelve_reported():
    fabric = x.rdma()
    rows = x.reported_rows(json.loads(x.REPORTED.read_text()))
    assert len(rows) == 12
    for ranks, sent, took in rows:
        assert fabric.seconds(ranks, sent) == pytest.approx(took, rel=0.08)


def test_bytes_give_the_reported_bandwidth():
    """EP64: 7.57 MB in 173 us are the 43 GB/s of the table, 14.68 MB in 314 us the 46."""
    rows = [row for row in x.reported_rows(json.loads(x.REPORTED.read_text())) if row[0] == 64]
    assert [round(sent / took / 1e9, 1) for _, sent, took in rows] == [43.8, 46.8]


def test_shape_of_the_model():
    fabric = x.Fabric("test", 1e-5, 200e9, 50e9, domain=8)
    assert fabric.seconds(1, 1e9) == 0
    assert fabric.seconds(8, 2e6) == pytest.approx(1e-5 + 1e-5)  # all within the domain
    assert fabric.seconds(16, 2e6) == pytest.approx(1e-5 + 1e6 / 50e9)  # half goes out
    assert fabric.seconds(64, 0) == 1e-5
    both = fabric.seconds(16, 100 * 2 * 5 * x.DISPATCH) + fabric.seconds(
        16, 100 * 2 * 5 * x.COMBINE
    )
    assert fabric.layer_seconds(16, tokens=100, D=5, K=2) == pytest.approx(both)


def test_a_large_domain_sends_nothing_over_the_network():
    assert x.scale_up().seconds(64, 1e9) < x.rdma().seconds(64, 1e9) / 10
