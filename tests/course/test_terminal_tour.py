import argparse
import json

import pytest
import torch

from minimoe.config import SHIPPED
from minimoe.course import terminal_tour

pytestmark = pytest.mark.skipif(
    not (SHIPPED / "tiny-moe" / "model.safetensors").is_file(), reason="no weights in data/tiny-moe"
)


def run(*words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    terminal_tour.add_arguments(parser)
    return terminal_tour.main(parser.parse_args(["--device", "cpu", *words]))


def test_tour_streams_every_domain_and_draws_every_layer(capsys):
    result = run("--max-tokens", "5")
    printed = capsys.readouterr().out
    assert [printed.count(f"--- {name}\n") for name in terminal_tour.PROMPTS] == [1] * 4
    assert printed.count("  layer ") == 4 * 5
    assert "8.0 M parameters in all" in printed and "tok/s" in terminal_tour.render(result)


def test_with_json_nothing_else_is_printed(capsys):
    result = run("--json", "--max-tokens", "3")
    assert capsys.readouterr().out == ""
    assert json.loads(json.dumps(result)) == result
    for one in result["domains"].values():
        assert one["tokens"] <= 3 and len(one["experts"]) == 5


def test_every_completion_is_marked_and_no_line_is_too_long(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run("--max-tokens", "40")
    lines = capsys.readouterr().out.splitlines()
    assert sum(">>" in line for line in lines) == 1 + 4  # the introduction names the mark
    assert max(map(len, lines)) <= 80


def said(width, *pieces):
    screen = terminal_tour.Screen(width)
    for piece in pieces:
        screen.say(piece)
    screen.say("\n")


@pytest.mark.parametrize(
    "pieces", [("a bc def gh\n",), tuple("a bc def gh\n"), ("a b", "c def g", "h\n")]
)
def test_lines_break_between_words_however_the_text_arrives(capsys, pieces):
    said(6, *pieces)
    assert capsys.readouterr().out == "a bc\ndef gh\n\n"


def test_indents_stay_and_long_words_pass(capsys):
    said(6, "    if x:\n\n  abcdefghi\n")
    assert capsys.readouterr().out == "    if\nx:\n\n  abcdefghi\n\n"


def test_bar():
    assert terminal_tour._bar(torch.tensor([0, 1, 9])) == " .@"
    assert terminal_tour._bar(torch.tensor([100, 1, 0])) == "@. "
