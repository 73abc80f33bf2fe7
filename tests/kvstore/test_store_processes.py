"""Real processes on one store: shared prefixes, SIGKILL at random moments, load on a quota."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kvstore.store_worker import BLOCK, check, key_of, value_of

from minimoe.kvstore.repair import repair
from minimoe.kvstore.store import BlockStore, open_store

WORKER = Path(__file__).with_name("store_worker.py")


def start(job, folder, *options):
    command = [sys.executable, str(WORKER), job, str(folder), *map(str, options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill_one_writer(folder, first, delay, rng):
    """Start a writer, kill it within `delay` s of its first put; the last number it confirmed."""
    writer = start("put", folder, "--first", first)
    confirmed = int(writer.stdout.readline())
    time.sleep(rng.random() * delay)
    writer.send_signal(signal.SIGKILL)
    lines = writer.stdout.read().split("\n")
    writer.wait()
    return max([confirmed] + [int(line) for line in lines[:-1]])


def kill_writers(folder, times, delay):
    """What was confirmed is there, what is there is right, and killed keys can be put again."""
    rng, first = random.Random(times), 0
    store = BlockStore(folder, "test", BLOCK, segment_bytes=128 * 1024)
    for _ in range(times):
        last = kill_one_writer(folder, first, delay, rng)
        numbers = list(range(first, last + 1))
        assert check(store, numbers) == len(numbers)
        in_flight = list(range(last + 1, last + 33))
        check(store, in_flight)  # there or not, but never wrong
        store.put([(key_of(i), value_of(i)) for i in in_flight])
        assert check(store, in_flight) == 32
        first = last + 33
    report = repair(store)
    assert (report.strangers_removed, report.segments_dropped, report.shards_rebuilt) == (0, 0, 0)
    store.close()


def test_killed_writers_lose_only_what_was_in_flight(tmp_path):
    kill_writers(tmp_path, times=4, delay=0.1)


@pytest.mark.soak
def test_fifty_killed_writers(tmp_path):
    kill_writers(tmp_path, times=50, delay=0.5)


def test_a_second_process_hits_what_the_first_one_put(tmp_path):
    writer = start("put", tmp_path)
    last = int(writer.stdout.readline())
    store = open_store(tmp_path)
    assert check(store, list(range(last + 1))) == last + 1  # while the writer goes on
    writer.kill()
    writer.wait()
    writer.stdout.close()
    store.close()


def mixed_load(folder, processes, seconds):
    quota = 6 * 2**20
    workers = [
        start("mix", folder, "--first", seed, "--seconds", seconds, "--quota", quota)
        for seed in range(processes)
    ]
    results = [worker.communicate(timeout=seconds + 120)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * processes
    hits = sum(int(result.split()[2]) for result in results)
    store = open_store(folder, quota_bytes=quota)
    report = repair(store)
    assert hits > 0 and report.strangers_removed == report.segments_dropped == 0
    sizes = [os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(folder) for f in fs]
    assert sum(sizes) <= quota + 64 * 1024  # the -shm file is SQLite's shared memory
    store.close()
    return results


def test_mixed_load_on_a_small_quota(tmp_path):
    mixed_load(tmp_path, processes=3, seconds=2)


@pytest.mark.soak
def test_eight_processes_for_ten_minutes(tmp_path):
    seconds = float(os.environ.get("MINIMOE_SOAK_SECONDS", "600"))
    for result in mixed_load(tmp_path, processes=8, seconds=seconds):
        print("puts, gets, hits:", result)
