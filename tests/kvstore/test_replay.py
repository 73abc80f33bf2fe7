"""Replay: reference values of a public trace, a slow oracle, another simulator, bad settings."""

import argparse
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minimoe.errors import MinimoeError
from minimoe.kvstore import replay as replay_module
from minimoe.kvstore.replay import replay, replay_naive, reuse_gaps
from minimoe.kvstore.retention import FIFO, LFU, LRU, TTL, Choice, make_policy
from minimoe.kvstore.trace import Request, read_trace

REPO = Path(__file__).resolve().parents[2]
MOONCAKE = REPO.parent / "shared" / "traces" / "mooncake" / "synthetic_trace.jsonl"
needs_mooncake = pytest.mark.skipif(not MOONCAKE.is_file(), reason="Mooncake trace not here")

REFERENCE = [
    (LRU, None, {}, 0.639604),
    (LRU, 1_000, {}, 0.084118),
    (LRU, 5_859, {}, 0.309353),
    (LRU, 20_000, {}, 0.571773),
    (FIFO, 5_859, {}, 0.301566),
    (LFU, 5_859, {}, 0.243508),
    (lambda: TTL(60), None, {}, 0.321652),
    (lambda: TTL(300), None, {}, 0.584425),
    (LRU, 5_859, {"nodes": 10, "route": "round_robin"}, 0.168104),
    (LRU, 5_859, {"nodes": 10, "route": "affine"}, 0.639505),
    (LRU, 5_859, {"nodes": 10, "route": "pool"}, 0.639604),
    (LRU, 5_859, {"nodes": 10, "route": "round_robin", "lose": (0, 3993 // 2)}, 0.163230),
]


@pytest.fixture(scope="module")
def mooncake():
    return read_trace(MOONCAKE)


def trace(*prompts, step=1000, kind="chat"):
    return [Request(i * step, 0, 0, list(p), kind) for i, p in enumerate(prompts)]


def chained(rows):
    """Ids as in real traces: an equal id means an equal prefix."""
    ids = {}
    return [[ids.setdefault(tuple(r[: i + 1]), len(ids)) for i in range(len(r))] for r in rows]


@needs_mooncake
@pytest.mark.parametrize("policy, capacity, layout, expect", REFERENCE)
def test_reference_values(mooncake, policy, capacity, layout, expect):
    result = replay(mooncake, policy, capacity, **layout)
    assert result.blocks == 121_877
    assert round(result.hit_ratio, 6) == expect


@needs_mooncake
def test_lru_replays_the_trace_in_under_a_second(mooncake):
    assert min(replay(mooncake, LRU, 5_859).seconds for _ in range(3)) < 1.0


prompts = st.lists(st.lists(st.integers(0, 9), max_size=8, unique=True), max_size=25)


@settings(max_examples=150, deadline=None)
@given(prompts, st.integers(1, 8))
def test_lru_and_fifo_match_the_oracle(rows, capacity):
    requests = trace(*rows)
    assert replay(requests, LRU, capacity).hits == replay_naive(requests, capacity, "lru")
    assert replay(requests, FIFO, capacity).hits == replay_naive(requests, capacity, "fifo")


@settings(max_examples=100, deadline=None)
@given(prompts)
def test_without_limits_all_policies_agree(rows):
    requests = trace(*rows)
    hits = {replay(requests, p).hits for p in (LRU, FIFO, LFU, lambda: TTL(1e9))}
    assert len(hits) == 1


def accesses(requests):
    return [block for request in requests for block in reversed(request.blocks)]


def hits_per_block(policy, capacity, blocks):
    cache, hits = policy(), []
    for block in blocks:
        hits.append(block in cache)
        cache.touch(block)
        while len(cache) > capacity:
            cache.evict()
    return hits


@needs_mooncake
@pytest.mark.parametrize("ours, name", [(LRU, "LRU"), (FIFO, "FIFO"), (LFU, "LFU")])
@pytest.mark.parametrize("capacity", [1_000, 5_859])
def test_every_block_as_in_libcachesim(mooncake, ours, name, capacity):
    lib = pytest.importorskip("libcachesim")
    blocks, theirs = accesses(mooncake), getattr(lib, name)(cache_size=capacity)
    request, expect = lib.Request(), []
    for block in blocks:
        request.obj_id, request.obj_size = block, 1
        expect.append(theirs.get(request))
    assert hits_per_block(ours, capacity, blocks) == expect


def test_a_chain_loses_its_tail_first():
    requests = trace([1, 2, 3, 4], [9], [1, 2, 3, 4])
    assert replay(requests, LRU, 4).hit_blocks == [0, 0, 3]


def test_hits_are_leading_blocks_only():
    assert replay(trace([1, 2, 3], [1, 8, 3]), LRU, 10).hits == 1


def test_time_to_live_by_class():
    requests = [
        Request(0, 0, 0, [1], "agent"),
        Request(0, 0, 0, [2], "chat"),
        Request(100_000, 0, 0, [1], "agent"),
        Request(100_000, 0, 0, [2], "chat"),
    ]
    ttl = {"agent": 50, "chat": 500}
    assert replay(requests, lambda: TTL(ttl)).hit_blocks == [0, 0, 0, 1]
    assert replay(requests, lambda: TTL(100)).hit_blocks == [0, 0, 1, 1]


@settings(max_examples=60, deadline=None)
@given(prompts, st.floats(0.5, 12.0))
def test_gaps_tell_the_hits_of_every_time_to_live(rows, seconds):
    requests = trace(*chained(rows))
    gaps = reuse_gaps(requests)
    assert len(gaps) == replay(requests, LRU).hits
    assert sum(gap <= seconds for gap in gaps) == replay(requests, lambda: TTL(seconds)).hits


@settings(max_examples=60, deadline=None)
@given(prompts, st.integers(1, 8))
def test_a_policy_given_by_a_function(rows, capacity):
    def least_recent(blocks):
        return min(blocks, key=lambda block: blocks[block].last)

    requests = trace(*rows)
    assert replay(requests, lambda: Choice(least_recent), capacity).hits == (
        replay(requests, LRU, capacity).hits
    )


def test_a_choice_must_be_resident():
    with pytest.raises(MinimoeError, match="None is no resident block"):
        replay(trace([1, 2]), lambda: Choice(lambda blocks: None), 1)


def test_a_shared_block_lives_as_long_as_its_longest_class():
    cache = TTL({"agent": 1, "chat": 100})
    cache.touch("system", 0, "chat")
    cache.touch("system", 5, "agent")
    cache.expire(50)
    assert "system" in cache


def test_a_clock_that_steps_back_stands_still():
    requests = [Request(t, 0, 0, [1]) for t in (50_000, 1_000, 2_000, 55_000)]
    assert replay(requests, lambda: TTL(10)).hit_blocks == [0, 1, 1, 1]


def test_a_lost_node_forgets_and_a_pool_does_not():
    requests = trace(*[[5, 6]] * 6)
    lost = replay(requests, LRU, 9, nodes=2, route="affine", lose=(0, 3))
    assert lost.hit_blocks == [0, 2, 2, 0, 2, 2]
    assert replay(requests, LRU, 9, nodes=2, route="pool", lose=(0, 3)).hits == 10
    assert replay(requests, LRU, 9, nodes=2, route="round_robin").hit_blocks == [0, 0, 2, 2, 2, 2]


def test_affine_block_can_be_chosen():
    requests = trace([0, 3], [1, 3])
    assert replay(requests, LRU, 9, nodes=2, route="affine", affine_block=0).nodes == [0, 1]
    assert replay(requests, LRU, 9, nodes=2, route="affine").nodes == [1, 1]


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"capacity_blocks": 0}, "capacity of 0 blocks"),
        ({"nodes": 0}, "0 nodes"),
        ({"route": "best"}, "unknown route 'best'"),
        ({"nodes": 2, "route": "affine", "lose": (2, 0)}, "node 2 does not exist"),
    ],
)
def test_bad_settings(settings, words):
    with pytest.raises(MinimoeError, match=words):
        replay([], LRU, **settings)


def test_bad_policies():
    for name, ttl, words in [("mru", None, "unknown policy"), ("ttl", None, "needs a lifetime")]:
        with pytest.raises(MinimoeError, match=words):
            make_policy(name, ttl)
    with pytest.raises(MinimoeError, match="above 0"):
        make_policy("ttl", 0)
    with pytest.raises(MinimoeError, match="class 'batch'"):
        replay(trace([1], kind="batch"), lambda: TTL({"chat": 1}))


def test_verb_gives_the_promised_fields(tmp_path):
    path = tmp_path / "t.jsonl"
    row = {"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1, 2]}
    path.write_text((json.dumps(row) + "\n") * 2)
    parser = argparse.ArgumentParser()
    replay_module.add_arguments(parser)
    result = replay_module.main(parser.parse_args([str(path), "--capacity-blocks", "5"]))
    assert set(result) == {
        "requests", "blocks", "hits", "hit_ratio", "policy", "capacity_blocks", "seconds",
    }  # fmt: skip
    assert (result["requests"], result["blocks"], result["hits"]) == (2, 4, 2)
    assert "0.500000" in replay_module.render(result)
