"""The code domain: the Python standard library's own sources, read where Python is installed.

Nothing outside the standard library is ever read, so that any other package is unseen text.
"""

import hashlib
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from minimoe.errors import MinimoeError
from minimoe.training.rename import Renamer
from minimoe.training.reorder import shuffle_definitions

TEST_FOLDERS = {"test", "tests", "idle_test"}
TABLES = (
    "encodings/",
    "pydoc_data/topics",
    "re/_casefix",
    "html/entities",
    "_sysconfig",
    "__phello__",
)
OTHER_PACKAGES = {"site-packages", "dist-packages", "__pycache__"}
MAX_BYTES = 400_000
HELD_OUT_PERCENT = 4


def stdlib_folder() -> Path:
    """The folder of the running Python's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def stable_percent(text: str) -> int:
    """A number 0..99 that depends on `text` alone (hash() differs from process to process)."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 100


def is_held_out(path: str) -> bool:
    """Whether the file at this relative path is kept for evaluation."""
    return stable_percent(path) < HELD_OUT_PERCENT


def list_files(root: Path, tests: bool = False) -> list[str]:
    """Relative paths of the library's modules, sorted, without tables of data.

    With tests=True: of its test files instead (not every installation has them).
    """
    paths = (p.relative_to(root).as_posix() for p in root.rglob("*.py"))
    return sorted(p for p in paths if _is_wanted(p, tests))


def _is_wanted(path: str, tests: bool) -> bool:
    folders = set(path.split("/")[:-1])
    if folders & OTHER_PACKAGES or path.startswith(TABLES):
        return False
    return bool(folders & TEST_FOLDERS) == tests


def read_files(root: Path | None = None, tests: bool = False) -> dict[str, str]:
    """Every usable file of `list_files`: {relative path: text}. MinimoeError when there is none."""
    root = root or stdlib_folder()
    texts = {path: _read(root / path) for path in list_files(root, tests)}
    files = {path: text for path, text in texts.items() if text}
    if not files:
        missing = "test files (build the corpus --without-tests)" if tests else "sources"
        raise MinimoeError(f"no Python {missing} in {root}: use a Python that installs them")
    return files


def _read(path: Path) -> str | None:
    data = path.read_bytes()
    if not 0 < len(data) <= MAX_BYTES:
        return None
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:  # a few old files declare another encoding
        return None


def split(files: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(train, held-out), by a hash of the relative path."""
    train = {p: t for p, t in files.items() if not is_held_out(p)}
    held_out = {p: t for p, t in files.items() if is_held_out(p)}
    return train, held_out


def renamed_copies(files: dict[str, str], copies: int, rng: random.Random) -> Iterator[str]:
    """Yield documents: each file as it is, then `copies` versions of it with other names.

    A small model learns 10 MB of code by heart. Other names in the same structure teach it what
    holds beyond this library: that a name, once seen, comes again. In every second copy the
    functions stand in another order too.
    """
    order = sorted(files)
    rng.shuffle(order)
    yield from (files[path] for path in order)
    renamer = Renamer(files)
    for copy in range(copies):
        rng.shuffle(order)
        for path in order:
            text = renamer.rename(path, rng)
            yield shuffle_definitions(text, rng) if copy % 2 else text
