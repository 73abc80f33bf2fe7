"""The ledger of claims: complete, honest, and in agreement with the notebooks' outputs."""

import json
import re

import nbformat
import pytest

from minimoe.course import claims
from minimoe.course.claims import LABELS, SHOWN, Claim, Outputs
from minimoe.errors import MinimoeError

CLAIMS = claims.load()
OUTPUTS = Outputs()
LATER = ("server", "routing", "disaggregation", "draining", "determinism", "structured-outputs")


def test_it_is_long_enough_and_says_what_is_missing():
    assert len(CLAIMS) >= 40
    assert "pictures" in json.loads(claims.FILE.read_text(encoding="utf-8"))["about"]


def test_parts_not_rebuilt_are_not_yet():
    later = {claim.id for claim in CLAIMS if claim.kind == "later"}
    assert all(any(part in name for name in later) for part in LATER), later
    assert all(claim.label == "not yet" for claim in CLAIMS if claim.kind == "later")


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_each_value_stands_in_its_cell(claim):
    said = claims.ours(claim, OUTPUTS)
    assert bool(said) == (claim.label in SHOWN) and "{" not in said


def test_fleet_rows_claim_no_measurement():
    """What only DeepSeek can see, we can at most do sums about."""
    for claim in CLAIMS:
        assert claim.kind != "fleet" or claim.label in ("derived", "reported"), claim.id


def test_every_part_with_a_notebook_has_its_rows():
    """A row waits only while its notebook is being written."""
    assert not [claim.id for claim in CLAIMS if claim.label == "pending"]


def test_most_mechanisms_are_tested():
    tested, asked = claims.tested_mechanisms(CLAIMS)
    assert asked >= 30 and tested >= 0.8 * asked


# The module itself, on a small notebook.

ROW = dict(id="a", topic="T", claim="It is | two", value="$2", kind="mechanism", label="derived")
PLACE = dict(notebook="10_small", cell="sum", shows=r"^sum +(\d+)$", ours="it is {0}")


@pytest.fixture
def outputs(tmp_path):
    cell = nbformat.v4.new_code_cell("print(1)", id="sum")
    cell.outputs = [nbformat.v4.new_output("stream", text="first\nsum   2\n")]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbformat.write(notebook, tmp_path / "10_small.ipynb")
    return Outputs(tmp_path)


def load(tmp_path, *rows):
    path = tmp_path / "claims.json"
    path.write_text(json.dumps({"claims": rows}), encoding="utf-8")
    return claims.load(path)


def test_our_value_is_read_from_the_cell(outputs):
    assert claims.ours(Claim(**ROW, **PLACE), outputs) == "it is 2"


@pytest.mark.parametrize(
    "change, says",
    [
        ({"shows": "sum 3"}, "does not show 'sum 3'"),
        ({"cell": "other"}, "no cell 'other'"),
        ({"notebook": "11_none"}, "no notebook"),
    ],
)
def test_a_row_that_disagrees_is_named(outputs, change, says):
    with pytest.raises(MinimoeError, match=says):
        claims.ours(Claim(**ROW | PLACE | change), outputs)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"label": "sure"}, "label 'sure'"),
        ({"label": ""}, "label ''"),
        ({"kind": "rumour"}, "kind 'rumour'"),
        ({"cell": ""}, "names no notebook, cell"),
        ({"label": "reported"}, "needs a `why`"),
        ({"label": "reported", "cell": ""}, "needs a `why`"),
    ],
)
def test_a_row_that_breaks_the_form_is_named(tmp_path, change, says):
    with pytest.raises(MinimoeError, match=f"claim 'a' .*{re.escape(says)}"):
        load(tmp_path, ROW | PLACE | change)


def test_ids_are_unique(tmp_path):
    with pytest.raises(MinimoeError, match="used twice: a"):
        load(tmp_path, ROW | PLACE, ROW | PLACE)


def test_table_and_summary(outputs):
    later = dict(id="b", topic="T", claim="c", value="", kind="later", label="not yet", why="w")
    rows = [Claim(**ROW, **PLACE), Claim(**later)]
    lines = claims.table(rows, outputs).splitlines()
    assert lines[2] == "| It is \\| two | \\$2 | it is 2 | *derived* | [10](10_small.ipynb) |"
    assert lines[3] == "| c |  | w | *not yet* |  |"
    assert claims.summary(rows).splitlines()[-1].endswith("mechanism, 1 are measured or derived")
    assert claims.tested_mechanisms(rows) == (1, 1)


def test_labels_are_those_of_the_figures():
    from minimoe.course.style import LABELS as known

    assert set(known) <= set(LABELS)
