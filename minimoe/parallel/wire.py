"""The wire between ranks: all-to-all with uneven parts, every byte counted.

`Wire` is one real rank of a torch.distributed group (gloo on CPUs, NCCL on GPUs). `VirtualWire`
carries the same messages between P virtual ranks inside one process.
"""

import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from minimoe.errors import EngineError
from minimoe.parallel.tally import Bytes, Times


class LinkBroken(EngineError):
    """A message did not come through: a peer has died, left the group, or kept silent too long."""


def open_group(device: str, store, rank: int, size: int, timeout: float):
    """A process group of torch.distributed: gloo, or NCCL for a CUDA device.

    It is not registered as the default group: modules of torch that are imported later would hold
    on to it, and a group that is held cannot hang up, so others would wait for it in vain.
    """
    wait = timedelta(seconds=timeout)
    if not device.startswith("cuda"):
        return dist.ProcessGroupGloo(store, rank, size, wait)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = wait
    return dist.ProcessGroupNCCL(store, rank, size, options)


class Wire:
    """One rank's end. `join` a group when it has formed; `leave` hangs up.

    With `apart` set, ranks meet before each message, so that the time spent waiting for slower
    ranks is told from the time that the message takes; it costs a meeting per message.
    """

    def __init__(self, device: str = "cpu"):
        self.device, self.rank, self.size = device, 0, 1
        self._group = None
        self.apart = False
        self.times, self.bytes = Times(), Bytes()
        self.pairs = [0]  # of this rank's tokens, by the rank that computes them

    def join(self, store, rank: int, size: int, timeout: float) -> None:
        """Be `rank` of a new group of `size` ranks that meet by `store`.

        Raises LinkBroken when one of them does not come within `timeout` seconds.
        """
        self.leave()
        with _link_errors("the group did not form"):
            self._group = open_group(self.device, store, rank, size, timeout)
        self.rank, self.size = rank, size
        self.gather(None)  # all are here
        self.reset()

    def leave(self) -> None:
        """Hang up: whoever waits for this rank learns that it has gone."""
        self._group = None

    def reset(self) -> None:
        """Forget times, bytes and pairs so far."""
        self.times.reset()
        self.bytes.clear()
        self.pairs = [0] * self.size

    def counts(self, counts: torch.Tensor) -> torch.Tensor:
        """`counts [P, n]`, row q for rank q, to what the others have for this rank, `[P, n]`."""
        ones = [1] * self.size
        return self.all_to_all(counts, ones, ones, "counts")

    def all_to_all(
        self, rows: torch.Tensor, send: Sequence[int], receive: Sequence[int], kind: str
    ) -> torch.Tensor:
        """Send `send[q]` of `rows [n, ...]` to rank q, in order; gives what came, rank by rank.

        Raises LinkBroken when it fails or takes longer than the group's timeout.
        """
        out = rows.new_empty(sum(receive), *rows.shape[1:])
        if self.size == 1:
            return out.copy_(rows)
        self.meet()
        self._timed(lambda: self._group.alltoall_base(out, rows, list(receive), list(send)).wait())
        row = rows[0:1].numel() * rows.itemsize if len(rows) else out[0:1].numel() * out.itemsize
        sent, received = (sum(part) - part[self.rank] for part in (send, receive))
        self.bytes.add(kind, sent * row, received * row)
        return out

    def gather(self, value) -> list:
        """One picklable value per rank, rank by rank."""
        data = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        data = data.to(self.device).repeat(self.size)
        mine = [len(data) // self.size] * self.size
        sizes = self.all_to_all(
            torch.tensor(mine, device=self.device), *[[1] * self.size] * 2, "gather"
        )
        parts = self.all_to_all(data, mine, sizes.tolist(), "gather").cpu().split(sizes.tolist())
        return [pickle.loads(bytes(part.numpy())) for part in parts]

    def meet(self) -> None:
        """Wait for the others, where waiting is measured apart."""
        if self.apart:
            start = time.perf_counter()
            self.barrier()
            self.times.waiting += time.perf_counter() - start

    def barrier(self) -> None:
        """Wait until all ranks have come here."""
        if self.size > 1:
            with _link_errors():
                self._group.barrier().wait()
                if self.device != "cpu":
                    torch.cuda.synchronize()

    def _timed(self, run: Callable) -> None:
        start = time.perf_counter()
        with _link_errors():
            run()
            if self.apart and self.device != "cpu":
                torch.cuda.synchronize()
        self.times.exchange += time.perf_counter() - start


@contextmanager
def _link_errors(what: str = "lost touch with the other ranks"):
    """torch.distributed tells of a lost peer by RuntimeErrors of many texts."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0].split(". ")[0]  # the rest is advice
        raise LinkBroken(f"{what}: {reason}") from error


class VirtualWire:
    """P ranks in one process: each call takes and gives a list with an entry per rank."""

    def __init__(self, size: int):
        self.size = size
        self.bytes = [Bytes() for _ in range(size)]

    def counts(self, counts: list[torch.Tensor]) -> list[torch.Tensor]:
        """`[P, n]` per rank, row q for rank q, to `[P, n]` per rank, row q from rank q."""
        ones = [[1] * self.size] * self.size
        return self.all_to_all(counts, ones, "counts")

    def all_to_all(
        self, rows: list[torch.Tensor], send: list[Sequence[int]], kind: str
    ) -> list[torch.Tensor]:
        """Rank r sends `send[r][q]` of `rows[r]` to rank q, in order."""
        parts = [part.split(list(sizes)) for part, sizes in zip(rows, send, strict=True)]
        out = [torch.cat([parts[q][r] for q in range(self.size)]) for r in range(self.size)]
        for r in range(self.size):
            row = rows[r].stride(0) * rows[r].itemsize
            sent = sum(send[r]) - send[r][r]
            received = sum(send[q][r] for q in range(self.size)) - send[r][r]
            self.bytes[r].add(kind, sent * row, received * row)
        return out
