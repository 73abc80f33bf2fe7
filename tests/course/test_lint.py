"""Every rule must catch its fault, and find nothing in a notebook that has none."""

import nbformat.warnings
import pytest
from nbformat.v4 import new_code_cell, new_output

from minimoe.course.lint import lint
from minimoe.course.normal_form import text_of


@pytest.fixture(autouse=True)
def _check_call(executed):
    """The tiny notebook names its check in a comment, so that it runs without a registered one."""
    assert 'check("99-double"' in executed.cells[6].source


def by_id(notebook, name):
    return next(cell for cell in notebook.cells if cell.id == name)


def test_a_complete_notebook_passes(make):
    assert lint(make()) == []


def _set(name, **values):
    def change(notebook):
        for key, value in values.items():
            setattr(by_id(notebook, name), key, value)

    return change


def _swap_counts(notebook):
    first, second = by_id(notebook, "imports"), by_id(notebook, "measure")
    first.execution_count, second.execution_count = 2, 1


def _add_output(cell, **output):
    return lambda notebook: by_id(notebook, cell).outputs.append(new_output(**output))


def _replace(name, old, new):
    def change(notebook):
        cell = by_id(notebook, name)
        assert old in cell.source
        cell.source = cell.source.replace(old, new)

    return change


def _many_ignored(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.metadata = {"tags": ["nbval-ignore-output"]}


FAULTS = {
    "unexecuted": (_set("measure", execution_count=None), "has count None, expected 2"),
    "out of order": (_swap_counts, "cell 'imports' has count 2, expected 1"),
    "empty cell": (lambda n: n.cells.append(new_code_cell("", id="nothing")), "is empty"),
    "random id": (_set("measure", id="a1b2c3d4"), "'a1b2c3d4' is not readable"),
    "unreadable id": (_set("measure", id="My_Cell"), "'My_Cell' is not readable"),
    "unknown tag": (_set("measure", metadata={"tags": ["hidden"]}), "unknown tag 'hidden'"),
    "error": (
        _add_output("measure", output_type="error", ename="KeyError", evalue="", traceback=[]),
        "ends in KeyError",
    ),
    "stderr": (
        _add_output("measure", output_type="stream", name="stderr", text="Warning: old\n"),
        "wrote to stderr: Warning: old",
    ),
    "address": (
        _add_output("measure", output_type="stream", text="<function f at 0x7f12ab34cd56>"),
        "prints a memory address",
    ),
    "svg": (
        _add_output("measure", output_type="display_data", data={"image/svg+xml": "<svg/>"}),
        "holds an SVG",
    ),
    "ignored too often": (_many_ignored, "at most half may be"),
    "ignored without assert": (_replace("timing", "assert slow < 1", "pass"), "asserts nothing"),
    "long cell": (_set("measure", source="print(1)\n" * 26), "has 26 lines, at most 25"),
    "absolute path in code": (
        _set("measure", source="open('/home/me/file')"),
        "holds an absolute path (/home/)",
    ),
    "absolute path in output": (
        _add_output("measure", output_type="stream", text="wrote /tmp/x/y\n"),
        "holds an absolute path (/tmp/)",
    ),
    "windows path": (_set("measure", source=r"open('C:\\data')"), "holds an absolute path (C:"),
    "two titles": (_set("recap", source="# Again\n## Recap"), "2 headings of level 1"),
    "late title": (lambda n: n.cells.insert(0, n.cells.pop(1)), "not in the first"),
    "no minutes": (_replace("title", "**Minutes:**", "Time:"), "lacks the field '**Minutes:**'"),
    "no recap": (_set("recap", source="The end."), "no heading '## Recap'"),
    "two exercises": (
        lambda n: setattr(n, "cells", [c for c in n.cells if not c.id.startswith("ex3")]),
        "2 exercises, at least 3",
    ),
    "no solution": (
        lambda n: n.cells.remove(by_id(n, "ex2-solution")),
        "exercise ex2: cell 'ex2-solution' is missing",
    ),
    "solution without code": (
        _replace("ex2-solution", "```python", "```"),
        "has no ```python block inside <details>",
    ),
    "no difficulty": (_set("ex1", source="### Exercise 1: Double it"), "'ex1' lacks a title"),
    "exercise filled in": (
        _replace("ex1-todo", "...", "return 2 * x"),
        "must be tagged exercise and have the body `...`",
    ),
    "no check": (_set("ex1-check", source="double(2)"), "'ex1-check' calls no check(...)"),
    "hint not folded": (_set("ex1-hint", source="Add."), "'ex1-hint' is not folded"),
    "stale number": (
        _set("recap", source="## Recap\nA step took 12.5 ms."),
        "states '12.5 ms' without a label",
    ),
    "dead link": (_set("recap", source="## Recap\n[on](11_no.ipynb)"), "leads nowhere"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_caught(fault, make):
    change, says = FAULTS[fault]
    findings = lint(make(change))
    assert any(says in finding for finding in findings), findings


def test_labelled_numbers_and_code_blocks_pass(make):
    source = "## Recap\nReported by the post: 12.5 ms.\n\n```\n# 3 ms\n```"
    assert lint(make(_set("recap", source=source))) == []


def test_repeated_ids(make):
    """nbformat renames the second of them when it reads, so the file itself is looked at."""
    path = make()
    path.write_text(path.read_text().replace('"id": "measure"', '"id": "imports"'))
    with pytest.warns(nbformat.warnings.DuplicateCellId, match="Non-unique cell id"):
        assert "cell id 'imports' is used 2 times" in lint(path)


def test_not_in_normal_form(make, executed):
    path = make()
    path.write_text(text_of(executed).replace('"name": "python"', '"name": "python", "v": 1', 1))
    assert any("not in normal form" in finding for finding in lint(path))


def test_too_large(make):
    path = make(_add_output("measure", output_type="stream", text="x" * 700_000))
    assert any("the limit is 600000" in finding for finding in lint(path))


def test_link_on_to_the_next_notebook(make):
    make(name="11_next.ipynb")
    assert "no link on to 11_next.ipynb" in lint(make())
    linked = make(_set("recap", source="## Recap\nGo on with [next](11_next.ipynb)."))
    assert lint(linked) == []


def test_no_notebook(tmp_path):
    (tmp_path / "a.ipynb").write_text("{}")
    assert "is not a notebook" in lint(tmp_path / "a.ipynb")[0]


def test_link_back(make, tmp_path):
    make(name="09_before.ipynb")
    assert any(finding.startswith("no link back") for finding in lint(make()))

    def name_it(notebook):
        notebook.cells[0].source += "\n\nIt needs [this](09_before.ipynb)."

    assert lint(make(name_it)) == []
