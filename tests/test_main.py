"""The command line: one JSON object, one line for bad input, and a quick --help."""

import json
import subprocess
import sys

import pytest

from minimoe.__main__ import main


def run(*words: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "minimoe", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from minimoe.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "False False"
    assert "generate" in done.stdout and "bench" in done.stdout


def test_generate_prints_one_json_object(capsys):
    words = ["generate", "def area(radius):", "--max-tokens", "5", "--device", "cpu", "--json"]
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["tokens"] == len(result["token_ids"]) == 5
    assert result["finish_reason"] == "length"


def test_generate_streams_the_same_text(capsys):
    words = ["generate", "def area(radius):", "--max-tokens", "5", "--device", "cpu"]
    main([*words, "--json"])
    text = json.loads(capsys.readouterr().out)["text"]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith(text + "\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", ""], "the prompt is empty"),
        (["generate", "a", "--model", "nope"], "no model 'nope'"),
        (["generate", "a", "--temperature", "-1"], "temperature is -1.0"),
        (["generate", "a", "--max-tokens", "0"], "max_tokens is 0"),
        (["generate", "a", "--top-p", "0"], "top_p is 0.0"),
        (["generate", "a", "--dtype", "int8"], "dtype is 'int8'"),
        (["generate", "a", "--device", "tpu"], "device is 'tpu'"),
        (["bench", "decode", "--rounds", "0"], "rounds must each be 1 or more"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_code_2(words, message, capsys):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1


def test_unknown_verbs_are_refused():
    done = run("fly")
    assert done.returncode == 2 and "invalid choice" in done.stderr


def test_bench_decode_measures_both_sides():
    words = ["--batch", "1", "2", "--prompt-tokens", "8", "--new-tokens", "4", "--rounds", "1"]
    done = run("bench", "decode", *words, "--threads", "1", "--against", "transformers", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [row["batch"] for row in result["rows"]] == [1, 2]
    assert all(row["ratio"] > 0 for row in result["rows"])
    assert {"device", "threads", "versions"} <= set(result)


def test_bench_prefill():
    words = [
        "bench",
        "prefill",
        "--prompt-tokens",
        "20",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--json",
    ]
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"][0]["tok_s"] > 0
