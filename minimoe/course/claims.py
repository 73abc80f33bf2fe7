"""The claims of the DeepInfer post, and what this series found of each.

`data/reported/claims.json` has a row for every figure or checkable statement of the post. A row
that we could test names the notebook and the cell that does it, and a pattern that finds our value
in the output of that cell. So the value is written down once, where it was computed, and the table
at the end of the tour cannot say anything else.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from minimoe.config import REPO
from minimoe.course.normal_form import read as read_notebook
from minimoe.errors import MinimoeError

FILE = REPO / "data" / "reported" / "claims.json"
NOTEBOOKS = REPO / "notebooks"
SHOWN = ("measured here", "measured on H200", "derived")  # labels of rows that name a cell
LABELS = (*SHOWN, "reported", "not yet", "pending")
KINDS = ("mechanism", "fleet", "later")


@dataclass(frozen=True)
class Claim:
    """One row.

    label: how we know; `reported` is the post's word alone, `not yet` a part that this series has
    not rebuilt, `pending` a part whose notebook is being written. kind: a `mechanism`, which anyone
    can try; DeepSeek's own `fleet`, which nobody else can; or a part that comes `later`.
    shows: a regular expression over the output of `cell`; ours: our value as a text, in which
    {0}, {1}, ... stand for the groups of that expression. why: why it differs, or why not shown.
    """

    id: str
    topic: str
    claim: str
    value: str
    kind: str
    label: str
    notebook: str = ""
    cell: str = ""
    shows: str = ""
    ours: str = ""
    why: str = ""


def load(path: str | Path = FILE) -> list[Claim]:
    """All rows, in the post's order. Raises MinimoeError for a row that breaks the form."""
    rows = json.loads(Path(path).read_text(encoding="utf-8"))["claims"]
    claims = [Claim(**row) for row in rows]
    for claim in claims:
        fault = _fault(claim)
        if fault:
            raise MinimoeError(f"claim {claim.id!r} {fault}: mend its row in {Path(path).name}")
    repeated = [name for name, times in Counter(claim.id for claim in claims).items() if times > 1]
    if repeated:
        raise MinimoeError(f"claim ids are used twice: {', '.join(repeated)}")
    return claims


def _fault(claim: Claim) -> str | None:
    named = claim.notebook and claim.cell and claim.shows and claim.ours
    if claim.label not in LABELS:
        return f"has the label {claim.label!r}, not one of {', '.join(LABELS)}"
    if claim.kind not in KINDS:
        return f"has the kind {claim.kind!r}, not one of {', '.join(KINDS)}"
    if claim.label in SHOWN and not named:
        return "names no notebook, cell, pattern and value of ours"
    if claim.label not in SHOWN and (claim.cell or not claim.why):
        return "is not shown: it needs a `why` and must name no cell"
    return None


class Outputs:
    """The printed text of notebook cells, as committed; each notebook is read once."""

    def __init__(self, folder: str | Path = NOTEBOOKS):
        self.folder, self.texts = Path(folder), {}

    def of(self, notebook: str, cell: str) -> str:
        """All text a cell put out. Raises MinimoeError when there is no such notebook or cell."""
        if notebook not in self.texts:
            cells = read_notebook(self.folder / f"{notebook}.ipynb").cells
            self.texts[notebook] = {
                found.id: "".join(map(_text, found.get("outputs", []))) for found in cells
            }
        if cell not in self.texts[notebook]:
            raise MinimoeError(f"{notebook} has no cell {cell!r}: mend the row that names it")
        return self.texts[notebook][cell]


def _text(output: dict) -> str:
    return output.get("text", "") + output.get("data", {}).get("text/plain", "")


def ours(claim: Claim, outputs: Outputs) -> str:
    """Our value in words, from the cell's own output; empty for a row that is not shown.

    Raises MinimoeError when the cell does not say what the row looks for.
    """
    if claim.label not in SHOWN:
        return ""
    found = re.search(claim.shows, outputs.of(claim.notebook, claim.cell), re.MULTILINE)
    if not found:
        raise MinimoeError(
            f"claim {claim.id!r}: {claim.notebook}, cell {claim.cell!r}, does not show "
            f"{claim.shows!r}: run the notebook, or mend the row"
        )
    return claim.ours.format(*(group.strip() for group in found.groups()))


def table(claims: list[Claim], outputs: Outputs) -> str:
    """All rows as Markdown, a table for each topic of the post."""
    parts = []
    for topic in dict.fromkeys(claim.topic for claim in claims):
        rows = [_row(claim, outputs) for claim in claims if claim.topic == topic]
        head = f"| {topic} | the post | here | label | shown in |\n|:---|:---|:---|:---|:---|"
        parts.append("\n".join([head, *rows]))
    return "\n\n".join(parts)


def _row(claim: Claim, outputs: Outputs) -> str:
    here = "; ".join(filter(None, [ours(claim, outputs), claim.why]))
    label = "not yet" if claim.label == "pending" else claim.label
    where = f"[{claim.notebook[:2]}]({claim.notebook}.ipynb)" if claim.cell else ""
    cells = (claim.claim, claim.value, here, f"*{label}*", where)
    return "| " + " | ".join(map(_plain, cells)) + " |"


def _plain(text: str) -> str:
    """Escaped, so that a bar opens no cell and two dollars do not begin a formula."""
    return text.replace("|", "\\|").replace("$", "\\$")


def summary(claims: list[Claim]) -> str:
    """How many rows have which label, and what part of the mechanisms we could test."""
    counts = Counter("not yet" if c.label == "pending" else c.label for c in claims)
    lines = [f"{len(claims)} claims of the post"]
    lines += [f"{counts[label]:>4} {label}" for label in LABELS if counts[label]]
    tested, asked = tested_mechanisms(claims)
    lines.append(f"of {asked} about a mechanism, {tested} are measured or derived")
    return "\n".join(lines)


def tested_mechanisms(claims: list[Claim]) -> tuple[int, int]:
    """How many rows about a mechanism are measured or derived, of how many."""
    asked = [claim for claim in claims if claim.kind == "mechanism"]
    return sum(claim.label in SHOWN for claim in asked), len(asked)
