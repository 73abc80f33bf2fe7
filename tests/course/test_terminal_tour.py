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
    assert "8.0 M parameters" in printed and "tok/s" in terminal_tour.render(result)


def test_with_json_nothing_else_is_printed(capsys):
    result = run("--json", "--max-tokens", "3")
    assert capsys.readouterr().out == ""
    assert json.loads(json.dumps(result)) == result
    for one in result["domains"].values():
        assert one["tokens"] <= 3 and len(one["experts"]) == 5


def test_bar():
    assert terminal_tour._bar(torch.tensor([0, 1, 9])) == " .@"
    assert terminal_tour._bar(torch.tensor([100, 1, 0])) == "@. "
