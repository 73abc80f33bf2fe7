"""What the README says is so: commands run, files exist, tables agree with the notebooks."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from minimoe.course.normal_form import read

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = "python -m minimoe"

# Added to a documented command so that it ends soon; later arguments win. None: the arguments are
# only parsed, since the shortest real run takes too long here and has its own tests.
QUICK = {
    "": [],
    "check": [],
    "generate": ["--max-tokens", "4"],
    "eval": [],
    "replay": [],
    "bench": None,
    "train": None,
    "train-drafter": None,
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)\n```", README, re.DOTALL)


def command(name: str) -> str:
    """The block that follows `<!-- command: NAME -->`."""
    return re.search(rf"<!-- command: {name} -->\n```bash\n(.*?)\n```", README, re.DOTALL)[1]


def documented() -> list[list[str]]:
    """The arguments after `python -m minimoe` of every such line."""
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    found = [shlex.split(line, comments=True) for line in lines if line.startswith(PYTHON)]
    return [words[2:] for words in found]


VERBS = [words[1:] for words in documented() if words[0] == "minimoe"]
MODULES = [words for words in documented() if words[0] != "minimoe"]


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize("words", VERBS, ids=lambda words: " ".join(words) or "tour")
def test_documented_verbs_work(words):
    quick = QUICK[words[0] if words else ""]
    arguments = [*words, *quick] if quick is not None else [words[0], "--help"]
    done = run("minimoe", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout and "Traceback" not in done.stderr


def test_documented_options_are_known():
    """Verbs that are too long to run: each option they are shown with is in their help."""
    for words in VERBS:
        if words and QUICK[words[0]] is None:
            names = [word for word in words[:2] if word.isalpha()]
            help_text = run("minimoe", *names, "--help").stdout
            assert all(word in help_text for word in words if word.startswith("--")), words


def test_every_verb_is_documented():
    from minimoe.__main__ import VERBS as known

    shown = {words[0] for words in VERBS if words}
    assert shown <= known.keys()
    assert {"generate", "eval", "bench", "train", "check"} <= shown


def test_help_of_every_verb_exits_with_0():
    assert run("minimoe", "--help").returncode == 0


@pytest.mark.parametrize("module", sorted({words[0] for words in MODULES}))
def test_documented_modules_have_help(module):
    done = run(module, "--help")
    assert done.returncode == 0 and "usage:" in done.stdout


def test_documented_modules_read_or_only_print(tmp_path):
    """The notebook commands, on a copy of all, since they link to each other."""
    (tmp_path / "notebooks").mkdir()
    for source in (ROOT / "notebooks").glob("*.ipynb"):
        (tmp_path / "notebooks" / source.name).write_bytes(source.read_bytes())
    for verb in ("dump", "check"):
        words = next(words for words in MODULES if verb in words)
        plain = [word for word in words if word not in (">", "tour.txt")]
        done = subprocess.run([sys.executable, "-m", *plain], cwd=tmp_path, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_python_blocks_run(capsys):
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
        assert capsys.readouterr().out.strip()


def test_ci_runs_the_test_command():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    extract = script[script.index("command=$(") : script.index("if [ -z")]
    shown = subprocess.run(
        ["bash", "-c", f'{extract}\nprintf %s "$command"'],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == command("test")


def test_both_commands_stand_alone():
    """Each makes the environment, installs files that exist, and starts something installed."""
    for name, starts in {"start": "jupyter lab", "test": "pytest"}.items():
        venv, install, start = command(name).split(" && ")
        assert venv == "python3 -m venv .venv"
        assert (ROOT / install.removeprefix(".venv/bin/pip install -r ")).is_file()
        assert start.startswith(f".venv/bin/{starts}")
        assert all((ROOT / word).exists() for word in start.split() if word.endswith(".ipynb"))


def test_windows_variant_agrees():
    (line,) = blocks("powershell")
    names = re.findall(r"\S+\.(?:txt|ipynb)", line.replace("\\", "/"))
    assert names == re.findall(r"\S+\.(?:txt|ipynb)", command("start"))


def test_files_that_are_named_exist():
    pages = README + (ROOT / "docs" / "vllm-sglang-map.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:minimoe|notebooks|data|tests|docs|\.ci)/[\w./-]*)`", pages)
    links = re.findall(r"\]\(([^)]+)\)", README)
    named += [link for link in links if "://" not in link and not link.startswith("#")]
    assert len(named) > 50
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing


def test_links_inside_the_page_lead_somewhere():
    heads = {re.sub(r"\W+", "-", head.lower()) for head in re.findall(r"^## (.+)$", README, re.M)}
    for link in re.findall(r"\]\(#([^)]+)\)", README):
        assert link in heads


def test_the_table_of_notebooks_agrees_with_them():
    rows = dict(re.findall(r"\| \[(\w+)\]\(notebooks/\w+\.ipynb\) \| (.+?) \|$", README, re.M))
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert list(rows) == [path.stem for path in paths]
    for path in paths:
        header = read(path).cells[0].source
        question, minutes, measured = rows[path.stem].split(" | ")
        assert f"# {question}" in header
        assert re.search(rf"\*\*Minutes:\*\* {minutes}\b", header) and measured
