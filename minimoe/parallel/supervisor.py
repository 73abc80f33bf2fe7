"""`Ranks`: P processes on this machine, started, called, counted, buried and re-formed from here.

    with Ranks(4) as ranks:
        ranks.call(function, argument)        # function(context, argument) on every rank

The parent owns the store through which ranks find each other. Every time the group forms, it does
so under a new prefix of that store, a *generation*, so that nothing of a broken group is found.
"""

import pickle
import queue
import time
import weakref
from datetime import timedelta

from minimoe.errors import EngineError, MinimoeError
from minimoe.parallel.member import Member

START_SECONDS = 120.0  # for a process to import torch and report, on a busy laptop
CALL_SECONDS = 600.0  # for one call, unless the caller says otherwise
GRACE_SECONDS = 5.0  # beyond the group's timeout, before a silent rank is given up


class RankError(EngineError):
    """A function raised on a rank. The message ends with that rank's own traceback."""

    def __init__(self, rank: int, kind: str, reason: str, trace: str):
        super().__init__(f"rank {rank} raised {kind}: {reason}\n{trace}")
        self.rank, self.kind, self.reason, self.traceback = rank, kind, reason, trace


class RanksLost(EngineError):
    """Ranks have died or went silent, and the group is broken: `reform` goes on without them."""

    def __init__(self, ranks: list[int], reasons: list[str]):
        lost = ", ".join(map(str, ranks)) or "none"
        super().__init__(f"lost ranks: {lost}; " + "; ".join(reasons))
        self.ranks = ranks


class Ranks:
    """A group of processes, formed and ready for `call`.

    Args:
        size: P, how many.
        device: "cpu" for gloo; "cuda" for NCCL, one GPU per rank.
        timeout: seconds that a message between ranks may take before its sender gives up.
        threads: torch threads per rank.
        port: of the store; 0 for any free one.

    Raises MinimoeError for a size, device or port that cannot be, EngineError when a rank does not
    start, with what it wrote to stderr.
    """

    def __init__(
        self,
        size: int,
        device: str = "cpu",
        timeout: float = 30.0,
        threads: int = 1,
        port: int = 0,
    ):
        if not isinstance(size, int) or size < 1:
            raise MinimoeError(f"the number of ranks is {size!r}: it must be 1 or more")
        self._devices, self._on_gpus = _devices(device, size), device != "cpu"
        self.timeout, self.generation = timeout, 0
        self._store = _store(port)
        self._start = (f"127.0.0.1:{self._store.port}", threads, START_SECONDS)
        self.whole = False
        self.members: list[Member] = []
        self._inbox: queue.SimpleQueue = queue.SimpleQueue()
        self._serial = 0  # of the last order: an answer to an older one is not waited for
        self._end = weakref.finalize(self, _bury, self.members)
        try:
            self._start_members(range(size))
            self.reform()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    @property
    def size(self) -> int:
        """P of the present generation."""
        return len(self.members)

    @property
    def pids(self) -> list[int]:
        """Process ids, rank by rank."""
        return [member.process.pid for member in self.members]

    def call(self, function, *args, within: float = CALL_SECONDS, **kwargs) -> list:
        """`function(context, *args, **kwargs)` on every rank; the values, rank by rank.

        The function must be one that an import finds: ranks get its name, not its code. Raises
        RankError if it raised on a rank, RanksLost if ranks died or did not answer `within`
        seconds.
        """
        return self.call_each(function, [args] * self.size, within, **kwargs)

    def call_each(
        self, function, args: list[tuple], within: float = CALL_SECONDS, **kwargs
    ) -> list:
        """Like `call`, with positional arguments for each rank."""
        if not self.members:
            raise EngineError("the ranks have ended: start a new group")
        if len(args) != self.size:
            raise MinimoeError(f"{len(args)} argument lists for {self.size} ranks: give one a rank")
        if not self.whole:
            self._reform_whole()
        return self._ask([(function, one, kwargs) for one in args], within)

    def _reform_whole(self) -> None:
        """After an error on a rank: the same ranks again. Raises RanksLost if one has died."""
        size = self.size
        self._mark_dead()
        lost = [rank for rank, member in enumerate(self.members) if member.lost]
        if lost:
            raise RanksLost(lost, ["call reform() to go on without them"])
        if self.reform() != size:
            raise RanksLost([], [f"{size - self.size} ranks died while the group formed again"])

    def reform(self) -> int:
        """Form a new generation of the ranks that are alive, numbered from 0 in their old order.

        Gives the new size. On CUDA the processes are started anew: one that waits for a lost peer
        inside a GPU kernel cannot be called back. Raises EngineError when no rank is left.
        """
        reason = "they are gone"
        for _ in range(self.size + 1):
            self._forget_lost(reason)
            if self.generation and self._on_gpus:
                self._restart()
            self.generation += 1
            orders = [
                ("form", (self.generation, rank, self.size, self.timeout), {})
                for rank in range(self.size)
            ]
            try:
                # Ranks that wait for one that died meanwhile give up after the timeout, not before.
                self._ask(orders, self.timeout + GRACE_SECONDS)
                return self.size
            except RanksLost as error:  # one more died meanwhile: without it, then
                reason = error
        raise EngineError(f"the group did not form again ({reason}): start a new one")

    def kill(self, rank: int) -> None:
        """SIGKILL a rank, as a fault would, without telling anyone."""
        self.members[rank].process.kill()

    def close(self) -> None:
        """End all ranks."""
        self._end()

    def _start_members(self, indices) -> None:
        new = [Member(i, self._devices[i], self._start, self._inbox) for i in indices]
        self.members += new
        answers = self._collect(new, serial=0, within=START_SECONDS)
        for member, said in zip(new, answers, strict=True):
            if said[0] != "ok":
                words = member.last_words() or "it wrote nothing to stderr"
                raise EngineError(f"rank {member.index} did not start ({said[0]}): {words}")

    def _restart(self) -> None:
        indices = [member.index for member in self.members]
        _bury(self.members)
        self._start_members(indices)

    def _mark_dead(self) -> None:
        for member in self.members:
            member.lost = member.lost or member.dead

    def _forget_lost(self, reason) -> None:
        if not self._on_gpus:  # there, the silent are killed too, but not lost
            self._mark_dead()
        for rank in reversed(range(self.size)):
            if self.members[rank].lost:
                self.members.pop(rank).kill()
        if not self.members:
            raise EngineError(f"all ranks have died ({reason}): start a new group")

    def _ask(self, orders: list[tuple], within: float) -> list:
        """Send an order to each rank and wait for all answers, each for a bounded time."""
        self._serial += 1
        packed = [_pack(*order) for order in orders]
        self.whole = False  # should Ctrl-C strike when only some have the order
        for member, order in zip(self.members, packed, strict=True):
            member.send((self._serial, order))
        self.whole = True
        answers = self._collect(self.members, self._serial, within)
        self.whole = all(said[0] == "ok" for said in answers)
        if not self.whole:
            self._raise(answers)
        return [said[1] for said in answers]

    def _collect(self, members: list[Member], serial: int, within: float) -> list[tuple]:
        """Their answers. Once one is lost, the others have the group's timeout to notice; on GPUs
        they would notice late or never, and are started anew anyway."""
        soon = GRACE_SECONDS + (0 if self._on_gpus else self.timeout)
        deadline = time.monotonic() + within
        answers = {member: ("dead",) if member.dead else ("silent",) for member in members}
        open_ = {member for member in members if answers[member] != ("dead",)}
        if len(open_) < len(members):
            deadline = min(deadline, time.monotonic() + soon)
        while open_:
            try:
                wait = max(0.0, deadline - time.monotonic())
                member, number, said = self._inbox.get(timeout=wait)
            except queue.Empty:
                break
            if member not in open_ or number not in (serial, None):
                continue
            open_.remove(member)
            answers[member] = said
            if said[0] != "ok":
                deadline = min(deadline, time.monotonic() + soon)
        return list(answers.values())

    def _raise(self, answers: list[tuple]) -> None:
        """An error on a rank comes first; ranks that died, or are silent and now killed, second."""
        for rank, said in enumerate(answers):
            if said[0] == "error":
                raise RankError(rank, *said[1:])
        reasons = [said[1] for said in answers if said[0] == "broken"]
        for member, said in zip(self.members, answers, strict=True):
            if said[0] in ("dead", "silent"):
                member.kill()
                member.lost = said[0] == "dead" or not self._on_gpus
                reasons.append(member.last_words()[-200:])
        lost = [rank for rank, member in enumerate(self.members) if member.lost]
        raise RanksLost(lost, [reason for reason in reasons if reason][:2])


def _pack(function, args: tuple, kwargs: dict) -> bytes:
    """One order. A rank imports the function by its name, so it must have one."""
    if getattr(function, "__module__", "") == "__main__":
        raise MinimoeError(
            f"{function!r} stands in no module: ranks import what they run, so put it in a file"
        )
    try:
        return pickle.dumps((function, args, kwargs))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise MinimoeError(f"this cannot be sent to a rank: {error}") from None


def _bury(members: list[Member]) -> None:
    """Kill and wait for every process, and take it off the list."""
    while members:
        members.pop().kill()


def _devices(device: str, size: int) -> list[str]:
    if device == "cpu":
        return ["cpu"] * size
    if device != "cuda":
        raise MinimoeError(f"the ranks' device is {device!r}: it must be 'cpu' or 'cuda'")
    import torch

    count = torch.cuda.device_count()
    if size > count:
        raise MinimoeError(
            f"{size} ranks on CUDA need {size} GPUs and there are {count}: use device='cpu'"
        )
    return [f"cuda:{index}" for index in range(size)]


def _store(port: int):
    from torch.distributed import TCPStore

    if not (isinstance(port, int) and 0 <= port < 2**16):
        raise MinimoeError(f"port is {port!r}: it must be 1 to {2**16 - 1}, or 0 for any free one")
    wait = timedelta(seconds=START_SECONDS)
    try:
        return TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, timeout=wait)
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise MinimoeError(
            f"port {port} cannot be used for the ranks' store ({reason}): choose another, "
            "or 0 for any free one"
        ) from None
