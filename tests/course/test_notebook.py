import subprocess
import sys

import pytest

from minimoe.course.normal_form import read
from minimoe.course.notebook import main


def test_build_run_check_show_dump(tmp_path, text, capsys):
    source, notebook = tmp_path / "a.txt", tmp_path / "a.ipynb"
    source.write_text(text)
    assert main(["build", str(source), str(notebook)]) == 0
    assert main(["check", str(notebook)]) == 1
    assert "has count None" in capsys.readouterr().out
    assert main(["run", str(notebook)]) == 0
    assert main(["check", str(notebook)]) == 0
    assert "nothing to mend" in capsys.readouterr().out
    assert main(["show", str(notebook)]) == 0
    assert "| 3\n" in capsys.readouterr().out
    assert main(["dump", str(notebook)]) == 0
    assert capsys.readouterr().out == text.lstrip("\n")


@pytest.mark.parametrize("verb", ["run", "show", "dump"])
def test_missing_file_is_one_line_and_exit_code_2(verb, tmp_path, capsys):
    assert main([verb, str(tmp_path / "none.ipynb")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_missing_source(tmp_path, capsys):
    assert main(["build", str(tmp_path / "none.txt"), "x.ipynb"]) == 2
    assert "no source text at" in capsys.readouterr().err


def test_run_names_file_and_cell_of_a_failure(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("%% code broken\n1 / 0\n")
    main(["build", str(tmp_path / "a.txt"), str(tmp_path / "a.ipynb")])
    before = (tmp_path / "a.ipynb").read_text()
    assert main(["run", str(tmp_path / "a.ipynb")]) == 2
    error = capsys.readouterr().err
    assert "a.ipynb: cell 'broken': ZeroDivisionError" in error and error.count("\n") == 1
    assert (tmp_path / "a.ipynb").read_text() == before, "a failed run must not overwrite"


def test_runs_as_a_module():
    command = [sys.executable, "-m", "minimoe.course.notebook", "--help"]
    assert "build" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_edition_has_no_solution_and_no_answers(make, tmp_path, capsys):
    source, out = make(), tmp_path / "handout"
    before = source.read_bytes()
    assert main(["edition", str(out), str(source)]) == 0
    copied = read(out / source.name)
    kept = [cell.id for cell in read(source).cells if not cell.id.endswith("-solution")]
    assert [cell.id for cell in copied.cells] == kept and "ex1-hint" in kept
    assert not any(cell.get("outputs") for cell in copied.cells)
    assert "x + x" not in (out / source.name).read_text() and source.read_bytes() == before
    assert main(["edition", str(out), str(source)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_edition_may_keep_outputs(make, tmp_path):
    source = make()
    assert main(["edition", str(tmp_path / "out"), str(source), "--keep-outputs"]) == 0
    assert any(cell.get("outputs") for cell in read(tmp_path / "out" / source.name).cells)


def test_edition_of_the_whole_course(tmp_path):
    assert main(["edition", str(tmp_path / "all")]) == 0
    copies = sorted((tmp_path / "all").glob("*.ipynb"))
    assert len(copies) >= 5
    for path in copies:
        assert not any(cell.id.endswith("-solution") for cell in read(path).cells)
