"""How fast the store gives blocks back: all nodes up, and two of them gone; pages in memory."""

import tempfile
import time

import numpy as np

from minimoe.bench.lost_nodes import hide_nodes, show_nodes
from minimoe.kvstore.store import BlockStore


def restore_rates(total: int = 64 * 2**20, block_bytes: int = 30_720, repeats: int = 5) -> dict:
    """Bytes per second of verified reads of `total` bytes or a little more: `whole`, `two_lost`.

    The default block is one of tiny-moe in float32. The best of `repeats` counts: whatever else
    the machine does only makes a read slower.
    """
    count = -(-total // block_bytes)
    data = np.random.default_rng(0).integers(0, 256, (count, block_bytes), dtype=np.uint8)
    keys = [i.to_bytes(32, "big") for i in range(count)]
    with tempfile.TemporaryDirectory(prefix="minimoe-restore-") as folder:
        store = BlockStore(folder, "restore", block_bytes)
        start = time.perf_counter()
        store.put(zip(keys, data, strict=True))
        rates = {"bytes": data.nbytes, "put": data.nbytes / (time.perf_counter() - start)}
        rates["whole"] = _rate(store, keys, data, repeats)
        hidden = hide_nodes(store, 2)
        rates["two_lost"] = _rate(store, keys, data, repeats)
        show_nodes(hidden)
        store.close()
    return rates


def _rate(store: BlockStore, keys: list[bytes], data: np.ndarray, repeats: int) -> float:
    out, times = np.zeros_like(data), []
    for _ in range(repeats + 1):  # the first one also makes the pages of `out`
        out[:, :8] = 0
        start = time.perf_counter()
        count, _ = store.get(keys, out)
        times.append(time.perf_counter() - start)
        assert count == len(keys) and (out == data).all()
    return data.nbytes / min(times[1:])
