"""The random-weight model: its size follows the cache, the free memory and the name."""

import pytest

from minimoe.engine import wide
from minimoe.errors import MinimoeError

LAYER = 64 * 3 * 1024 * 512 * 4


@pytest.fixture
def machine(monkeypatch):
    def set_to(cache: int | None, free: int) -> None:
        monkeypatch.setattr(wide, "last_level_cache", lambda device: cache)
        monkeypatch.setattr(wide, "free_memory", lambda device: free)

    return set_to


@pytest.mark.parametrize(
    "cache, free, limit, layers",
    [
        (32 << 20, 64 << 30, "wide", 2),  # never fewer where memory allows
        (480 << 20, 64 << 30, "wide", 10),  # eight times the cache
        (None, 64 << 30, "wide", 2),
        (480 << 20, 4 << 30, "wide", 4),  # as memory allows
        (480 << 20, 64 << 30, "wide:1", 2),  # as the name allows
        (480 << 20, 64 << 30, "wide:0.1", 1),  # one layer at least
    ],
)
def test_size(machine, cache, free, limit, layers):
    machine(cache, free)
    config = wide.wide_config(limit=wide.limit_of(limit))
    assert config.num_moe_layers == layers
    small = layers * LAYER < 8 * (cache or wide.DEFAULT_CACHE)
    assert ("sized down" in wide.describe_wide(config)) == small


def test_too_little_memory_is_one_clear_line(machine):
    machine(32 << 20, 1 << 29)
    with pytest.raises(MinimoeError, match="needs 0.9 GiB of free memory: close other programs"):
        wide.wide_config()


def test_names():
    assert wide.is_wide("wide") and wide.is_wide("wide:2") and not wide.is_wide("widest")
    for bad in ("wide:", "wide:x", "wide:0", "wide:nan", "wide:-1"):
        with pytest.raises(MinimoeError, match="write 'wide', or 'wide:1.5'"):
            wide.limit_of(bad)
