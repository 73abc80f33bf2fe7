"""Every committed notebook keeps the rules of `minimoe/course/lint.py`."""

from pathlib import Path

import pytest

from minimoe.course.lint import lint

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_to_mend(path):
    assert lint(path) == []
