"""Measurements kept in `data/measured/`: the rows of a bench on an H200, with date and command."""

import json
from dataclasses import dataclass

from minimoe.config import REPO
from minimoe.errors import MinimoeError
from minimoe.perf.hardware import Hardware, from_dict

FOLDER = REPO / "data" / "measured"


@dataclass(frozen=True)
class Measured:
    """What a bench saved: its rows, the machine's roofs, and how they were made."""

    roofs: Hardware
    rows: list[dict]
    dtype: str
    command: str
    date: str
    versions: dict[str, str]

    def shape(self, name: str) -> list[dict]:
        """The rows of one shape, by tokens or context."""
        return [row for row in self.rows if row["shape"] == name]

    def about(self) -> str:
        """Where the numbers are from, in two lines."""
        torch = self.versions.get("torch", "?")
        return f"measured on {self.roofs.name}, {self.date}, torch {torch}\n  by: {self.command}"


def load(name: str) -> Measured:
    """`data/measured/NAME.json`. Raises MinimoeError for a name that is not there."""
    path = FOLDER / f"{name}.json"
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in FOLDER.glob("*.json")))
        raise MinimoeError(f"no measurement {name!r}: there are {names or 'none'}")
    record = json.loads(path.read_text(encoding="utf-8"))
    roofs = from_dict(record["roofs"])
    parts = (record[key] for key in ("rows", "dtype", "command", "date", "versions"))
    return Measured(roofs, *parts)
