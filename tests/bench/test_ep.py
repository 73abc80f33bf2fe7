"""`bench ep` and `bench exchange` on two ranks of this machine, small."""

from argparse import ArgumentParser

import pytest

from minimoe.bench import ep, exchange
from minimoe.errors import MinimoeError


def arguments(module, *words: str):
    parser = ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args(words)


def test_ep_counts_what_the_formula_says():
    small = ["--requests=4", "--prompt-tokens=12", "--new-tokens=4", "--spare-slots=1"]
    result = ep.main(arguments(ep, *small))
    assert result["tok_s"] > 0 and result["imbalance"] >= 1
    computed = 4 * (12 + 3) * 4 * 5  # tokens x K x layers
    assert sum(row["rows"] for row in result["per_rank"]) == computed
    for row in result["per_rank"]:
        assert row["sent"] == row["sent_by_formula"] > 0
        assert row["received"] == row["received_by_formula"] > 0
        shares = [row[f"{name}_share"] for name in ep.SHARES]
        assert sum(shares) == pytest.approx(1) and min(shares) > 0
    assert "busiest rank" in ep.render(result)


def test_ep_on_one_process():
    result = ep.main(arguments(ep, "--ranks=1", "--requests=2", "--new-tokens=4"))
    assert result["tok_s"] > 0 and "1 ranks" in ep.render(result)


def test_exchange():
    words = ["--messages", "2048", "65536", "--tokens", "8", "--requests=2"]
    result = exchange.main(arguments(exchange, *words))
    assert [row["bytes"] for row in result["messages"]] == [2048, 65536]
    assert [row["slice"] for row in result["layers"]] == ["ep8", "ep64"]
    assert result["layers"][0]["rows"] >= 8 * 4
    assert result["outputs_equal"]
    assert "same tokens" in exchange.render(result)


@pytest.mark.parametrize(
    "words",
    [["--ranks=0"], ["--new-tokens=0"], ["--requests=0"], ["--ranks=1", "--new-tokens=2017"]],
)
def test_bad_input_of_ep(words):
    with pytest.raises(MinimoeError):
        ep.main(arguments(ep, *words))


def test_an_exchange_needs_two():
    with pytest.raises(MinimoeError, match="2 or more"):
        exchange.main(arguments(exchange, "--ranks=1"))
