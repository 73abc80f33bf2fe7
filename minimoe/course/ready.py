"""`python -m minimoe check`: is this laptop ready for the course?

Each line is ok, a warning (the course works, with less comfort) or a failure with its remedy.
"""

import argparse
import importlib.metadata
import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from minimoe.config import REPO, SHIPPED

OK, WARN, FAIL = "ok", "warn", "fail"
PYTHONS = ((3, 11), (3, 13))
NEEDED_GB, COMFORTABLE_GB = 4.0, 7.5  # of memory in all; an 8 GB laptop reports a little less
DISK_GB = 1.0
PORT = 8888  # JupyterLab's
INSTALL = "pip install -r requirements.txt in the virtual environment"
MODEL_FILES = {"config.json": 100, "model.safetensors": 1_000_000, "tokenizer.json": 10_000}


@dataclass(frozen=True)
class Line:
    """One result: its name, ok/warn/fail, what was found, and what to do unless it is ok."""

    name: str
    status: str
    found: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=PORT, help="the port JupyterLab will use")


def main(args: argparse.Namespace) -> dict:
    """Run all checks: {"ready", "lines": [{name, status, found, remedy}], "exit_code"}."""
    lines = [line for check in _checks(args.port) for line in check()]
    ready = all(line.status != FAIL for line in lines)
    return {
        "ready": ready,
        "lines": [asdict(line) for line in lines],
        "exit_code": 0 if ready else 2,
    }


def render(result: dict) -> str:
    """The result as a table, remedies below the lines that need one."""
    rows = []
    for line in result["lines"]:
        rows.append(f"{line['status']:<5} {line['name']:<14} {line['found']}")
        if line["remedy"]:
            rows.append(f"{'':<20} -> {line['remedy']}")
    rows.append("ready" if result["ready"] else "not ready: mend the lines marked fail")
    return "\n".join(rows)


def _checks(port: int) -> list[Callable[[], Iterator[Line]]]:
    return [
        python_version,
        packages,
        torch_build,
        cores,
        memory,
        disk,
        write_access,
        lambda: free_port(port),
        model_files,
    ]


def python_version(version: tuple = sys.version_info) -> Iterator[Line]:
    """Python is one of the tested versions."""
    low, high = PYTHONS
    found = ".".join(map(str, version[:3]))
    if version[:2] < low:
        yield Line("python", FAIL, found, "install Python 3.11, 3.12 or 3.13")
    elif version[:2] > high:
        yield Line("python", WARN, found, "tested on 3.11 to 3.13: if an install fails, use those")
    else:
        yield Line("python", OK, found)


def pinned() -> dict[str, str]:
    """Package name to pinned version, from requirements.txt; empty outside a clone."""
    file = REPO / "requirements.txt"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {name.strip(): version.strip() for name, version in pairs}


def packages() -> Iterator[Line]:
    """One failure for missing packages, one warning for other versions than the pinned."""
    missing, other = [], []
    for name, version in pinned().items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if found.split("+")[0] != version:
            other.append(f"{name} {found} (pinned {version})")
    if missing:
        yield Line("packages", FAIL, f"missing: {', '.join(missing)}", INSTALL)
    elif other:
        yield Line("packages", WARN, ", ".join(other), f"outputs may differ; {INSTALL}")
    else:
        yield Line("packages", OK, "all at the pinned versions")


def torch_build() -> Iterator[Line]:
    """Import torch, name its build and device, and multiply two small matrices."""
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Line("torch", FAIL, f"cannot be imported ({str(error).splitlines()[0]})", INSTALL)
        return
    ones = torch.ones(64, 64)
    right = bool((ones @ ones == 64).all())
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    found = f"{torch.__version__} on {device}, {torch.get_num_threads()} threads"
    yield Line("torch", OK if right else FAIL, found, "" if right else f"computes wrong: {INSTALL}")


def cores() -> Iterator[Line]:
    """At least two cores, for quiet timings."""
    count = os.cpu_count() or 1
    found = f"{count} ({platform.machine()}, {platform.system()})"
    if count < 2:
        yield Line("cores", WARN, found, "everything works, timings will be noisy")
    else:
        yield Line("cores", OK, found)


def memory() -> Iterator[Line]:
    """Enough memory in all, and enough of it free."""
    try:
        import psutil
    except ImportError:
        yield Line("memory", WARN, "unknown without psutil", INSTALL)
        return
    total, free = (
        value / 1e9 for value in (psutil.virtual_memory().total, psutil.virtual_memory().available)
    )
    found = f"{total:.1f} GB, {free:.1f} GB free"
    if total < NEEDED_GB:
        yield Line("memory", FAIL, found, f"{NEEDED_GB:.0f} GB are needed: use another machine")
    elif total < COMFORTABLE_GB or free < NEEDED_GB:
        yield Line("memory", WARN, found, "close other programs; run one notebook at a time")
    else:
        yield Line("memory", OK, found)


def disk() -> Iterator[Line]:
    """Room for the notebooks and what they write."""
    free = shutil.disk_usage(REPO).free / 1e9
    if free < DISK_GB:
        yield Line("disk", FAIL, f"{free:.1f} GB free", f"make {DISK_GB:.0f} GB free")
    else:
        yield Line("disk", OK, f"{free:.1f} GB free")


def write_access(folders: tuple[Path, ...] | None = None) -> Iterator[Line]:
    """Create and delete a file where notebooks run and in the temporary folder."""
    for folder in folders or (Path.cwd(), Path(tempfile.gettempdir())):
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(b"minimoe")
        except OSError as error:
            remedy = f"allow writing in {folder}, or clone into your home folder"
            yield Line("write access", FAIL, f"{folder}: {error.strerror}", remedy)
            return
    yield Line("write access", OK, "this folder and the temporary one")


def free_port(port: int) -> Iterator[Line]:
    """Can a server listen on this machine at all, and is JupyterLab's port free?"""
    try:
        _listen(0)
    except OSError as error:
        remedy = "allow local connections (127.0.0.1) in the firewall"
        yield Line("port", FAIL, f"no port can be opened: {error.strerror}", remedy)
        return
    try:
        _listen(port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "not a port"
        remedy = "JupyterLab takes the next free one, or give it another by --port"
        yield Line("port", WARN, f"{port}: {reason}", remedy)
        return
    yield Line("port", OK, f"{port} is free")


def _listen(port: int) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))


def model_files(folder: Path = SHIPPED / "tiny-moe") -> Iterator[Line]:
    """The shipped weights are there and are not stubs of a partial clone."""
    for name, least in MODEL_FILES.items():
        size = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if size < least:
            found = f"{name} is missing" if size == 0 else f"{name} has only {size} bytes"
            yield Line("model files", FAIL, found, f"clone the whole repository again ({folder})")
            return
    yield Line("model files", OK, f"{folder.name} is complete")
