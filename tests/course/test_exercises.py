import copy

import pytest

from minimoe.course import exercises
from minimoe.course.normal_form import NotebookError


def test_find_and_lift(executed):
    found = exercises.find(executed)
    assert [exercise.id for exercise in found] == ["ex1", "ex2", "ex3"]
    assert found[0].check == "99-double"
    assert found[0].solution == "def double(x):\n    return x + x"


def test_solved_replaces_only_exercise_cells(executed):
    solved = exercises.solved(executed)
    changed = [new.id for old, new in zip(executed.cells, solved.cells, strict=True) if old != new]
    assert changed == ["ex1-todo", "ex2-todo", "ex3-todo"]


def test_verdicts_run_setup_and_exercises_only(executed):
    notebook = copy.deepcopy(executed)
    for cell in notebook.cells:
        if cell.id == "timing":
            cell.source = "raise AssertionError('not part of an exercise')"
        if cell.id.endswith("-check"):
            cell.source = "print(random.__name__, double(2))"
    assert exercises.verdicts(notebook)["ex1"] == "random None\n"


def test_missing_parts_are_named(executed):
    notebook = copy.deepcopy(executed)
    notebook.cells = [cell for cell in notebook.cells if cell.id != "ex1-hint"]
    with pytest.raises(NotebookError, match="'ex1-hint' is missing"):
        exercises.find(notebook)
