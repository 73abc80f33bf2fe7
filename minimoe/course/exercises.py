"""Find the exercises of a notebook and lift their folded solutions.

An exercise N is five cells: `exN` (the task, with difficulty and minutes), `exN-todo` (tagged
`exercise`: a function with `...`), `exN-check` (calls `check`), `exN-hint` and `exN-solution`
(each folded in `<details>`). The folded solution is the only copy of the answer: tests run it.
"""

import contextlib
import copy
import io
import re
from dataclasses import dataclass

import nbformat

from minimoe.course.normal_form import NotebookError, code_cells, has_tag

TODO = re.compile(r"^(ex\d+)-todo$")
CHECK_NAME = re.compile(r"""check\(\s*["']([^"']+)["']""")
FENCED = re.compile(r"```python\n(.*?)\n```", re.DOTALL)


@dataclass(frozen=True)
class Exercise:
    """One exercise: its id in the notebook (`ex1`), its check's name, and the lifted solution."""

    id: str
    check: str
    solution: str


def find(notebook: nbformat.NotebookNode) -> list[Exercise]:
    """All exercises, in order. Raises NotebookError naming the cell that is missing or wrong."""
    cells = {cell.id: cell for cell in notebook.cells}
    names = [match[1] for cell in code_cells(notebook) if (match := TODO.match(cell.id))]
    return [_exercise(name, cells) for name in names]


def _exercise(name: str, cells: dict[str, nbformat.NotebookNode]) -> Exercise:
    for part in ("", "-check", "-hint", "-solution"):
        if name + part not in cells:
            raise NotebookError(f"exercise {name}: cell {name + part!r} is missing")
    check = CHECK_NAME.search(cells[f"{name}-check"].source)
    if not check:
        raise NotebookError(f"cell '{name}-check' calls no check(...): name the check there")
    return Exercise(name, check[1], lift(cells[f"{name}-solution"]))


def lift(cell: nbformat.NotebookNode) -> str:
    """The Python in a folded solution: every fenced `python` block inside `<details>`."""
    folded = re.search(r"<details>(.*)</details>", cell.source, re.DOTALL)
    blocks = FENCED.findall(folded[1]) if folded else []
    if not blocks:
        raise NotebookError(f"cell {cell.id!r} has no ```python block inside <details>: add it")
    return "\n\n".join(blocks)


def solved(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A copy in which each exercise cell is replaced by its solution."""
    result = copy.deepcopy(notebook)
    answers = {f"{exercise.id}-todo": exercise.solution for exercise in find(notebook)}
    for cell in code_cells(result):
        cell.source = answers.get(cell.id, cell.source)
    return result


def without_solutions(
    notebook: nbformat.NotebookNode, keep_outputs: bool = False
) -> nbformat.NotebookNode:
    """A copy for a class: no solution, and no output that would answer before the guess.

    Raises NotebookError when an exercise is not complete.
    """
    result = copy.deepcopy(notebook)
    solutions = {f"{exercise.id}-solution" for exercise in find(notebook)}
    result.cells = [cell for cell in result.cells if cell.id not in solutions]
    for cell in [] if keep_outputs else code_cells(result):
        cell.outputs, cell.execution_count = [], None
    return result


def verdicts(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """Run the `setup` cells and the exercises, and give what each check printed, by exercise.

    An exercise needs nothing but the cells tagged `setup`, so a reader who comes back tomorrow
    can do one without running the whole notebook, and tests can too.
    """
    namespace: dict = {"__name__": "__main__"}
    said = {}
    for cell in code_cells(notebook):
        if not (has_tag(cell, "setup") or re.match(r"^ex\d+-(todo|check)$", cell.id)):
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(cell.source, f"<{cell.id}>", "exec"), namespace)
        if cell.id.endswith("-check"):
            said[cell.id.removesuffix("-check")] = printed.getvalue()
    return said
