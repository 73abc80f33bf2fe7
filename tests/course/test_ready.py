import argparse
import importlib.metadata
import json
import socket

import pytest

from minimoe.course import ready


def run(port=0):
    parser = argparse.ArgumentParser()
    ready.add_arguments(parser)
    return ready.main(parser.parse_args(["--port", str(port)]))


def only(lines):
    (line,) = lines
    return line


def test_result_is_json_and_renders():
    result = run()
    assert json.loads(json.dumps(result)) == result
    names = [line["name"] for line in result["lines"]]
    assert names[0] == "python" and "torch" in names and len(names) == len(set(names))
    assert result["ready"] == (result["exit_code"] == 0)
    text = ready.render(result)
    assert all(name in text for name in names)


def test_a_failure_makes_it_not_ready(monkeypatch):
    bad = ready.Line("disk", ready.FAIL, "0.1 GB free", "make 1 GB free")
    monkeypatch.setattr(ready, "disk", lambda: iter([bad]))
    result = run()
    assert (result["ready"], result["exit_code"]) == (False, 2)
    assert "-> make 1 GB free" in ready.render(result)


@pytest.mark.parametrize(
    "version, status",
    [((3, 10, 9), "fail"), ((3, 11, 0), "ok"), ((3, 13, 1), "ok"), ((3, 14, 0), "warn")],
)
def test_python_version(version, status):
    assert only(ready.python_version(version)).status == status


def test_every_requirement_is_pinned_and_read():
    assert ready.pinned()["torch"] == "2.13.0" and len(ready.pinned()) >= 10


def test_packages(monkeypatch):
    monkeypatch.setattr(ready, "pinned", lambda: {"numpy": importlib.metadata.version("numpy")})
    assert only(ready.packages()).status == "ok"
    monkeypatch.setattr(ready, "pinned", lambda: {"numpy": "0.1"})
    line = only(ready.packages())
    assert line.status == "warn" and "pinned 0.1" in line.found
    monkeypatch.setattr(ready, "pinned", lambda: {"no-such-package": "1"})
    line = only(ready.packages())
    assert line.status == "fail" and "no-such-package" in line.found and line.remedy


def test_torch_computes():
    assert only(ready.torch_build()).status == "ok"


@pytest.mark.parametrize(
    "total, free, status", [(3, 2, "fail"), (7, 6, "warn"), (32, 2, "warn"), (32, 20, "ok")]
)
def test_memory(monkeypatch, total, free, status):
    import psutil

    amount = type("Memory", (), {"total": total * 1e9, "available": free * 1e9})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: amount)
    assert only(ready.memory()).status == status


def test_port_in_use_is_a_warning():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        line = only(ready.free_port(server.getsockname()[1]))
    assert line.status == "warn" and "--port" in line.remedy


@pytest.mark.parametrize("port", [-1, 70000])
def test_a_number_that_is_no_port(port):
    assert only(ready.free_port(port)).status == "warn"


def test_write_access(tmp_path):
    assert only(ready.write_access((tmp_path,))).status == "ok"
    line = only(ready.write_access((tmp_path / "missing",)))
    assert line.status == "fail" and "missing" in line.found


def test_model_files(tmp_path):
    assert "config.json is missing" in only(ready.model_files(tmp_path)).found
    for name, size in ready.MODEL_FILES.items():
        (tmp_path / name).write_bytes(b"0" * size)
    assert only(ready.model_files(tmp_path)).status == "ok"
    (tmp_path / "model.safetensors").write_bytes(b"version 1")
    assert "has only 9 bytes" in only(ready.model_files(tmp_path)).found
