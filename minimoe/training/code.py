"""The code domain: the Python standard library's own sources, read where Python is installed.

Nothing outside the standard library is ever read, so that any other package is unseen text.
"""

import hashlib
import random
import sysconfig
from pathlib import Path

from minimoe.training.rename import Renamer

TEST_FOLDERS = {"test", "tests", "idle_test"}
TABLES = ("encodings/", "pydoc_data/topics.py", "lib2to3/pgen2/", "_sysconfigdata", "__phello__")
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


def list_files(root: Path) -> list[str]:
    """Relative paths of the library's modules, sorted; tests, tables and other packages left out."""
    paths = (p.relative_to(root).as_posix() for p in root.rglob("*.py"))
    return sorted(p for p in paths if _is_module(p))


def _is_module(path: str) -> bool:
    folders = set(path.split("/")[:-1])
    if folders & (TEST_FOLDERS | {"site-packages", "dist-packages", "__pycache__"}):
        return False
    return not path.startswith(TABLES)


def read_files(root: Path | None = None) -> dict[str, str]:
    """Every usable module: {relative path: text}. Raises ValueError when there is none."""
    root = root or stdlib_folder()
    texts = {path: _read(root / path) for path in list_files(root)}
    files = {path: text for path, text in texts.items() if text}
    if not files:
        raise ValueError(
            f"no Python sources in {root}; pass a folder that holds the standard library's .py files"
        )
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


def renamed_copies(files: dict[str, str], copies: int, rng: random.Random):
    """Yield documents: each file as it is, then `copies` versions of it with other names.

    A small model learns 10 MB of code by heart. Other names in the same structure teach it what
    holds beyond this library: that a name, once seen, comes again.
    """
    order = sorted(files)
    rng.shuffle(order)
    yield from (files[path] for path in order)
    renamer = Renamer(files)
    for _ in range(copies):
        rng.shuffle(order)
        for path in order:
            yield renamer.rename(path, rng)
