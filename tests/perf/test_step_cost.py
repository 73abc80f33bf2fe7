"""The decode model: counts by hand, shapes that must hold, and the two regimes of the chart."""

import pytest

from minimoe.perf import step_cost as sc
from minimoe.perf.chips import CHIPS
from minimoe.perf.exchange import rdma


def test_active_parameters_are_the_reported_16_billion():
    m = sc.Served()
    active = m.layers * (m.dense_values() + m.K * 3 * m.D * m.F) + 2 * m.vocabulary * m.D
    assert active == pytest.approx(16e9, rel=0.03)


def test_weights_held():
    """384 / 8 experts of 18.80 MB in 40 layers: 36.1 GB; an eighth of that at EP64."""
    m = sc.Served()
    assert 40 * m.expert_bytes(48) == pytest.approx(36.1e9, rel=0.01)
    assert m.held_bytes(52) - m.held_bytes(7) == pytest.approx(40 * m.expert_bytes(45))


def test_tokens_per_step():
    assert sc.ep8().tokens_per_step == pytest.approx(1 + 0.75 + 0.5625 + 0.421875)
    assert sc.ep8(drafts=0).tokens_per_step == 1
    assert sc.ep8(acceptance=0.0).tokens_per_step == 1
    assert sc.ep8(acceptance=1.0).tokens_per_step == 4


def test_work_of_a_layer_by_hand():
    instance = sc.ep64(drafts=0, imbalance=1.0)
    m, works = instance.model, instance.layer_works(4096)
    assert works["experts"].flops == 2 * 3 * m.D * m.F * 4096 * 6
    hit = works["experts"].bytes - 2 * 4096 * 6 * (4 * m.D + 2 * m.F)
    assert hit == pytest.approx(m.expert_bytes(7))  # all are hit
    one = sc.ep64(drafts=0, ranks=1, slots=384, imbalance=1.0).layer_works(1)["experts"]
    assert one.bytes == pytest.approx(m.expert_bytes(6) + 2 * 6 * (4 * m.D + 2 * m.F))


@pytest.mark.parametrize(
    "instance", [sc.ep8(), sc.ep64(), sc.ep64(fabric=rdma()), sc.ep8(drafts=0)]
)
def test_more_requests_are_slower_for_each_and_better_for_all(instance):
    points = sc.frontier(instance)
    assert all(a[1] > b[1] for a, b in zip(points, points[1:], strict=False))
    assert all(a[2] < b[2] for a, b in zip(points, points[1:], strict=False))
    assert points[-1][0] == pytest.approx(instance.most_requests())


def test_longer_contexts_cost_more_and_fit_less():
    short, long = sc.ep64(context=8192), sc.ep64(context=1_000_000)
    assert short.seconds(60) < long.seconds(60)
    assert short.most_requests() > 100 * long.most_requests()


def test_a_faster_chip_is_faster():
    slow, fast = (sc.ep64(chip=CHIPS[name]) for name in ("H200", "B200"))
    assert fast.seconds(60) < slow.seconds(60)


def test_two_regimes():
    """Few requests: EP64 is far ahead. As many as fit: EP8 nearly catches up."""
    narrow, wide = sc.ep8(), sc.ep64()
    assert sc.ratio(narrow, wide, 16) < 0.75
    assert sc.ratio(narrow, wide, narrow.most_requests()) > 0.85
    assert wide.tokens_per_user(1) > narrow.tokens_per_user(1)
    assert 0.85 < sc.best(narrow) / sc.best(wide) < 1.0


def test_narrow_network_takes_the_gain_away():
    wide, narrow = sc.ep64(fabric=rdma()), sc.ep8(fabric=rdma())
    assert sc.ratio(narrow, wide, 512) > 1.2  # EP64 waits for its exchange
    assert sc.ratio(narrow, wide, 16) < 1.0  # and is still quicker for few


def test_halves_are_taken_only_when_they_help():
    instance = sc.ep64()
    for requests in (1, 16, 60, 256, 1024):
        in_turn = sum(instance._parts_in_turn(requests).values())
        assert instance.seconds(requests) <= in_turn
    assert instance.seconds(1) == sum(instance._parts_in_turn(1).values())
    assert instance.seconds(1024) < 0.95 * sum(instance._parts_in_turn(1024).values())


def test_requests_at_a_speed():
    instance = sc.ep64()
    requests = instance.requests_at(100)
    assert instance.tokens_per_user(requests) == pytest.approx(100, rel=1e-6)
    assert instance.requests_at(1e5) == 0
    assert instance.requests_at(0.1) == instance.most_requests()


def test_price_of_an_interactive_token():
    batch = sc.best(sc.ep8())
    prices = [sc.price(sc.ep64(), speed, batch) for speed in (50, 100, 200, 300)]
    assert prices == sorted(prices) and prices[0] < 1.5 and prices[-1] > 3
    assert sc.price(sc.ep8(), 200, batch) > 1.5 * sc.price(sc.ep64(), 200, batch)
    assert sc.price(sc.ep8(), 1e5, batch) == float("inf")


def test_no_room_for_a_request():
    assert sc.ep8(context=10**9).most_requests() == 0
    assert sc.frontier(sc.ep8(context=10**9)) == []
