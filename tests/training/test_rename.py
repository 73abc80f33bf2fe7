"""Renamed and reordered copies: still Python, same structure, other names."""

import ast
import io
import random
import tokenize
from collections import Counter

import pytest

from minimoe.training import code
from minimoe.training.outline import outline, shape
from minimoe.training.rename import Renamer, words_of
from minimoe.training.reorder import shuffle_definitions

SAMPLE = '''"""Sockets: a SocketServer waits for requests."""

import os


class SocketServer:
    """Serves a socket_timeout at a time."""

    def __init__(self, socket_timeout=None, path=os.path.join('a', "it's")):
        self.socket_timeout = socket_timeout
        self.path = os.path.abspath(path)
        print(path, end='')

    def wait_socket(self, first,
                    second):  # the socket waits
        return self.call_widely(self.socket_timeout,
                                f"{first!r:>{second}}\\tsocket")

    def call_widely(self, *values):
        return [v.strip() for v in values if isinstance(v, str)]
'''
OTHERS = {f"other{i}.py": f"def gadget{i}(marble, lantern): return marble\n" * 3 for i in range(9)}


@pytest.fixture(scope="module")
def library():
    """Thirty real files of middling size, and the renamer of them."""
    train, _ = code.split(code.read_files())
    paths = [p for p in sorted(train) if 2_000 < len(train[p]) < 20_000]
    files = {p: train[p] for p in random.Random(7).sample(paths, 30)}
    return files, Renamer(files)


def test_words():
    assert words_of("maxRetry_count2") == ["max", "Retry", "_", "count", "2"]
    assert words_of("HTTPServer") == ["HTTP", "Server"]
    assert "".join(words_of("_X__größe_9")) == "_X__größe_9"


def test_names_change_consistently():
    renamer = Renamer({"a.py": SAMPLE} | OTHERS)
    renamer.common = {"init", "self", "path", "first", "second", "values"}
    words = {"socket": "panel", "timeout": "margin", "server": "keeper", "wait": "paint"}
    renamer._choose_words = lambda plan, rng: words
    text = renamer.rename("a.py", random.Random(0))
    assert "class PanelKeeper:" in text and "a PanelKeeper waits" in text
    assert "self.panel_margin = panel_margin" in text
    assert "def paint_panel(self, first," in text and "# the panel waits" in text
    assert "os.path.join" in text and "end=" in text and "v.strip()" in text
    assert text.lower().replace("\\tsocket", "").count("socket") == 1  # the plural, not in the map


def test_plurals_follow_their_stem():
    source = "for lantern in lanterns:\n    print(lantern)  # lanterns\n"
    renamer = Renamer({"a.py": source} | OTHERS)
    for seed in range(20):
        first = renamer.rename("a.py", random.Random(seed)).split("\n")[0]
        _, one, _, many = first.rstrip(":").split()
        assert many == one + "s"


def test_aligned_lines_move_along():
    renamer = Renamer({"a.py": SAMPLE})
    words = {"widely": "x", "wait": "paintbrush"}
    renamer._choose_words = lambda plan, rng: words
    lines = renamer.rename("a.py", random.Random(0)).splitlines()
    for start in ("    def paintbrush_socket(", "        return self.call_x("):
        at = next(i for i, line in enumerate(lines) if line.startswith(start))
        assert len(lines[at + 1]) - len(lines[at + 1].lstrip()) == len(start)


def test_real_files_keep_their_structure(library):
    files, renamer = library
    rng = random.Random(1)
    changed = 0
    for path, source in files.items():
        copy = renamer.rename(path, rng)
        assert shape(copy) == shape(source) != ""
        assert copy.count("\n") == source.count("\n")
        changed += copy != source
    assert changed > 25


def test_real_names_are_renamed_one_to_one(library):
    files, renamer = library
    for path, source in files.items():
        old, new = _names(source), _names(renamer.rename(path, random.Random(2)))
        assert len(old) == len(new)
        # Nearly one to one: an import's attribute keeps a name that is the file's own elsewhere
        assert 0.95 * len(set(old)) <= len(set(new)) <= 1.1 * len(set(old)), path


def _names(source: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [t.string for t in tokens if t.type == tokenize.NAME]


def test_deterministic_by_seed(library):
    files, _ = library
    path = sorted(files)[0]
    copies = [Renamer(files).rename(path, random.Random(seed)) for seed in (3, 3, 4)]
    assert copies[0] == copies[1] != copies[2]


def test_a_file_that_does_not_parse_stays():
    broken = "def f(:\n"
    assert outline(broken) is None
    assert Renamer({"b.py": broken}).rename("b.py", random.Random(0)) == broken
    assert shuffle_definitions(broken, random.Random(0)) == broken


def test_reorder_moves_whole_definitions():
    source = "import os\n\n# one\ndef one():\n    pass\n\n\n@two\ndef two():\n    pass\n\n\nx = 1\n"
    texts = {shuffle_definitions(source, random.Random(seed)) for seed in range(8)}
    assert len(texts) == 2
    for text in texts:
        assert text.index("# one") + len("# one\n") == text.index("def one")
        assert "@two\ndef two" in text and text.endswith("x = 1\n")


def test_reorder_keeps_properties_together_and_dunders_in_place():
    source = (
        "class A:\n    def __init__(self): pass\n    def a(self): pass\n    @property\n"
        "    def b(self): pass\n    @b.setter\n    def b(self, x): pass\n    def c(self): pass\n"
    )
    for seed in range(8):
        tree = ast.parse(shuffle_definitions(source, random.Random(seed)))
        names = [node.name for node in tree.body[0].body]
        assert names[0] == "__init__" and names[names.index("b") + 1] == "b"
        assert sorted(names) == ["__init__", "a", "b", "b", "c"]


def test_reorder_of_real_files_keeps_every_line(library):
    files, _ = library
    for path, source in files.items():
        text = shuffle_definitions(source, random.Random(5))
        assert Counter(shape(text).split()) == Counter(shape(source).split()), path
        assert sorted(text.splitlines()) == sorted(source.splitlines()), path
