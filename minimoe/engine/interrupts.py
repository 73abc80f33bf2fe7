"""Ctrl-C between steps, not inside one: no block is half handed out when it strikes."""

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
            self._previous = signal.signal(signal.SIGINT, self._catch)
        return self

    def _catch(self, *args) -> None:
        self._caught = args

    def deliver(self) -> None:
        """Let the handler that was there before have the signal, if one has come."""
        if self._caught is not None:
            args, self._caught = self._caught, None
            if callable(self._previous):
                self._previous(*args)

    def __exit__(self, *error) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._previous)
        self.deliver()
