"""`Member`: one rank's process as its parent sees it: messages to and fro, last words, its end."""

import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress

from minimoe.config import REPO
from minimoe.parallel import frames

TAIL = 2000  # characters of a dead rank's stderr that an error shows


class Member:
    """One process. A thread of the parent waits for its answers and puts them into `inbox`."""

    def __init__(self, index: int, device: str, start: tuple, inbox: queue.SimpleQueue):
        self.index, self.device = index, device
        self.lost = False  # to be left out when the group forms again
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        self.process = subprocess.Popen(
            command(device, *start),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=_environment(),
        )
        threading.Thread(target=self._listen, args=(inbox,), daemon=True).start()

    def _listen(self, inbox: queue.SimpleQueue) -> None:
        """Runs in its own thread; the last thing it reports is the end of the process."""
        try:
            while True:
                inbox.put((self, *frames.receive(self.process.stdout)))
        except (EOFError, OSError, ValueError):
            inbox.put((self, None, ("dead",)))

    def send(self, message) -> None:
        """To a rank that has died, in vain: its death is reported by `_listen`."""
        with suppress(OSError):
            frames.send(self.process.stdin, message)

    @property
    def dead(self) -> bool:
        """True once the process has ended."""
        return self.process.poll() is not None

    def last_words(self) -> str:
        """The end of its stderr."""
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - TAIL))
        return self.errors.read().decode(errors="replace").strip()

    def kill(self) -> None:
        """End the process now, and wait until it is buried."""
        self.process.kill()
        self.process.wait()
        with suppress(OSError):
            self.process.stdin.close()


def command(device: str, store: str, threads: int, timeout: float) -> list[str]:
    """What starts a rank."""
    options = {"--store": store, "--device": device, "--threads": threads, "--timeout": timeout}
    words = [str(word) for pair in options.items() for word in pair]
    return [sys.executable, "-m", "minimoe.parallel.rank", *words]


def _environment() -> dict[str, str]:
    """Ranks import what the parent imports, and talk over the loopback."""
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join([str(REPO), *(path or os.getcwd() for path in sys.path)])
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if loopback:
        env.setdefault("GLOO_SOCKET_IFNAME", loopback[0])
    return env
