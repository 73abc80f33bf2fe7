"""Traces of requests by block id: the Mooncake format, and a run-length form for long sessions.

A row is one JSON object: `timestamp` in ms, `input_length` and `output_length` in tokens, and the
ids of the prompt's blocks in order. Ids are chained to their prefix, so an equal id means an equal
prefix. Mooncake writes `hash_ids`, a list; `hash_runs` holds the same list as [first id, count]
pairs, which keeps an agent's hundredth turn as short as its first. Two optional fields are ours:
`kind` (retention class, such as "chat" or "agent") and `session`.

Source of the format: Mooncake, FAST'25 (blocks of 512 tokens).
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from minimoe.errors import MinimoeError

TRACE_BLOCK = 512  # tokens in a block of a trace


class TraceError(MinimoeError):
    """A trace that cannot be read; the message names the file and the line."""


@dataclass(slots=True)
class Request:
    """One request of a trace. `blocks` are ids in prompt order, `timestamp` in milliseconds."""

    timestamp: int
    input_length: int
    output_length: int
    blocks: list[int]
    kind: str = "chat"
    session: int | None = None


def read_trace(path: str | Path) -> list[Request]:
    """All requests of a file, in file order. Raises TraceError with the line number."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise TraceError(f"trace {path}: {reason}; give a .jsonl file of requests") from None
    return [
        _request(line, f"trace {path} line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]


def write_trace(path: str | Path, requests: Iterable[Request], runs: bool = True) -> None:
    """Write requests, one row each; `runs=False` gives plain Mooncake rows without our fields."""
    rows = (_row(request, runs) for request in requests)
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    Path(path).write_text(text, encoding="utf-8")


def to_runs(blocks: Iterable[int]) -> list[list[int]]:
    """[5, 6, 7, 2] to [[5, 3], [2, 1]]."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and block == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([block, 1])
    return runs


def from_runs(runs: Iterable[Iterable[int]]) -> Iterator[int]:
    """[[5, 3], [2, 1]] to 5, 6, 7, 2."""
    for first, count in runs:
        yield from range(first, first + count)


def _row(request: Request, runs: bool) -> dict:
    row = {
        "timestamp": request.timestamp,
        "input_length": request.input_length,
        "output_length": request.output_length,
    }
    if not runs:
        return {**row, "hash_ids": request.blocks}
    row |= {"hash_runs": to_runs(request.blocks), "kind": request.kind}
    return row if request.session is None else {**row, "session": request.session}


def _request(line: str, where: str) -> Request:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceError(f"{where}: not a whole JSON object ({error.msg}); is it cut?") from None
    if not isinstance(row, dict):
        raise TraceError(f"{where}: expected an object, got {type(row).__name__}")
    numbers = [_count(row, name, where) for name in ("timestamp", "input_length", "output_length")]
    session = None if row.get("session") is None else _count(row, "session", where)
    return Request(*numbers, _blocks(row, where), _kind(row, where), session)


def _blocks(row: dict, where: str) -> list[int]:
    if "hash_ids" in row:
        blocks = row["hash_ids"]
    elif "hash_runs" in row:
        blocks = _expand(row["hash_runs"], where)
    else:
        raise TraceError(f"{where}: no hash_ids and no hash_runs; a row needs one of them")
    if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
        raise TraceError(f"{where}: hash_ids must be a list of whole numbers")
    return blocks


def _expand(runs: object, where: str) -> list[int]:
    pairs = isinstance(runs, list) and all(
        isinstance(run, list) and len(run) == 2 and all(type(x) is int for x in run) and run[1] > 0
        for run in runs
    )
    if not pairs:
        raise TraceError(f"{where}: hash_runs must be a list of [first id, count] pairs")
    return list(from_runs(runs))


def _count(row: dict, name: str, where: str) -> int:
    value = row.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or value < 0:
        raise TraceError(f"{where}: {name} is {value!r}, it must be a whole number from 0")
    return value


def _kind(row: dict, where: str) -> str:
    kind = row.get("kind", "chat")
    if not isinstance(kind, str):
        raise TraceError(f"{where}: kind is {kind!r}, it must be text such as 'chat' or 'agent'")
    return kind
