"""Reading and writing traces: both forms, and bad rows named by their line."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minimoe.kvstore.trace import Request, TraceError, from_runs, read_trace, to_runs, write_trace

ROW = {"timestamp": 5, "input_length": 600, "output_length": 7, "hash_ids": [3, 4]}


@given(st.lists(st.integers(0, 30)))
def test_runs_hold_the_same_blocks(blocks):
    runs = to_runs(blocks)
    assert list(from_runs(runs)) == blocks
    assert len(runs) <= len(blocks)


@pytest.mark.parametrize("runs", [True, False])
def test_a_trace_survives_writing_and_reading(tmp_path, runs):
    requests = [Request(0, 1024, 9, [0, 1], "agent", 4), Request(9, 3, 1, [], "chat", None)]
    write_trace(tmp_path / "t.jsonl", requests, runs)
    back = read_trace(tmp_path / "t.jsonl")
    if not runs:
        requests = [Request(0, 1024, 9, [0, 1]), Request(9, 3, 1, [])]
    assert back == requests


def test_run_length_form_is_short_for_a_long_session(tmp_path):
    turns = [Request(t, 512 * (t + 1), 1, list(range(t + 1)), "agent", 0) for t in range(200)]
    for runs in (True, False):
        write_trace(tmp_path / f"{runs}.jsonl", turns, runs)
    sizes = [(tmp_path / f"{runs}.jsonl").stat().st_size for runs in (True, False)]
    assert sizes[0] < sizes[1] / 3
    assert read_trace(tmp_path / "True.jsonl") == turns


BAD = {
    "cut": ('{"timestamp": 1, "input_len', "is it cut"),
    "list": ("[1, 2]", "expected an object"),
    "no time": (
        json.dumps({k: v for k, v in ROW.items() if k != "timestamp"}),
        "timestamp is None",
    ),
    "negative": (json.dumps(ROW | {"input_length": -1}), "input_length is -1"),
    "fraction": (json.dumps(ROW | {"timestamp": 1.5}), "timestamp is 1.5"),
    "true": (json.dumps(ROW | {"output_length": True}), "output_length is True"),
    "no ids": (json.dumps(ROW | {"hash_ids": None}), "list of whole numbers"),
    "text id": (json.dumps(ROW | {"hash_ids": [1, "2"]}), "list of whole numbers"),
    "runs": (json.dumps({**ROW, "hash_runs": [[1, 0]], "hash_ids": 0}), "list of whole numbers"),
    "kind": (json.dumps(ROW | {"kind": 3}), "kind is 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_named_by_its_line(tmp_path, name):
    row, words = BAD[name]
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(ROW) + "\n\n" + row + "\n")
    with pytest.raises(TraceError, match="line 3") as error:
        read_trace(path)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("runs", [[[1, 0]], [[1]], 5, [["a", 2]]])
def test_bad_runs_are_refused(tmp_path, runs):
    row = {k: v for k, v in ROW.items() if k != "hash_ids"} | {"hash_runs": runs}
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    with pytest.raises(TraceError, match="line 1: hash_runs"):
        read_trace(tmp_path / "t.jsonl")


def test_a_row_without_blocks_of_any_form(tmp_path):
    row = {k: v for k, v in ROW.items() if k != "hash_ids"}
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    with pytest.raises(TraceError, match="no hash_ids and no hash_runs"):
        read_trace(tmp_path / "t.jsonl")


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "none.jsonl")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match="not UTF-8"):
        read_trace(tmp_path / "b.jsonl")


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=80))
def test_any_text_gives_requests_or_one_line(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("t") / "t.jsonl"
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        read_trace(path)
    except TraceError as error:
        assert "\n" not in str(error)
