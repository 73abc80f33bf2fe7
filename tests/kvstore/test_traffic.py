"""Synthetic traffic: repeatable, ordered, as stated; and the shipped files are its own."""

from dataclasses import replace
from pathlib import Path

import pytest

from minimoe.errors import MinimoeError
from minimoe.kvstore.replay import replay
from minimoe.kvstore.retention import DAY, LRU, TTL
from minimoe.kvstore.trace import read_trace
from minimoe.kvstore.traffic import AGENT, CHAT, SHIPPED, make_traffic

TRACES = Path(__file__).resolve().parents[2] / "data" / "traces"


@pytest.fixture(scope="module")
def week():
    return make_traffic(7)


def test_same_seed_same_requests():
    assert make_traffic(0.2, seed=3) == make_traffic(0.2, seed=3)
    assert make_traffic(0.2, seed=3) != make_traffic(0.2, seed=4)


def test_ordered_within_the_days_and_within_the_context(week):
    times = [r.timestamp for r in week]
    assert times == sorted(times) and times[-1] < 7 * DAY * 1000
    assert max(r.input_length for r in week if r.kind == "chat") <= CHAT.context


def test_a_session_only_grows(week):
    last = {}
    for request in week:
        before = last.get(request.session, [])
        assert request.blocks[: len(before)] == before
        last[request.session] = request.blocks


def test_sessions_share_nothing_but_the_system_prompt():
    requests = make_traffic(1, (CHAT,))
    owner = {}
    for request in requests:
        for block in request.blocks[CHAT.system_tokens // 512 :]:
            assert owner.setdefault(block, request.session) == request.session


def test_agents_stay_in_one_session_and_chats_come_back(week):
    ratios = {}
    for traffic in (CHAT, AGENT):
        rows = [r for r in week if r.kind == traffic.kind]
        short = replay(rows, lambda: TTL(3600.0)).hits
        ratios[traffic.kind] = short / replay(rows, LRU).hits
    assert ratios["agent"] > 0.98 > 0.95 > ratios["chat"]


def test_a_heavier_tail_makes_long_retention_worth_more():
    def loss(tail):
        rows = make_traffic(14, (replace(CHAT, return_tail=tail),))
        days = [replay(rows, lambda d=d: TTL(d * DAY)).hits for d in (3, 7)]
        return 1 - days[0] / days[1]

    assert loss(0.35) > 3 * loss(1.5)


def test_bad_parameters():
    with pytest.raises(MinimoeError, match="chat traffic: gap is -1"):
        replace(CHAT, gap=-1)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_files_come_from_the_documented_command(name):
    days, classes = SHIPPED[name]
    assert read_trace(TRACES / name) == make_traffic(days, classes)
