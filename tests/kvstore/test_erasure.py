"""Any ten of twelve shards give the segment back; fewer give an error and never wrong bytes."""

import itertools
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minimoe.errors import MinimoeError
from minimoe.kvstore.erasure import ShardsLost, StripeCode, checksum, unreadable_share


def join(shards, length):
    return b"".join(bytes(shards[i]) for i in range(len(shards)))[:length]


def test_every_pair_of_lost_shards_is_rebuilt():
    code, segment = StripeCode(), os.urandom(1003)
    shards = dict(enumerate(code.encode(segment)))
    for lost in itertools.combinations(range(12), 2):
        left = {i: shard for i, shard in shards.items() if i not in lost}
        assert join(code.decode(left), len(segment)) == segment


def test_three_lost_shards_are_an_error():
    code = StripeCode()
    shards = dict(enumerate(code.encode(b"x" * 100)))
    for lost in itertools.combinations(range(12), 3):
        with pytest.raises(ShardsLost, match="9 of 12 shards are readable, 10 are needed"):
            code.decode({i: s for i, s in shards.items() if i not in lost})


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=1, max_size=300), st.integers(1, 12), st.integers(0, 4), st.randoms())
def test_any_code_any_segment_any_losses(segment, data, parity, rng):
    code = StripeCode(data, parity)
    shards = dict(enumerate(code.encode(segment)))
    assert len({len(shard) for shard in shards.values()}) == 1
    for lost in rng.sample(range(code.shards), parity):
        del shards[lost]
    assert join(code.decode(shards), len(segment)) == segment


def test_checksum_sees_each_flipped_bit():
    shard = bytearray(random.Random(0).randbytes(50))
    good = checksum(shard)
    for bit in range(400):
        shard[bit // 8] ^= 1 << bit % 8
        assert checksum(shard) != good
        shard[bit // 8] ^= 1 << bit % 8


def test_space_and_odds_against_copies():
    assert StripeCode().space == 1.2
    assert unreadable_share(12, 2, 0.01) == pytest.approx(2.06e-4, rel=5e-3)
    assert unreadable_share(2, 1, 0.01) == pytest.approx(1e-4)
    assert unreadable_share(3, 2, 0.01) == pytest.approx(1e-6)


@pytest.mark.parametrize("data, parity", [(0, 2), (10, -1), (255, 2)])
def test_impossible_codes(data, parity):
    with pytest.raises(MinimoeError, match="1 to 256"):
        StripeCode(data, parity)
