"""Kernels fitted to the rows of `data/measured/h200-*.json`, and how well they predict them.

The files are read at run time: after a new measurement everything built on this follows.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from minimoe.config import REPO
from minimoe.errors import MinimoeError
from minimoe.perf.chips import CHIPS, Chip
from minimoe.perf.kernel_fit import Kernel, fit
from minimoe.perf.roofline import Work

MEASURED = REPO / "data" / "measured"
FILES = {"experts": "h200-moe", "attention": "h200-attention"}


@dataclass(frozen=True)
class Row:
    """One measured row: what it had to do, and the seconds it took."""

    name: str
    work: Work
    seconds: float


@dataclass(frozen=True)
class Calibration:
    """Kernels fitted on an H200, and its measured roofs as shares of its datasheet."""

    experts: Kernel
    attention: Kernel
    read: float  # measured / datasheet bandwidth
    matmul: float  # measured / datasheet rate

    def roofs(self, chip: Chip, dtype: str) -> tuple[float, float]:
        """(bytes/s, FLOP/s) that a chip should reach, if it came as near its datasheet as ours."""
        return chip.bandwidth * self.read, chip.matmul[dtype] * self.matmul


def read(kind: str) -> tuple[list[Row], float, float]:
    """The rows of "experts" or "attention", and the roofs beside them: bytes/s, FLOP/s."""
    path = MEASURED / f"{FILES[kind]}.json"
    if not path.is_file():
        raise MinimoeError(f"no measurement {path.name} in data/measured: restore it from git")
    record = json.loads(path.read_text(encoding="utf-8"))
    roofs = record["roofs"]
    return [_row(row) for row in record["rows"]], roofs["read"], roofs["matmul"][record["dtype"]]


def _row(row: dict) -> Row:
    size = row.get("context", row.get("tokens"))
    moved = row["bytes"] + row.get("activation_bytes", 0)
    return Row(f"{row['shape']} {size}", Work(row["flops"], moved), row["seconds"])


@lru_cache(maxsize=1)
def calibrate() -> Calibration:
    """Fitted to all rows; the roofs that carry over to other chips are those beside the experts."""
    kernels, sheet = {}, CHIPS["H200"]
    for kind in FILES:
        rows, bandwidth, rate = read(kind)
        kernels[kind] = fit([(row.work, row.seconds) for row in rows], bandwidth, rate)
    _, bandwidth, rate = read("experts")
    return Calibration(
        **kernels, read=bandwidth / sheet.bandwidth, matmul=rate / sheet.matmul["bfloat16"]
    )


@dataclass(frozen=True)
class Tested:
    """A row, predicted; `held` if the fit had not seen it."""

    name: str
    predicted: float
    measured: float
    held: bool

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1


def predict(kind: str, held: Sequence[int] = ()) -> list[Tested]:
    """Every row as predicted by a fit to those whose index is not in `held`."""
    rows, bandwidth, rate = read(kind)
    held = set(held)
    shown = [(row.work, row.seconds) for i, row in enumerate(rows) if i not in held]
    kernel = fit(shown, bandwidth, rate)
    return [
        Tested(row.name, kernel.seconds(row.work, bandwidth, rate), row.seconds, i in held)
        for i, row in enumerate(rows)
    ]


def splits(kind: str) -> dict[str, list[list[int]]]:
    """Ways to hold rows back: by name, the index lists of one fit each.

    "every other" does it twice, odd then even rows; "each in turn" leaves one out at a time;
    "a slice" holds back all rows of one of the two slices of the expert layer.
    """
    names = [row.name for row in read(kind)[0]]
    count = len(names)
    found = {
        "every other": [list(range(1, count, 2)), list(range(0, count, 2))],
        "each in turn": [[i] for i in range(count)],
    }
    if kind == "experts":
        shapes = sorted({name.split()[0] for name in names})
        whole = [[i for i, name in enumerate(names) if name.split()[0] == s] for s in shapes]
        found["a slice"] = [held for held in whole if count - len(held) >= 3]
    return found


def worst_errors(kind: str) -> dict[str, float]:
    """Largest relative error: of rows shown to the fit, and of rows held back in each way."""
    out = {"shown": max(abs(row.error) for row in predict(kind))}
    for name, ways in splits(kind).items():
        rows = [row for held in ways for row in predict(kind, held) if row.held]
        out[name] = max(abs(row.error) for row in rows)
    return out
