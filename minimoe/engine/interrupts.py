"""Ctrl-C between steps, not inside one: no block is half handed out when it strikes."""

import os
import signal
import threading


class Interrupts:
    """While the `with` block runs, SIGINT waits for `deliver`, or for the end of the block.

    Outside the main thread, where Python delivers no signals, it does nothing.
    """

    def __enter__(self) -> "Interrupts":
        self._caught = None
        self._main = threading.current_thread() is threading.main_thread()
        if self._main:
            # None: a handler that was not set from Python, which cannot be put back
            self._previous = signal.signal(signal.SIGINT, self._catch) or signal.SIG_DFL
        return self

    def _catch(self, *args) -> None:
        self._caught = args

    def deliver(self) -> None:
        """Let the handler that was there before have the signal, if one has come."""
        if self._caught is None:
            return
        args, self._caught = self._caught, None
        if callable(self._previous):
            self._previous(*args)
        elif self._previous is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)

    def __exit__(self, *error) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._previous)
        self.deliver()
