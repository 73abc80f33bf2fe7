"""Make, run, check and print notebooks; copy them without their solutions.

    python -m minimoe.course.notebook build SRC.txt notebooks/NN_name.ipynb
    python -m minimoe.course.notebook run   notebooks/*.ipynb    # execute, write in normal form
    python -m minimoe.course.notebook check notebooks/*.ipynb    # lint; exit code 1 on a finding
    python -m minimoe.course.notebook show  notebooks/*.ipynb    # print as text, with outputs
    python -m minimoe.course.notebook dump  notebooks/NN_name.ipynb > SRC.txt
    python -m minimoe.course.notebook edition handout            # all, without the solutions

`normal_form.py` says how a notebook is committed, `lint.py` what is asked of it, `source.py` how
the text form looks.
"""

import argparse
import sys
import time
from pathlib import Path

from minimoe.config import REPO
from minimoe.course import exercises, lint, source
from minimoe.course.normal_form import NotebookError, execute, read, write


def build(text_path: str, notebook_path: str) -> int:
    """Make a notebook, not yet run, from its source text."""
    try:
        text = Path(text_path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotebookError(f"no source text at {text_path}: give the path of a file") from None
    notebook = source.build(text)
    write(notebook, notebook_path)
    print(f"{notebook_path}: {len(notebook.cells)} cells, not yet run")
    return 0


def run(paths: list[str], timeout: int) -> int:
    """Execute each notebook in its own folder and write it in normal form."""
    for path in paths:
        notebook = read(path)
        start = time.perf_counter()
        try:
            execute(notebook, Path(path).parent, timeout)
        except NotebookError as error:
            raise NotebookError(f"{path}: {error}") from None
        write(notebook, path)
        size = Path(path).stat().st_size / 1000
        print(f"{path}: ran in {time.perf_counter() - start:.1f} s, {size:.0f} kB")
    return 0


def check(paths: list[str]) -> int:
    """Print every finding; 1 when there is one."""
    findings = [f"{path}: {finding}" for path in paths for finding in lint.lint(Path(path))]
    print("\n".join(findings) if findings else f"{len(paths)} notebooks, nothing to mend")
    return 1 if findings else 0


def show(paths: list[str]) -> int:
    """Print each notebook as text with its outputs; always 0."""
    for path in paths:
        sys.stdout.write(source.show(read(path)))
    return 0


def dump(path: str) -> int:
    """Print the source text of a notebook; always 0."""
    sys.stdout.write(source.dump(read(path)))
    return 0


def edition(folder: str, paths: list[str], keep_outputs: bool) -> int:
    """Copy notebooks into a new folder without their solutions, and by default their outputs."""
    out = Path(folder)
    if out.exists() and any(out.iterdir()):
        raise NotebookError(f"{folder} is not empty: name a new folder")
    sources = [Path(path) for path in paths] or sorted((REPO / "notebooks").glob("*.ipynb"))
    copies = {path.name: exercises.without_solutions(read(path), keep_outputs) for path in sources}
    out.mkdir(parents=True, exist_ok=True)
    for name, notebook in copies.items():
        write(notebook, out / name)
    print(f"{folder}: {len(copies)} notebooks without solutions")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m minimoe.course.notebook",
        description="Make, run, check and print notebooks.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("build", help="make a notebook from its source text")
    verb.add_argument("source")
    verb.add_argument("notebook")
    verb.set_defaults(run=lambda args: build(args.source, args.notebook))
    verb = verbs.add_parser("run", help="execute and write in normal form")
    verb.add_argument("files", nargs="+")
    verb.add_argument("--timeout", type=int, default=120, help="seconds a cell may take")
    verb.set_defaults(run=lambda args: run(args.files, args.timeout))
    verb = verbs.add_parser("check", help="lint; exit code 1 on a finding")
    verb.add_argument("files", nargs="+")
    verb.set_defaults(run=lambda args: check(args.files))
    verb = verbs.add_parser("show", help="print as text, with outputs")
    verb.add_argument("files", nargs="+")
    verb.set_defaults(run=lambda args: show(args.files))
    verb = verbs.add_parser("dump", help="print the source text, to edit and build again")
    verb.add_argument("file")
    verb.set_defaults(run=lambda args: dump(args.file))
    verb = verbs.add_parser("edition", help="copies without solutions, for a class")
    verb.add_argument("folder", help="a new folder, best beside notebooks/, so that links hold")
    verb.add_argument("files", nargs="*", help="notebooks (default: all of the course)")
    verb.add_argument("--keep-outputs", action="store_true", help="show our results as well")
    verb.set_defaults(run=lambda args: edition(args.folder, args.files, args.keep_outputs))
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one verb and return its exit code: 0, 1 for findings, 2 for bad input."""
    args = _parser().parse_args(arguments)
    try:
        return args.run(args)
    except NotebookError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
