"""Messages between a parent and its ranks: pickled objects, one after another, on a pipe."""

import pickle
import struct
from typing import BinaryIO

HEADER = struct.Struct("<Q")


def send(stream: BinaryIO, message) -> None:
    """Write one message. Raises OSError when nobody reads any more."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(HEADER.pack(len(body)) + body)
    stream.flush()


def receive(stream: BinaryIO):
    """Wait for one message. Raises EOFError when the other side has gone."""
    (size,) = HEADER.unpack(_read(stream, HEADER.size))
    return pickle.loads(_read(stream, size))


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the other side has closed the pipe")
    return data
