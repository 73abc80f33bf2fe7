"""An exclusive lock between processes, on a file. It ends with its holder, however that dies."""

import os
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


class FileLock:
    """`with FileLock(path):` waits until no other process (or other `FileLock`) holds it."""

    def __init__(self, path: str | Path):
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)

    def __enter__(self) -> "FileLock":
        if fcntl:
            fcntl.flock(self.fd, fcntl.LOCK_EX)
        else:
            _lock_on_windows(self.fd)
        return self

    def __exit__(self, *error) -> None:
        if fcntl:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        else:
            import msvcrt

            os.lseek(self.fd, 0, os.SEEK_SET)
            msvcrt.locking(self.fd, msvcrt.LK_UNLCK, 1)

    def close(self) -> None:
        """Give the file back. Closing twice does no harm."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def _lock_on_windows(fd: int) -> None:
    import msvcrt

    while True:
        os.lseek(fd, 0, os.SEEK_SET)
        try:
            return msvcrt.locking(fd, msvcrt.LK_LOCK, 1)  # gives up after ten tries
        except OSError:
            continue
