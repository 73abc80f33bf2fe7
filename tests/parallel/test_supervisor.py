"""Real processes: calls, errors, deaths, re-forming, and nobody left behind."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import rank_functions as on_rank

from minimoe.errors import EngineError, MinimoeError
from minimoe.parallel import member, supervisor
from minimoe.parallel.supervisor import RankError, Ranks, RanksLost


@pytest.fixture(scope="module")
def ranks():
    """Three ranks; tests that lose some start their own."""
    with Ranks(3, timeout=20) as group:
        yield group


def gone(pid: int) -> bool:
    """No such process, within a bounded time."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_values_come_back_rank_by_rank(ranks):
    said = ranks.call(on_rank.who)
    assert [one[:2] for one in said] == [(0, 3), (1, 3), (2, 3)]
    assert [one[3] for one in said] == ranks.pids
    assert all(one[4] == 1 for one in said), "a rank keeps to one thread"
    each = ranks.call_each(on_rank.gather, [("a",), ("b",), ("c",)])
    assert each == [["a", "b", "c"]] * 3


def test_prints_do_not_disturb(ranks):
    assert ranks.call(on_rank.chatter) == ["said"] * 3


def test_an_error_brings_the_ranks_own_traceback_and_the_group_goes_on(ranks):
    before = ranks.pids
    with pytest.raises(RankError) as caught:
        ranks.call(on_rank.fail, 1)
    assert caught.value.rank == 1
    assert "in fail" in str(caught.value) and "the reason" in str(caught.value)
    assert ranks.call(on_rank.gather) == [[0, 1, 2]] * 3
    assert ranks.pids == before


def test_what_cannot_be_sent_is_said(ranks):
    with pytest.raises(MinimoeError, match="cannot be sent"):
        ranks.call(lambda context: None)
    with pytest.raises(MinimoeError, match="2 argument lists for 3 ranks"):
        ranks.call_each(on_rank.gather, [(), ()])
    assert ranks.call(on_rank.gather) == [[0, 1, 2]] * 3


def test_deaths_silence_and_reforming(monkeypatch):
    """4 ranks, less one by SIGKILL from within, one from outside, one by silence."""
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.5)
    with Ranks(4, timeout=2) as group:
        with pytest.raises(RanksLost) as lost:
            group.call(on_rank.die, 2)
        assert lost.value.ranks == [2]
        assert group.reform() == 3
        assert group.call(on_rank.gather) == [[0, 1, 2]] * 3
        group.kill(0)
        with pytest.raises(RanksLost) as lost:
            group.call(on_rank.gather)
        assert 0 in lost.value.ranks
        assert group.reform() == 2
        start = time.monotonic()
        with pytest.raises(RanksLost) as lost:
            group.call(on_rank.stop, 1)
        assert lost.value.ranks == [1]
        assert time.monotonic() - start < 25, "a silent rank is given up in bounded time"
        assert group.reform() == 1
        assert group.call(on_rank.gather) == [[0]]
        group.kill(0)
        with pytest.raises(EngineError, match="all ranks have died"):
            gone(group.pids[0])
            group.reform()


def test_a_rank_that_dies_while_the_group_forms(monkeypatch):
    """The others wait for it in vain, and then form without it; they must not be given up too."""
    with Ranks(3, timeout=2) as group:
        send, victims = member.Member.send, [group.members[0]]

        def send_to_the_dying(one, message):
            if one in victims:
                victims.remove(one)
                one.process.kill()
            send(one, message)

        monkeypatch.setattr(member.Member, "send", send_to_the_dying)
        assert group.reform() == 2
        assert group.call(on_rank.gather) == [[0, 1]] * 2


def test_closing_leaves_no_process():
    group = Ranks(2)
    pids = group.pids
    group.close()
    assert all(gone(pid) for pid in pids)
    with pytest.raises(EngineError, match="have ended"):
        group.call(on_rank.who)


def test_ranks_end_when_their_parent_is_killed():
    """Even one that is busy: it notices by the end of its stdin."""
    code = (
        "import sys, rank_functions, threading, time\n"
        "from minimoe.parallel.supervisor import Ranks\n"
        "group = Ranks(2)\n"
        "print(*group.pids, flush=True)\n"
        "group.call(rank_functions.sleep, 600)\n"
    )
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env)
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert all(gone(pid) for pid in pids)


def test_a_rank_that_does_not_start_shows_its_last_words(monkeypatch):
    broken = [sys.executable, "-c", "import no_such_module_of_mine"]
    monkeypatch.setattr(member, "command", lambda *args: broken)
    with pytest.raises(EngineError, match="no_such_module_of_mine"):
        Ranks(2)


def test_a_rank_that_never_reports_is_given_up(monkeypatch):
    monkeypatch.setattr(
        member, "command", lambda *args: [sys.executable, "-c", "import time; time.sleep(60)"]
    )
    monkeypatch.setattr(supervisor, "START_SECONDS", 0.5)
    with pytest.raises(EngineError, match="did not start"):
        Ranks(1)


def test_a_port_in_use():
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(MinimoeError, match=f"port {port} cannot be used"):
            Ranks(2, port=port)


@pytest.mark.parametrize("port", [-1, 70_000, "http"])
def test_a_port_that_cannot_be(port):
    with pytest.raises(MinimoeError, match=f"port is {port!r}: it must be 1 to 65535"):
        Ranks(1, port=port)


def test_an_order_that_only_some_have_got(ranks, monkeypatch):
    """Ctrl-C between two sends: the next call must not meet ranks that are in another one."""
    sent = []

    def interrupt(one, message):
        sent.append(one)
        if len(sent) == 2:
            raise KeyboardInterrupt
        send(one, message)

    send = member.Member.send
    with monkeypatch.context() as patch:
        patch.setattr(member.Member, "send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ranks.call(on_rank.who)
    generation = ranks.generation
    assert ranks.call(on_rank.gather) == [[0, 1, 2]] * 3
    assert ranks.generation == generation + 1


@pytest.mark.parametrize("size", [0, -1, 1.5, "2"])
def test_a_size_that_cannot_be(size):
    with pytest.raises(MinimoeError, match="number of ranks"):
        Ranks(size)


def test_cuda_needs_a_gpu_per_rank():
    with pytest.raises(MinimoeError, match="need 99 GPUs"):
        Ranks(99, device="cuda")
