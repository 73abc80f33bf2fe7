import pytest

from minimoe.course import source
from minimoe.course.normal_form import NotebookError


def test_round_trip(text):
    notebook = source.build(text)
    dumped = source.dump(notebook)
    assert source.dump(source.build(dumped)) == dumped
    kinds = [(cell.cell_type, cell.id) for cell in notebook.cells]
    assert kinds[:2] == [("markdown", "title"), ("code", "imports")]
    assert notebook.cells[1].metadata.tags == ["setup"]


def test_cell_magic_and_percent_comments_are_not_markers():
    notebook = source.build("%% code timed\n%%time\n# %% not a marker\nprint(1)\n")
    assert [cell.source for cell in notebook.cells] == ["%%time\n# %% not a marker\nprint(1)"]


@pytest.mark.parametrize(
    "text, says",
    [
        ("hello\n%% code a\n1\n", "line 1: text before the first marker"),
        ("%% raw a\n1\n", "cell kind 'raw' is unknown"),
        ("%% code a\n1\n%% markdown a\n2\n", "cell id 'a' is used twice"),
    ],
)
def test_bad_source_is_one_clear_line(text, says):
    with pytest.raises(NotebookError, match=says):
        source.build(text)


def test_dump_refuses_a_line_that_would_become_a_marker():
    notebook = source.build("%% markdown a\nx\n")
    notebook.cells[0].source = "%% code b"
    with pytest.raises(NotebookError, match="looks like a marker"):
        source.dump(notebook)


def test_show_prints_outputs(executed):
    shown = source.show(executed)
    assert "%% code measure\nprint(sum([1, 2]))\n\n| 3\n" in shown
