"""KV bytes per token against reported figures."""

import pytest

from minimoe.perf import cache_size as c


def test_v41_is_890_bytes():
    """288 + 68 bytes an entry, and 3 sources at half rate plus one at full rate."""
    assert c.Compressed().entry == 356 and c.Compressed().per_token == 890


def test_v3_mla_is_70_kilobytes():
    assert c.latent(61, 512, 64, 2) == 70_272


def test_grouped_query_keeps_a_share_of_multi_head():
    full = c.multi_head(80, 64, 128, 2)
    assert full == 2_621_440 and c.grouped_query(80, 8, 128, 2) == full / 8 == 327_680


def test_blocks():
    assert [c.blocks_for(n, 16) for n in (0, 1, 16, 17, 32)] == [0, 1, 1, 2, 2]


def test_crossing():
    assert c.requests_until_cache_outweighs(890e6, 1000, 890) == pytest.approx(1000)
