"""A notebook as a text file, in which it is written and reviewed.

Each cell starts with a marker line, `%% KIND ID [TAGS]`, and runs to the next one:

    %% markdown title
    # What is in the box?

    %% code measure [nbval-ignore-output]
    print(llm.config)

KIND is `markdown` or `code`; ID is readable and unique; TAGS are separated by spaces and may be
left out. Blank lines around a cell do not count. The `.ipynb` is what is committed: `build` makes
it, `dump` gives the text back.
"""

import re

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from minimoe.course.normal_form import METADATA, NotebookError

MARKER = re.compile(r"^%% (?P<kind>\w+) (?P<id>[A-Za-z0-9_-]+)(?: \[(?P<tags>[^\]]*)\])?$")


def build(text: str) -> nbformat.NotebookNode:
    """Turn source text into a notebook that has not run.

    Raises NotebookError for text before the first marker, an unknown kind or a repeated id.
    """
    notebook = new_notebook(metadata=METADATA)
    for number, marker, lines in _split(text):
        notebook.cells.append(_cell(number, marker, lines))
    _refuse_repeated_ids(notebook)
    return notebook


def _split(text: str) -> list[tuple[int, re.Match, list[str]]]:
    """Cut the text at its markers: (line number, marker, lines of the cell)."""
    cells: list[tuple[int, re.Match, list[str]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        marker = MARKER.match(line)
        if marker:
            cells.append((number, marker, []))
        elif cells:
            cells[-1][2].append(line)
        elif line.strip():
            raise NotebookError(f"line {number}: text before the first marker '%% KIND ID'")
    return cells


def _cell(number: int, marker: re.Match, lines: list[str]) -> nbformat.NotebookNode:
    makers = {"markdown": new_markdown_cell, "code": new_code_cell}
    kind, tags = marker["kind"], (marker["tags"] or "").split()
    if kind not in makers:
        raise NotebookError(f"line {number}: cell kind {kind!r} is unknown, use markdown or code")
    cell = makers[kind]("\n".join(lines).strip("\n"), id=marker["id"])
    if tags:
        cell.metadata["tags"] = tags
    return cell


def _refuse_repeated_ids(notebook: nbformat.NotebookNode) -> None:
    seen: set[str] = set()
    for cell in notebook.cells:
        if cell.id in seen:
            raise NotebookError(f"cell id {cell.id!r} is used twice: give each cell its own")
        seen.add(cell.id)


def dump(notebook: nbformat.NotebookNode) -> str:
    """The source text of a notebook; `build(dump(notebook))` has the same cells."""
    return "\n\n".join(_marked(cell) for cell in notebook.cells) + "\n"


def _marked(cell: nbformat.NotebookNode) -> str:
    if any(MARKER.match(line) for line in cell.source.splitlines()):
        raise NotebookError(f"cell {cell.id!r} holds a line that looks like a marker: change it")
    tags = cell.metadata.get("tags", [])
    marker = f"%% {cell.cell_type} {cell.id}" + (f" [{' '.join(tags)}]" if tags else "")
    return f"{marker}\n{cell.source}".rstrip("\n")


def show(notebook: nbformat.NotebookNode) -> str:
    """The notebook as text with its outputs, to read in a terminal or a review."""
    parts = []
    for cell in notebook.cells:
        parts.append(_marked(cell))
        if cell.cell_type == "code":
            parts += [_shown(output) for output in cell.outputs]
    return "\n\n".join(parts) + "\n"


def _shown(output: nbformat.NotebookNode) -> str:
    """One output, each line behind a bar; a picture as its type and size."""
    if output.output_type == "stream":
        text = output.text
    elif output.output_type == "error":
        text = f"{output.ename}: {output.evalue}"
    elif "image/png" in output.data:
        text = f"<image/png, {len(output.data['image/png']) * 3 // 4096} kB>"
    else:
        text = output.data.get("text/plain", f"<{', '.join(output.data)}>")
    return "\n".join(f"| {line}" for line in text.rstrip("\n").splitlines())
