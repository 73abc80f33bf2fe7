"""The shared store: right bytes or a miss, whatever is lost, full, evicted or set back."""

import errno
import itertools
import os
import random
import shutil
import sqlite3
import time

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from minimoe.errors import MinimoeError
from minimoe.kvstore import repair as repair_module
from minimoe.kvstore.erasure import StripeCode
from minimoe.kvstore.metadata import StoreError
from minimoe.kvstore.repair import drop_unreadable, join_small, repair
from minimoe.kvstore.segments import NodeFolders
from minimoe.kvstore.store import BlockStore, open_store

BLOCK = 512


def key(i):
    return i.to_bytes(32, "big")


def value(i):
    return random.Random(i).randbytes(BLOCK)


def make(folder, **settings):
    return BlockStore(folder, "model A", BLOCK, **{"segment_bytes": 16 * BLOCK} | settings)


def put(store, numbers, kind="chat"):
    return store.put([(key(i), value(i)) for i in numbers], kind)


def readable(store, numbers):
    """Leading blocks that can be read, each compared with what was put."""
    numbers = list(numbers)
    out = np.zeros((len(numbers), BLOCK), np.uint8)
    count, lost = store.get([key(i) for i in numbers], out)
    for row in range(count):
        assert out[row].tobytes() == value(numbers[row])
    return count, lost


@pytest.fixture
def store(tmp_path):
    store = make(tmp_path / "kv")
    yield store
    store.close()


def test_what_was_put_is_read_by_another_process_object(store):
    assert put(store, range(40)) == 40
    other = make(store.folder)
    assert other.lookup([key(i) for i in range(50)]) == 40
    assert readable(other, range(50)) == (40, [])
    assert readable(other, [39, 3, 17, 3]) == (4, [])  # any order, repeats too
    assert readable(other, [40, 0]) == (0, [])
    other.close()


def test_a_block_is_stored_once(store):
    assert put(store, range(20)) == 20
    assert put(store, range(10, 30)) == 10
    other = make(store.folder)
    assert put(other, range(30)) == 0
    assert store.stats()["blocks"] == 30
    other.close()


@pytest.mark.parametrize("numbers", [range(5), range(40), [3, 4, 3], [38, 39, 50, 51]])
def test_a_run_is_stored_as_single_blocks_are(store, numbers):
    put(store, range(35, 40))
    run = bytearray(b"".join(value(i) for i in numbers))
    new = set(numbers) - set(range(35, 40))
    assert store.put_run([key(i) for i in numbers], memoryview(run)) == len(new)
    run[:] = bytes(len(run))  # the caller may use its buffer again
    assert readable(store, numbers) == (len(numbers), [])
    with pytest.raises(StoreError, match="511 bytes for 1 blocks of 512 bytes"):
        store.put_run([key(9)], memoryview(bytes(BLOCK - 1)))


def test_segments_are_gathered_and_spread_over_all_folders(store):
    put(store, range(160))
    assert store.stats()["segments"] == 10
    counts = [len(os.listdir(folder)) for folder in store.nodes.folders]
    assert counts == [10] * 12
    parity = {store.nodes.path(s.name, 11) for s in store.meta.all_segments()}
    assert len({os.path.dirname(path) for path in parity}) > 1


@pytest.mark.parametrize("damage", ["delete", "flip"])
def test_any_two_folders_may_go_and_repair_restores_twelve(store, damage):
    put(store, range(32))
    for pair in itertools.combinations(store.nodes.folders, 2):
        for folder in pair:
            if damage == "delete":
                shutil.rmtree(folder)
            else:
                spoil_all(folder, damage)
        assert readable(store, range(32)) == (32, [])
        report = repair(store)
        assert (report.shards_rebuilt, report.segments_dropped) == (2 * 2, 0)
    segments = store.meta.all_segments()
    assert all(len(store.reader.good_shards(s)) == 12 for s in segments)


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "empty"])
def test_two_damaged_folders_are_seen_and_rebuilt(store, damage):
    put(store, range(64))
    for node in (3, 8):
        spoil_all(store.nodes.folders[node], damage)
    assert readable(store, range(64)) == (64, [])
    assert repair(store).shards_rebuilt == 8


def spoil_all(folder, damage):
    for name in os.listdir(folder):
        spoil(os.path.join(folder, name), damage)


def spoil(path, damage):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    if damage == "flip":
        data[len(data) // 2] ^= 4
    else:
        data = {"cut": data[:-1], "grow": data + b"x", "empty": b""}[damage]
    with open(path, "wb") as file:
        file.write(data)


def test_three_lost_are_a_miss_and_the_key_can_be_put_again(store):
    put(store, range(16))
    for node in (0, 1, 2):
        shutil.rmtree(store.nodes.folders[node])
    data_lost = [n for n in (0, 1, 2) if n in node_of_data(store)]
    count, lost = readable(store, range(16))
    assert count < 16 if data_lost else count == 16
    if lost:
        assert drop_unreadable(store, lost) == 1
        assert put(store, range(16)) == 16
    assert readable(store, range(16)) == (16, [])


def node_of_data(store):
    segment = store.meta.all_segments()[0]
    folders = [os.path.dirname(store.nodes.path(segment.name, i)) for i in range(10)]
    return [store.nodes.folders.index(folder) for folder in folders]


def test_repair_drops_what_is_past_help(store):
    put(store, range(32))
    for node in range(3):
        shutil.rmtree(store.nodes.folders[node])
    assert repair(store).segments_dropped == 2
    assert store.lookup([key(0)]) == 0 and put(store, range(32)) == 32


def test_repair_from_the_command_line(store, capsys, monkeypatch, tmp_path):
    put(store, range(32))
    shutil.rmtree(store.nodes.folders[5])
    monkeypatch.setattr("sys.argv", ["repair", str(store.folder)])
    repair_module.main()
    assert "shards rebuilt 2" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["repair", str(tmp_path / "none")])
    with pytest.raises(SystemExit, match="error: no KV store in"):
        repair_module.main()


def test_a_folder_that_cannot_be_written_costs_one_shard(store):
    path = store.nodes.folders[4]
    with open(path, "w") as file:
        file.write("not a folder")
    assert put(store, range(16)) == 16
    assert readable(store, range(16)) == (16, [])
    os.unlink(path)
    assert repair(store).shards_rebuilt == 1


def test_strangers_are_removed(store):
    put(store, range(16))
    with open(os.path.join(store.nodes.folders[0], "deadbeefdeadbeef"), "w") as file:
        file.write("left by a node that came back")
    assert repair(store).strangers_removed == 1
    assert readable(store, range(16)) == (16, [])


def test_the_quota_is_kept_and_the_oldest_go_first(tmp_path):
    store = make(tmp_path, quota_bytes=4 * 2**20)
    for start in range(0, 3000, 16):
        put(store, range(start, start + 16))
        assert store.meta.used() <= store.quota_bytes
    on_disk = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(tmp_path) for f in fs)
    assert on_disk <= store.quota_bytes
    assert store.lookup([key(0)]) == 0 and store.lookup([key(2991)]) == 1
    assert repair(store).strangers_removed == 0
    store.close()


def test_a_touched_segment_outlives_others_and_a_head_its_tail(tmp_path):
    store = make(tmp_path, quota_bytes=4 * 2**20)
    put(store, range(48))  # three segments of one chain
    store.touch([key(i) for i in range(48)])
    start = 1000
    while store.lookup([key(0)]):
        held = store.lookup([key(i) for i in range(48)])
        assert held in (16, 32, 48)  # never a tail without its head
        put(store, range(start, start + 16))
        start += 16
    assert not store.lookup([key(47)])
    store.close()


class Clock:
    def __init__(self):
        self.time = 1e9

    def __call__(self):
        return self.time


def test_retention_by_class(tmp_path):
    clock = Clock()
    store = make(tmp_path, retention={"agent": 100, "chat": 1000}, clock=clock)
    put(store, range(16), "agent")
    put(store, range(16, 32), "chat")
    clock.time += 500
    assert store.sweep() == 1
    assert (store.lookup([key(0)]), store.lookup([key(16)])) == (0, 1)
    store.touch([key(16)])
    clock.time += 900
    assert store.sweep() == 0
    clock.time += 200
    assert store.sweep() == 1
    store.close()


def test_agents_make_room_before_chats(tmp_path):
    store = make(tmp_path, quota_bytes=4 * 2**20)
    put(store, range(16), "chat")
    put(store, range(16, 32), "agent")
    for start in itertools.count(1000, 16):
        if not store.lookup([key(16)]):
            break
        put(store, range(start, start + 16), "chat")
    assert store.lookup([key(0)]) == 1
    store.close()


def test_a_clock_set_back_drops_nothing_and_keeps_the_order(tmp_path):
    clock = Clock()
    store = make(tmp_path, quota_bytes=4 * 2**20, clock=clock)
    put(store, range(16))
    clock.time -= 30 * 86400
    put(store, range(16, 32))
    assert store.sweep() == 0
    for start in itertools.count(1000, 16):
        if not store.lookup([key(0)]):
            break
        put(store, range(start, start + 16))
    assert store.lookup([key(start - 16)]) == 1
    store.close()


def test_a_foreign_store_is_refused_with_both_named(store):
    with pytest.raises(StoreError) as error:
        BlockStore(store.folder, "model B", BLOCK)
    assert "model A" in str(error.value) and "model B" in str(error.value)
    with pytest.raises(StoreError, match="512 bytes a block.*1024 bytes a block"):
        BlockStore(store.folder, "model A", 1024)
    with pytest.raises(StoreError, match=r"10\+2.*4\+2"):
        BlockStore(store.folder, "model A", BLOCK, code=StripeCode(4, 2))


def test_unusable_folders_are_one_line(tmp_path, store):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="file") as error:
        make(tmp_path / "file")
    assert "\n" not in str(error.value)
    with pytest.raises(StoreError, match="no KV store in"):
        open_store(tmp_path / "nothing")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "metadata.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreError, match="start afresh"):
        make(tmp_path / "broken")
    with pytest.raises(StoreError, match="quota of 5 bytes"):
        make(tmp_path / "small", quota_bytes=5)
    with pytest.raises(MinimoeError, match="class 'movie'"):
        put(store, range(3), "movie")
    with pytest.raises(StoreError, match="512 bytes"):
        store.put([(key(1), b"short")])


def test_a_read_only_folder_is_one_line(tmp_path, monkeypatch):
    make(tmp_path).close()

    def refuse(*args, **kwargs):
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr("minimoe.kvstore.metadata.sqlite3.connect", refuse)
    with pytest.raises(StoreError, match="readonly database; give a folder that can be written"):
        make(tmp_path)


def test_an_existing_store_opens_by_folder_alone(store):
    put(store, range(16))
    other = open_store(store.folder)
    assert readable(other, range(16)) == (16, [])
    other.close()


def full_after(monkeypatch, writes):
    """From the given write on, the disk is full."""
    original, left = NodeFolders._write_one, [writes]

    def write(self, path, shard):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        original(self, path, shard)

    monkeypatch.setattr(NodeFolders, "_write_one", write)


@pytest.mark.parametrize("writes", [0, 1, 11, 12 + 7])
def test_a_full_disk_undoes_the_segment_and_no_more(store, monkeypatch, writes):
    put(store, range(16))
    with monkeypatch.context() as patch:
        full_after(patch, writes)
        with pytest.raises(OSError, match="No space left"):
            put(store, range(16, 48))
    stored = 16 + 16 * (writes // 12)
    assert store.lookup([key(i) for i in range(48)]) == stored
    assert readable(store, range(stored)) == (stored, [])
    assert repair(store).strangers_removed == 0
    assert put(store, range(16, 48)) == 48 - stored


def test_small_segments_are_joined(store):
    for i in range(40):
        put(store, [i], "agent" if i % 2 else "chat")
    assert store.stats()["segments"] == 40
    assert join_small(store, below=8 * BLOCK) == 32
    assert store.stats()["segments"] == 12 and store.stats()["blocks"] == 40
    assert readable(store, range(40)) == (40, [])
    assert repair(store).strangers_removed == 0


class Killed(BaseException):
    """The end of a writer, at a point where it can do nothing more."""


def kill(monkeypatch, store, target, name):
    """Let the writer die when it calls `target.name`, with no time for anything else."""

    def die(*args, **kwargs):
        raise Killed

    monkeypatch.setattr(target, name, die)
    monkeypatch.setattr(store.journal, "_finish_left_over", lambda: None)


@pytest.mark.parametrize("name", ["insert", "place", "forget_plan"])
def test_a_writer_killed_between_files_and_commit_leaves_nothing(store, monkeypatch, name):
    put(store, range(16))
    with monkeypatch.context() as patch:
        kill(patch, store, store.meta, name)
        with pytest.raises(Killed):
            put(store, range(16, 32))
    other = make(store.folder)
    assert other.lookup([key(16)]) == 0
    assert sum(len(os.listdir(folder)) for folder in store.nodes.folders) == 24
    assert put(other, range(16, 32)) == 16
    assert repair(other).strangers_removed == 0
    assert readable(other, range(32)) == (32, [])
    other.close()


@pytest.mark.parametrize("name", ["remove", "write"])
def test_a_writer_killed_while_it_makes_room(tmp_path, monkeypatch, name):
    store = make(tmp_path, quota_bytes=4 * 2**20)
    for start in range(0, 1200, 16):
        put(store, range(start, start + 16))
    while not store._victims(store.disk_bytes(4096)):
        put(store, range(start, start + 16))
        start += 16
    full = store.stats()["segments"]
    with monkeypatch.context() as patch:
        kill(patch, store, store.nodes, name)
        with pytest.raises(Killed):
            put(store, range(9000, 9016))
    store.sweep()  # any later write finishes the job
    assert full - 2 <= store.stats()["segments"] < full
    assert all(len(store.reader.good_shards(s)) == 12 for s in store.meta.all_segments())
    assert repair(store).strangers_removed == 0
    store.close()


class StoreMachine(RuleBasedStateMachine):
    """Puts, losses, bit flips and repairs: what is read is right, and what should be there is."""

    def __init__(self):
        super().__init__()
        self.folder = f"/tmp/minimoe-store-{os.getpid()}-{time.monotonic_ns()}"
        self.store = make(self.folder, segment_bytes=4 * BLOCK)
        self.stored, self.hurt = set(), set()

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(
        start=st.integers(0, 20), count=st.integers(1, 9), kind=st.sampled_from(["chat", "agent"])
    )
    def put(self, start, count, kind):
        put(self.store, range(start, start + count), kind)
        self.stored |= set(range(start, start + count))

    @rule(node=st.integers(0, 11), flip=st.booleans())
    def hurt_a_node(self, node, flip):
        if len(self.hurt | {node}) > 2:
            return
        folder = self.store.nodes.folders[node]
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            spoil(os.path.join(folder, name), "flip") if flip else os.unlink(f"{folder}/{name}")
        self.hurt.add(node)

    @rule()
    def repair(self):
        assert repair(self.store).segments_dropped == 0
        self.hurt = set()

    @rule()
    def join(self):
        join_small(self.store, below=6 * BLOCK)

    @rule(numbers=st.lists(st.integers(0, 30), max_size=12))
    def read(self, numbers):
        count, lost = readable(self.store, numbers)
        first_missing = next(
            (i for i, n in enumerate(numbers) if n not in self.stored), len(numbers)
        )
        assert (count, lost) == (first_missing, [])

    @invariant()
    def counts_agree(self):
        assert self.store.stats()["blocks"] == len(self.stored)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
