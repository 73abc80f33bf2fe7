"""A process that uses a store until it is killed or told to stop; run as a script by the tests.

Block number i always holds the same bytes, so any reader can tell whether it was given wrong ones.
"""

import argparse
import hashlib
import os
import random
import sys
import time

import numpy as np

from minimoe.kvstore.store import BlockStore

BLOCK = 4096


def key_of(i: int) -> bytes:
    return hashlib.sha256(f"key {i}".encode()).digest()


def value_of(i: int, size: int = BLOCK) -> bytes:
    return random.Random(i).randbytes(size)


def check(store: BlockStore, numbers: list[int]) -> int:
    """How many leading blocks could be read; fails on a wrong byte."""
    out = np.zeros((len(numbers), BLOCK), np.uint8)
    count, _ = store.get([key_of(i) for i in numbers], out)
    for row in range(count):
        assert out[row].tobytes() == value_of(numbers[row]), f"wrong bytes for {numbers[row]}"
    return count


def put_forever(store: BlockStore, first: int) -> None:
    """Put runs of blocks, and print the last number of each run once it is stored."""
    for start in range(first, 10**9, 32):
        store.put([(key_of(i), value_of(i)) for i in range(start, start + 32)])
        print(start + 31, flush=True)


def mix(store: BlockStore, seconds: float, seed: int) -> None:
    """Random puts and gets of overlapping runs until the time is over; prints what it did."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    puts = gets = hits = 0
    half, at_half = end - seconds / 2, None
    while time.monotonic() < end:
        start = rng.randrange(400) * 16
        numbers = list(range(start, start + rng.choice([4, 16, 64])))
        if rng.random() < 0.5:
            store.put([(key_of(i), value_of(i)) for i in numbers], rng.choice(["chat", "agent"]))
            puts += 1
        else:
            hits += check(store, numbers) > 0
            gets += 1
        if rng.random() < 0.05:
            store.touch([key_of(i) for i in numbers])
        with store.meta.lock():  # sizes and rows of one moment
            used = store.meta.used()
        assert used <= store.quota_bytes, f"{used} bytes used of {store.quota_bytes}"
        if at_half is None and time.monotonic() > half:
            at_half = resources()
    assert_no_leak(at_half, resources())
    print(puts, gets, hits)


def resources() -> tuple[int, int]:
    """Open files, and the most memory ever held, in KiB; zeros where the system does not tell."""
    try:
        import resource

        files = len(os.listdir("/proc/self/fd"))
        return files, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    except (ImportError, OSError):
        return 0, 0


def assert_no_leak(before: tuple[int, int], after: tuple[int, int]) -> None:
    assert after[0] <= before[0] + 1, f"{after[0]} files are open, {before[0]} were"
    assert after[1] <= before[1] + 16384, f"{after[1]} KiB of memory, {before[1]} at half-time"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["put", "mix"])
    parser.add_argument("folder")
    parser.add_argument("--quota", type=int, default=256 * 2**20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    store = BlockStore(args.folder, "test", BLOCK, quota_bytes=args.quota, segment_bytes=128 * 1024)
    if args.job == "put":
        put_forever(store, args.first)
    mix(store, args.seconds, args.first)


if __name__ == "__main__":
    sys.exit(main())
