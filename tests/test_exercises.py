"""Every exercise of every notebook: open, solved, and answered wrongly in known ways."""

from pathlib import Path

import numpy as np
import pytest

from minimoe.course import exercises
from minimoe.course.check import HINT, NOT_DONE, RIGHT, grade, load_checks
from minimoe.course.normal_form import read

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
CHECKS = load_checks()
WRONG = [
    (name, index) for name, found in sorted(CHECKS.items()) for index in range(len(found.wrong))
]

notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@notebooks
def test_an_open_exercise_is_not_done_yet(path):
    said = exercises.verdicts(read(path))
    assert said and all(text.endswith(f": {NOT_DONE}\n") for text in said.values()), said


@notebooks
def test_the_folded_solution_is_right(path):
    said = exercises.verdicts(exercises.solved(read(path)))
    assert said and all(f": {RIGHT} (" in text for text in said.values()), said


def test_every_check_is_used_by_its_notebook_and_every_exercise_has_one():
    used = {}
    for path in NOTEBOOKS:
        for exercise in exercises.find(read(path)):
            assert exercise.check.split("-")[0] == path.stem.split("_")[0]
            used[exercise.check] = path.stem
    assert used.keys() == CHECKS.keys()


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_at_least_two_wrong_answers_are_known(name):
    assert len(CHECKS[name].wrong) >= 2


@pytest.mark.parametrize("name, index", WRONG)
def test_a_known_wrong_answer_gets_its_hint(name, index):
    wrong = CHECKS[name].wrong[index]
    verdict = grade(name, wrong.answer)
    assert verdict.status == HINT and wrong.says in verdict.text, verdict.text


@pytest.mark.parametrize("name", sorted(CHECKS))
@pytest.mark.parametrize(
    "answer",
    [lambda *args: 0, lambda *args: [], lambda *args: "x", lambda *args: np.zeros(2), int],
)
def test_nonsense_is_never_right_and_never_raises(name, answer):
    assert grade(name, answer).status == HINT
