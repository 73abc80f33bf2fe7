import copy

import pytest
from nbformat.v4 import new_output

from minimoe.course import source
from minimoe.course.normal_form import (
    WIDGET,
    NotebookError,
    execute,
    normalised,
    read,
    text_of,
    write,
)

PLOT = """
%% code figure
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.show()
%% code streams
import sys
for i in range(50):
    print(i, flush=True)
%% code result
sorted({"b", "a"})
"""


def test_two_runs_are_byte_identical(tmp_path):
    """Also when run from the file of the first run, as an author does."""
    write(source.build(PLOT), tmp_path / "a.ipynb")
    texts = []
    for _ in range(2):
        notebook = read(tmp_path / "a.ipynb")
        execute(notebook, tmp_path)
        write(notebook, tmp_path / "a.ipynb")
        texts.append((tmp_path / "a.ipynb").read_bytes())
    assert texts[0] == texts[1]
    assert b"image/png" in texts[0]


def test_normal_form_is_a_fixed_point(executed):
    once = normalised(executed)
    assert text_of(normalised(once)) == text_of(once)


def test_what_is_dropped_and_what_stays(executed):
    notebook = copy.deepcopy(executed)
    notebook.metadata["widgets"] = {"state": {}}
    notebook.metadata.language_info["version"] = "3.12.1"
    cell = notebook.cells[2]
    cell.metadata = {"tags": ["x"], "execution": {"iopub": "now"}, "collapsed": False}
    view = {WIDGET: {"model_id": "1"}, "text/plain": "interactive(...)"}
    cell.outputs = [
        new_output("stream", name="stdout", text="a\n"),
        new_output("stream", name="stdout", text="b\n"),
        new_output("display_data", data=view),
        new_output(
            "display_data", data={"text/plain": "c"}, metadata={"needs_background": "light"}
        ),
    ]
    clean = normalised(notebook)
    assert clean.metadata.keys() == {"kernelspec", "language_info"}
    assert clean.metadata.language_info == {"name": "python"}
    assert clean.cells[2].metadata == {"tags": ["x"]}
    assert [output.get("text") for output in clean.cells[2].outputs] == ["a\nb\n", None]
    assert clean.cells[2].outputs[1].metadata == {}


def test_a_failing_cell_is_named(tmp_path):
    notebook = source.build("%% code fine\n1\n%% code broken\nraise ValueError('no such thing')\n")
    with pytest.raises(NotebookError, match="cell 'broken': ValueError: no such thing"):
        execute(notebook, tmp_path)


def test_a_cell_that_takes_too_long_is_named(tmp_path):
    notebook = source.build("%% code slow\nimport time; time.sleep(60)\n")
    with pytest.raises(NotebookError, match="cell 'slow'"):
        execute(notebook, tmp_path, timeout=1)


def test_sliders_do_not_stall_a_run(tmp_path, monkeypatch):
    """Telling the kernel what an output area holds may lose the reply that one waits for."""
    told = []
    monkeypatch.setattr("nbclient.output_widget.OutputWidget.send", lambda *said: told.append(said))
    cell = "from minimoe.course.widgets import sliders\nsliders(print, size=(1, 4))"
    notebook = source.build(f"%% code sliders\n{cell}\n")
    execute(notebook, tmp_path)
    assert not told
    assert all("text" not in output for output in notebook.cells[0].outputs), "printed outside"


def test_unreadable_files_are_one_clear_line(tmp_path):
    with pytest.raises(NotebookError, match="no notebook at"):
        read(tmp_path / "none.ipynb")
    for content in ("not json", "[]", "{}"):
        (tmp_path / "bad.ipynb").write_text(content)
        with pytest.raises(NotebookError, match="is not a notebook"):
            read(tmp_path / "bad.ipynb")
