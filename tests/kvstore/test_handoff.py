"""Between engine and writer: nothing handed over is lost, whoever is killed."""

import hashlib
import json
import os
import signal
import time

import numpy as np
import pytest

from minimoe.kvstore import handoff
from minimoe.kvstore.handoff import HandOff, read_header, write_message
from minimoe.kvstore.store import BlockStore
from minimoe.kvstore.writer import Writer

BLOCK = 1024


def blocks(first, count):
    keys = [hashlib.sha256(str(i).encode()).digest() for i in range(first, first + count)]
    data = np.stack([np.full(BLOCK, i % 251, np.uint8) for i in range(first, first + count)])
    return keys, data


def assert_stored(store, first, count):
    keys, data = blocks(first, count)
    out = np.zeros_like(data)
    assert store.get(keys, out) == (count, [])
    assert (out == data).all()


@pytest.fixture
def store(tmp_path):
    store = BlockStore(tmp_path, "test", BLOCK)
    yield store
    store.close()


@pytest.fixture
def hand(store):
    hand = HandOff(store.folder, {})
    yield hand
    hand.close()


def test_a_message_is_read_as_written(tmp_path):
    keys, data = blocks(0, 3)
    write_message(tmp_path / "m.blocks", {"kind": "chat"}, data)
    with open(tmp_path / "m.blocks", "rb") as file:
        assert read_header(file) == {"kind": "chat"} and file.read() == data.tobytes()


@pytest.mark.parametrize(
    "content", [b"", b"abc", b"x" * 100, b"\2\0\0\0\0\0\0\0{]", b"\2\0\0\0\0\0\0\0[]"]
)
def test_a_damaged_message_is_seen(tmp_path, content):
    (tmp_path / "m.blocks").write_bytes(content)
    with open(tmp_path / "m.blocks", "rb") as file, pytest.raises(ValueError):
        read_header(file)


def test_a_cut_message_is_dropped_and_a_large_one_is_stored(store, tmp_path):
    spool = tmp_path / "spool" / "mine"
    spool.mkdir(parents=True)
    writer = Writer(store, spool)
    keys, data = blocks(0, 5000)  # more than a segment
    hexed = [key.hex() for key in keys]
    write_message(spool / "000000001.blocks", {"keys": hexed[:2], "kind": "chat"}, data[:1])
    write_message(spool / "000000002.blocks", {"keys": hexed, "kind": "chat"}, data)
    writer.collect(spool)
    writer.commit_all()
    assert "damaged" in writer.status["problem"]
    assert_stored(store, 0, 5000)
    assert not list(spool.glob("*.blocks"))


def test_saved_blocks_are_in_the_store_after_a_flush(store, hand):
    for first in range(0, 60, 20):
        keys, data = blocks(first, 20)
        assert hand.save(keys, data, "chat")
    assert hand.flush()
    assert_stored(store, 0, 60)
    assert not list(hand.spool.glob("*.blocks"))


def test_a_killed_writer_is_replaced_and_finishes(store, hand, monkeypatch):
    monkeypatch.setattr(handoff, "RESTART_EVERY", 0.0)
    for first in range(0, 100, 20):
        hand.save(*blocks(first, 20), "chat")
        hand.process.send_signal(signal.SIGKILL)
        hand.process.wait()
    assert hand.flush()
    assert_stored(store, 0, 100)


def test_the_writer_ends_with_its_engine_and_loses_nothing(store):
    hand = HandOff(store.folder, {})
    hand.save(*blocks(0, 20), "chat")
    hand.process.stdin.close()  # as when the engine is killed
    assert hand.process.wait(30) == 0
    assert_stored(store, 0, 20)
    assert not hand.spool.exists()


def test_files_of_a_dead_engine_are_taken_over(store, monkeypatch):
    dead = store.folder / "spool" / "dead"
    dead.mkdir(parents=True)
    keys, data = blocks(0, 5)
    write_message(
        dead / "000000000.blocks", {"keys": [k.hex() for k in keys], "kind": "chat"}, data
    )
    old = time.time() - 3600
    os.utime(dead, (old, old))
    hand = HandOff(store.folder, {})
    hand.close()
    assert_stored(store, 0, 5)
    assert not dead.exists()


def test_too_much_waiting_is_dropped_and_counted(store):
    hand = HandOff(store.folder, {}, spool_limit=10 * BLOCK)
    hand.process.send_signal(signal.SIGSTOP)
    assert hand.save(*blocks(0, 8), "chat")
    assert not hand.save(*blocks(8, 8), "chat")
    assert hand.dropped == 8
    hand.process.send_signal(signal.SIGCONT)
    assert hand.flush() and hand.save(*blocks(8, 8), "chat")
    hand.close()
    assert_stored(store, 0, 16)


def test_damaged_files_and_a_full_disk_are_reported(store, tmp_path, monkeypatch):
    spool = tmp_path / "spool" / "mine"
    spool.mkdir(parents=True)
    writer = Writer(store, spool)
    (spool / "000000001.blocks").write_bytes(b"x" * 100)
    keys, data = blocks(0, 2)
    write_message(
        spool / "000000002.blocks", {"keys": [k.hex() for k in keys], "kind": "chat"}, data
    )

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.nodes, "write", full)
    writer.collect(spool)
    writer.commit_all()
    status = json.loads((spool / "status.json").read_text())
    assert status["problem"] == "No space left on device" and status["stored"] == 0
    assert not list(spool.glob("*.blocks"))
    monkeypatch.undo()
    write_message(
        spool / "000000003.blocks", {"keys": [k.hex() for k in keys], "kind": "chat"}, data
    )
    writer.collect(spool)
    writer.commit_all()
    assert_stored(store, 0, 2)


def test_the_engine_hears_of_the_writers_problem(store, hand):
    hand.spool.mkdir(parents=True, exist_ok=True)
    (hand.spool / "status.json").write_text('{"problem": "No space left on device"}')
    with pytest.warns(RuntimeWarning, match="No space left on device; blocks are not saved"):
        hand.flush()
    assert not hand.save(*blocks(0, 1), "chat")
