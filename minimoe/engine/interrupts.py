"""Ctrl-C between steps, not inside one: no block is half handed out when it strikes."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupt_after() -> Iterator[None]:
    """Hold back SIGINT while the body runs, then let the previous handler have it.

    Outside the main thread, where Python delivers no signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught = []
    previous = signal.signal(signal.SIGINT, lambda *args: caught.append(args))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if caught and callable(previous):
        previous(*caught[-1])
