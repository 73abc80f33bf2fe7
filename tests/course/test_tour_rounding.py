"""What the tour prints does not hang on rounding: float64 gives the committed text too.

Without this, greedy text or a count could differ on a machine whose float32 sums end otherwise.
"""

import contextlib
import io
from pathlib import Path

import matplotlib
import pytest

import minimoe
from minimoe.course.lint import IGNORED
from minimoe.course.normal_form import code_cells, has_tag, read

TOUR = Path(__file__).parents[2] / "notebooks" / "00_tour.ipynb"

pytestmark = pytest.mark.skipif(not TOUR.is_file(), reason="no tour")


def committed(cell) -> str:
    return "".join(output.text for output in cell.outputs if output.get("name") == "stdout")


def test_float64_prints_the_same(monkeypatch):
    matplotlib.use("Agg")
    exact = minimoe.LLM("tiny-moe", device="cpu", dtype="float64")
    monkeypatch.setattr(minimoe, "LLM", lambda *args, **options: exact)
    monkeypatch.setattr("IPython.display.display", lambda *shown: None)  # prints nothing of text
    namespace = {"__name__": "__main__"}
    for cell in code_cells(read(TOUR)):
        if has_tag(cell, IGNORED):
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(cell.source, f"<{cell.id}>", "exec"), namespace)
        assert printed.getvalue() == committed(cell), cell.id
