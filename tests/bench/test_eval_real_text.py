"""Real code that no one here wrote, from packages that training never read: beat `xz -9`.

`real_text_files.txt` lists 30 files of 8 to 32 KB. They were drawn once by `draw()` from the pinned
versions of requirements.txt; the test reads the list, so that another version changes little.
"""

import random
import statistics
import sysconfig
from pathlib import Path

import pytest

from minimoe.bench.eval import measure, read_text
from minimoe.checkpoint import load_checkpoint
from minimoe.config import SHIPPED
from minimoe.tokenizer import Tokenizer

PACKAGES = ("jupyter_server", "matplotlib", "ipywidgets", "jinja2", "requests")
FILES = (Path(__file__).parent / "real_text_files.txt").read_text().split()
SITE = Path(sysconfig.get_path("purelib"))
MODEL = SHIPPED / "tiny-moe"
LIMIT = 0.80  # median of bits per byte over those of xz -9


def draw(seed: int = 0) -> list[str]:
    """How the list was made."""
    paths = (p for package in PACKAGES for p in (SITE / package).rglob("*.py"))
    fitting = (p for p in paths if 8 * 1024 <= p.stat().st_size <= 32 * 1024)
    names = sorted(p.relative_to(SITE).as_posix() for p in fitting)
    return sorted(random.Random(seed).sample(names, 30))


def median_ratio(names: list[str]) -> float:
    """Median over the files that are installed here; the test fails when a third is missing."""
    import torch

    present = [name for name in names if (SITE / name).is_file()]
    assert len(present) >= 2 * len(names) / 3, "install requirements.txt: these files are missing"
    model, tokenizer = load_checkpoint(MODEL, torch.float32, "cpu").eval(), Tokenizer(MODEL)
    rows = [measure(model, tokenizer, read_text(SITE / name)) for name in present]
    return statistics.median(row["bits_per_byte"] / row["xz_bits_per_byte"] for row in rows)


def test_the_list():
    assert len(set(FILES)) == 30
    assert all(name.split("/")[0] in PACKAGES for name in FILES)


def test_every_sixth_file_beats_xz():
    assert median_ratio(FILES[::6]) <= LIMIT


@pytest.mark.soak
def test_all_files_beat_xz():
    assert median_ratio(FILES) <= LIMIT
