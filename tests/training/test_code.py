"""Which files of the standard library are read, and how they are split."""

import random

import pytest

from minimoe.errors import MinimoeError
from minimoe.training import code


def _library(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"# {path}\n")


def test_only_the_library_is_read(tmp_path):
    wanted = ["abc.py", "json/decoder.py", "idlelib/run.py"]
    _library(tmp_path, *wanted, "site-packages/numpy/core.py", "test/test_abc.py", "a/tests/x.py",
             "encodings/cp437.py", "dist-packages/y.py", "idlelib/idle_test/z.py")  # fmt: skip
    assert sorted(code.read_files(tmp_path)) == sorted(wanted)
    tests = code.read_files(tmp_path, tests=True)
    assert sorted(tests) == ["a/tests/x.py", "idlelib/idle_test/z.py", "test/test_abc.py"]


def test_unreadable_files_are_left_out(tmp_path):
    _library(tmp_path, "a.py")
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    (tmp_path / "empty.py").write_bytes(b"")
    assert list(code.read_files(tmp_path)) == ["a.py"]


def test_no_library(tmp_path):
    with pytest.raises(MinimoeError, match="no Python sources in"):
        code.read_files(tmp_path)
    with pytest.raises(MinimoeError, match="--without-tests"):
        code.read_files(tmp_path, tests=True)


def test_split_is_fixed_and_disjoint():
    files = code.read_files()
    train, held_out = code.split(files)
    assert not train.keys() & held_out.keys() and len(train) + len(held_out) == len(files)
    assert 0.01 < len(held_out) / len(files) < 0.08
    assert not code.is_held_out("textwrap.py") and code.is_held_out("typing.py")


def test_copies_follow_the_originals(tmp_path):
    files = {f"{i}.py": f"def walk_{i}(lantern):\n    return lantern\n" for i in range(5)}
    documents = list(code.renamed_copies(files, 2, random.Random(0)))
    assert len(documents) == 15
    assert sorted(documents[:5]) == sorted(files.values())
    assert documents == list(code.renamed_copies(files, 2, random.Random(0)))
