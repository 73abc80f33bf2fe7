"""What is asked of every committed notebook. Each rule is a function that yields its findings.

`lint(path)` runs all rules; `tests/test_notebooks.py` requires that none finds anything.
"""

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import nbformat

from minimoe.course import exercises
from minimoe.course.normal_form import (
    NotebookError,
    code_cells,
    has_tag,
    markdown_cells,
    normalised,
    read,
    text_of,
)

MAX_BYTES = 600_000
MAX_LINES = 25  # of a code cell; most should have under 15
MAX_IGNORED = 0.5  # share of code cells whose output nbval does not compare
MIN_EXERCISES = 3
IGNORED = "nbval-ignore-output"
TAGS = {IGNORED, "exercise", "setup", "raises-exception"}
HEADER_FIELDS = ("Question", "Minutes", "Builds on", "You will be able to")

READABLE_ID = re.compile(r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")
ABSOLUTE_PATH = re.compile(
    r"(?<![\w./:<-])/(?:home|root|Users|tmp|usr|opt|work|var|mnt|private|content)/|\b[A-Z]:\\+\w"
)
ADDRESS = re.compile(r"0x[0-9a-f]{6,16}")
MEASURE = re.compile(r"\d(?:[\d.,]*)\s*(?:[munµ]s|tok/s|[GMT]B/s|[GT]FLOP/s|TFLOPS)\b")
LABEL = re.compile(r"measured here|measured on H200|\bderived\b|\breported\b", re.IGNORECASE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
EXERCISE_TITLE = re.compile(r"^### Exercise \d+: .+ \((easy|medium|hard), \d+ minutes?\)$", re.M)


def lint(path: str | Path) -> list[str]:
    """All findings for one notebook file, each a line that names the cell."""
    path = Path(path)
    try:
        notebook = read(path)
    except NotebookError as error:
        return [str(error)]
    findings = list(file_rules(path, notebook))
    for rule in RULES:
        findings += rule(notebook)
    return findings


def file_rules(path: Path, notebook: nbformat.NotebookNode) -> Iterator[str]:
    """Size, normal form, and links that lead somewhere."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        yield f"the file has {size} bytes, the limit is {MAX_BYTES}: make its figures fewer"
    text = path.read_text(encoding="utf-8")
    yield from _repeated_ids(text)
    if text != text_of(normalised(notebook)):
        yield "not in normal form: write it with `python -m minimoe.course.notebook run`"
    links = {link for cell in markdown_cells(notebook) for link in LINK.findall(cell.source)}
    for link in sorted(links):
        if "://" not in link and not (path.parent / link).exists():
            yield f"the link to {link} leads nowhere"
    others = sorted(other.name for other in path.parent.glob("*.ipynb"))
    following = [name for name in others if name > path.name]
    if following and following[0] not in links:
        yield f"no link on to {following[0]}"
    before = [name for name in others if name < path.name]
    if before and not links & set(before):
        yield "no link back: name in 'Builds on' the notebook that it needs"


def _repeated_ids(text: str) -> Iterator[str]:
    """Looks at the file itself, since nbformat silently renames the second of two equal ids."""
    ids = Counter(cell.get("id") for cell in json.loads(text)["cells"])
    for name, times in ids.items():
        if times > 1:
            yield f"cell id {name!r} is used {times} times"


def executed_in_order(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """nbval skips a cell without a count, so an unrun notebook would pass it."""
    expected = 1
    for cell in code_cells(notebook):
        if not cell.source.strip():
            yield f"cell {cell.id!r} is empty"
            continue
        if cell.execution_count != expected:
            yield f"cell {cell.id!r} has count {cell.execution_count}, expected {expected}: run all"
        expected += 1


def readable_ids(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """Ids say what the cell is about: tests, links and the text form use them."""
    for cell in notebook.cells:
        if not READABLE_ID.match(cell.id) or re.fullmatch(r"[0-9a-f]{8}", cell.id):
            yield f"cell id {cell.id!r} is not readable: use words such as 'routing-heatmap'"


def known_tags(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """A misspelt tag would silently do nothing."""
    for cell in notebook.cells:
        for tag in set(cell.metadata.get("tags", [])) - TAGS:
            yield f"cell {cell.id!r} has the unknown tag {tag!r}: use one of {sorted(TAGS)}"


def quiet_outputs(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """No errors that were not asked for, no warnings, no addresses, no figure that changes."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "error" and not has_tag(cell, "raises-exception"):
                yield f"cell {cell.id!r} ends in {output.ename}"
            if output.get("name") == "stderr":
                yield f"cell {cell.id!r} wrote to stderr: {output.text.splitlines()[0][:60]}"
            if "image/svg+xml" in output.get("data", {}):
                yield f"cell {cell.id!r} holds an SVG, which carries its date: use PNG"
            if ADDRESS.search(_text(output)) and not has_tag(cell, IGNORED):
                yield f"cell {cell.id!r} prints a memory address: end plots with plt.show()"


def _text(output: nbformat.NotebookNode) -> str:
    return str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", ""))


def ignored_cells(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """What nbval does not compare must be few, and must assert what it shows or be sliders."""
    cells = code_cells(notebook)
    ignored = [cell for cell in cells if has_tag(cell, IGNORED)]
    if len(ignored) > MAX_IGNORED * len(cells):
        yield f"{len(ignored)} of {len(cells)} code cells are tagged {IGNORED}: at most half may be"
    for cell in ignored:
        if "assert " not in cell.source and "sliders(" not in cell.source:
            yield f"cell {cell.id!r} is tagged {IGNORED} and asserts nothing about what it shows"


def short_cells(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """Logic belongs in the package, where it is tested."""
    for cell in code_cells(notebook):
        lines = len(cell.source.splitlines())
        if lines > MAX_LINES:
            yield f"cell {cell.id!r} has {lines} lines, at most {MAX_LINES}: move code to minimoe"


def no_absolute_paths(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """A path of the author's machine means nothing elsewhere."""
    for cell in notebook.cells:
        texts = [cell.source] + [_text(output) for output in cell.get("outputs", [])]
        found = ABSOLUTE_PATH.search("\n".join(texts))
        if found:
            yield f"cell {cell.id!r} holds an absolute path ({found[0]})"


def one_title(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """One H1, in the first cell, which also states question, minutes, ground and aim."""
    titles = [cell.id for cell in markdown_cells(notebook) for _ in _headings(cell, 1)]
    first = notebook.cells[0] if notebook.cells else None
    if len(titles) != 1:
        yield f"{len(titles)} headings of level 1, one is wanted"
    elif titles[0] != first.id:
        yield f"the heading of level 1 stands in cell {titles[0]!r}, not in the first"
    for field in HEADER_FIELDS:
        if first is None or f"**{field}:**" not in first.source:
            yield f"the first cell lacks the field '**{field}:**'"


def _headings(cell: nbformat.NotebookNode, level: int) -> list[str]:
    prose = re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL)
    return re.findall(rf"^{'#' * level} (.+)$", prose, flags=re.MULTILINE)


def has_recap(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """What was learned is said again at the end."""
    if not any("Recap" in _headings(cell, 2) for cell in markdown_cells(notebook)):
        yield "no heading '## Recap'"


def complete_exercises(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """At least three, each with title, open function, check, folded hint and solution."""
    try:
        found = exercises.find(notebook)
    except NotebookError as error:
        yield str(error)
        return
    if len(found) < MIN_EXERCISES:
        yield f"{len(found)} exercises, at least {MIN_EXERCISES} are wanted"
    cells = {cell.id: cell for cell in notebook.cells}
    for exercise in found:
        if not EXERCISE_TITLE.search(cells[exercise.id].source):
            yield f"cell {exercise.id!r} lacks a title '### Exercise N: NAME (easy, 5 minutes)'"
        if not _is_left_open(cells[f"{exercise.id}-todo"]):
            yield f"cell '{exercise.id}-todo' must be tagged exercise and have the body `...`"
        if "<details>" not in cells[f"{exercise.id}-hint"].source:
            yield f"cell '{exercise.id}-hint' is not folded in <details>"


def _is_left_open(cell: nbformat.NotebookNode) -> bool:
    """Tagged `exercise`, with at least one body that is a docstring and `...` and nothing else."""
    return has_tag(cell, "exercise") and any(
        isinstance(node, ast.FunctionDef)
        and ast.get_docstring(node)
        and isinstance(node.body[-1], ast.Expr)
        and isinstance(node.body[-1].value, ast.Constant)
        and node.body[-1].value.value is ...
        for node in ast.walk(ast.parse(cell.source))
    )


def honest_numbers(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """A time or a rate in prose goes stale: it needs a label that says where it is from."""
    for cell in markdown_cells(notebook):
        prose = re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL)
        found = MEASURE.search(prose)
        if found and not LABEL.search(prose):
            yield f"cell {cell.id!r} states {found[0]!r} without a label such as *reported*"


RULES = (
    executed_in_order,
    readable_ids,
    known_tags,
    quiet_outputs,
    ignored_cells,
    short_cells,
    no_absolute_paths,
    one_title,
    has_recap,
    complete_exercises,
    honest_numbers,
)
