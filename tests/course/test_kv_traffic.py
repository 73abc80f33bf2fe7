"""Answers that the notebook on the store takes from traces, against slow replays."""

import pytest

from minimoe.course import kv_traffic
from minimoe.kvstore.replay import replay
from minimoe.kvstore.retention import DAY, LRU, TTL
from minimoe.kvstore.trace import Request, read_trace


@pytest.fixture(scope="module")
def fortnight():
    return read_trace(kv_traffic.TRACES / "chat_agent_14d.jsonl")


@pytest.mark.parametrize("kind", ["chat", "agent"])
def test_lost_hits_are_those_of_a_replay(fortnight, kind):
    rows = kv_traffic.of_kind(fortnight, kind)
    first = next(i for i, r in enumerate(rows) if r.timestamp >= 7 * DAY * 1000)
    gaps = kv_traffic.second_week_gaps(rows)

    def hits(days):
        return sum(replay(rows, lambda: TTL(days * DAY)).hit_blocks[first:])

    assert kv_traffic.lost_between(gaps) == pytest.approx(1 - hits(3) / hits(7))
    assert kv_traffic.lost(gaps, 3) == pytest.approx(1 - hits(3) / len(gaps))


def test_the_shipped_traffic_is_what_the_notebook_says(fortnight):
    gaps = {
        k: kv_traffic.second_week_gaps(kv_traffic.of_kind(fortnight, k)) for k in ("chat", "agent")
    }
    assert 0.005 <= kv_traffic.lost_between(gaps["chat"]) <= 0.01
    assert kv_traffic.lost_between(gaps["agent"]) < 0.001


def test_loss_by_tail_falls():
    heavy, light = kv_traffic.loss_by_tail([0.2, 1.3])
    assert heavy > 0.005 > 0.0005 > light


def test_share_of_long_absences():
    assert kv_traffic.share_away(1 / 24, 0.5) == pytest.approx(1)
    assert kv_traffic.share_away(30, 0.5) == pytest.approx(0)
    assert kv_traffic.share_away(3, 0.35) > kv_traffic.share_away(3, 0.9)


def test_reads_of_resting_blocks_by_hand():
    day = int(DAY * 1000)
    requests = [
        Request(0, 0, 0, [1, 2, 3]),
        Request(4 * day, 0, 0, [1]),  # block 1 rested 4 days and was read
        Request(13 * day, 0, 0, [2]),  # block 2 rested for longer than a week
    ]
    # Spells of rest over 3 days that began in week one: 1 (twice), 2, 3. One was read by day 7.
    assert kv_traffic.reads_per_idle_day(requests) == pytest.approx(1 / 4 / 4)


def test_minutes_after_a_fault():
    requests = [Request(i * 60_000, 0, 0, [0, 1 + i % 4]) for i in range(20)]
    calm = replay(requests, LRU, 100, nodes=2, route="affine")
    fault = replay(requests, LRU, 100, nodes=2, route="affine", lose=(0, 10))
    minutes, points = kv_traffic.lost_by_minute(calm, fault, requests, 10, minutes=5)
    assert minutes == [2.5, 7.5] and points[0] > 0 == points[1]
    assert kv_traffic.index_at(requests, 3) == 3


def test_a_table_of_policies():
    requests = [Request(i, 0, 0, [i % 3]) for i in range(12)]
    assert kv_traffic.policies_table(requests, lambda blocks: ..., 2).startswith("yours  not done")
    mine = kv_traffic.policies_table(requests, lambda blocks: max(blocks), 2)
    assert mine.splitlines()[0].startswith("yours  0.") and len(mine.splitlines()) == 4
    broken = kv_traffic.policies_table(requests, lambda blocks: 1 / 0, 2)
    assert broken.startswith("yours  it raised ZeroDivisionError: division by zero\nlru")
