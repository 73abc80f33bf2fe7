"""One rank: a process that does what its parent says, together with the other ranks.

`python -m minimoe.parallel.rank` is started by `supervisor.py`, never by hand. Orders come on
stdin and answers go to stdout. When stdin ends, the parent has gone and the rank ends at once,
whatever it is doing. What a function prints goes to stderr, which the parent keeps in a file.
"""

import argparse
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from minimoe.errors import MinimoeError
from minimoe.parallel import frames
from minimoe.parallel.wire import LinkBroken, Wire


@dataclass
class Context:
    """What a function called on a rank gets as its first argument.

    `rank`, `size` and `generation` change when the group re-forms; `state` is the functions' own
    and lives as long as the process.
    """

    device: str
    wire: Wire = field(init=False)
    rank: int = 0
    size: int = 1
    generation: int = 0
    state: dict = field(default_factory=dict)

    def __post_init__(self):
        self.wire = Wire(self.device)

    def form(self, store, generation: int, rank: int, size: int, timeout: float) -> None:
        """Join generation `generation` of the group; LinkBroken when it does not come about."""
        self.generation, self.rank, self.size = generation, rank, size
        own = dist.PrefixStore(f"generation-{generation}", store)
        self.wire.join(own, rank, size, timeout)


def main() -> None:
    """Take orders until the parent goes."""
    options = _options()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a stray print must not end up among the answers
    orders: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    torch.set_num_threads(options.threads)
    if options.device.startswith("cuda"):
        torch.cuda.set_device(options.device)
    host, _, port = options.store.rpartition(":")
    wait = timedelta(seconds=options.timeout)
    store = dist.TCPStore(host, int(port), is_master=False, timeout=wait)
    context = Context(device=options.device)
    frames.send(answers, (0, ("ok", os.getpid())))
    while True:
        serial, order = orders.get()
        frames.send(answers, (serial, _obey(context, store, order)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m minimoe.parallel.rank")
    parser.add_argument("--store", required=True, help="HOST:PORT of the parent's store")
    parser.add_argument("--device", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--timeout", type=float, required=True, help="seconds to find the store")
    return parser.parse_args()


def _listen(orders: queue.SimpleQueue) -> None:
    """Pass orders on, and notice the parent's end."""
    while True:
        try:
            order = frames.receive(sys.stdin.buffer)
        except (EOFError, OSError):
            os._exit(0)  # the parent has gone: end even in the middle of a message
        orders.put(order)


def _obey(context: Context, store, order: bytes) -> tuple:
    """("ok", value), ("broken", reason) when peers were lost, or ("error", summary, traceback)."""
    try:
        what, args, kwargs = pickle.loads(order)
        if what == "form":
            return "ok", context.form(store, *args)
        return "ok", what(context, *args, **kwargs)
    except LinkBroken as error:
        context.wire.leave()
        return "broken", str(error)
    except Exception as error:  # whatever the function raised is the parent's to see
        context.wire.leave()
        kind = "bad input" if isinstance(error, MinimoeError) else type(error).__name__
        return "error", kind, str(error), traceback.format_exc()


if __name__ == "__main__":
    main()
