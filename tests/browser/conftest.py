"""JupyterLab and a headless Chromium, as a reader would have them; skipped where either is missing.

Chromium is looked for on the path, or named by the environment variable CHROMIUM. It is the
system's: `playwright install` is not needed.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from minimoe.course.normal_form import code_cells, read, text_of

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = (
    "--no-sandbox",  # Chromium refuses to start as root with it, and CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
SETTINGS = {  # no question about news, and every cell drawn, not only those in view
    "apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "notebook-extension/tracker": {"windowingMode": "none"},
}
TOKEN = "course"


def chromium() -> str | None:
    """The path of a Chromium, or None."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Lab:
    """A JupyterLab server over copies of the notebooks, their outputs removed."""

    def __init__(self, folder: Path):
        self.folder, self.port = folder, _free_port()
        self._copy_notebooks()
        self._write_settings()
        self.log = (folder / "log").open("w", encoding="utf-8")
        self.process = subprocess.Popen(
            self._command(),
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "JUPYTER_CONFIG_DIR": str(folder / "config")},
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def _copy_notebooks(self) -> None:
        """JupyterLab saves on its own, so it gets copies. Empty prompts tell what has run."""
        (self.folder / "notebooks").mkdir()
        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            notebook = read(path)
            for cell in code_cells(notebook):
                cell.outputs, cell.execution_count = [], None
            copy = self.folder / "notebooks" / path.name
            copy.write_text(text_of(notebook), encoding="utf-8")

    def _write_settings(self) -> None:
        for name, value in SETTINGS.items():
            path = self.folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(value), encoding="utf-8")

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "jupyter", "lab", "--allow-root", "--no-browser"),
            *(f"--port={self.port}", "--ServerApp.port_retries=0", "--ip=127.0.0.1"),
            f"--IdentityProvider.token={TOKEN}",
            f"--ServerApp.root_dir={self.folder}",
            f"--LabApp.user_settings_dir={self.folder / 'settings'}",
        ]

    def url(self, path: str, query: str = "") -> str:
        return f"http://127.0.0.1:{self.port}/{path}?token={TOKEN}{query}"

    def wait(self, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(self.url("api/status")):
                return
            time.sleep(0.2)
        pytest.fail(f"JupyterLab did not start:\n{(self.folder / 'log').read_text()[-2000:]}")

    def stop_kernels(self) -> None:
        """One notebook at a time: thirty kernels would not fit into 4 GB."""
        with urllib.request.urlopen(self.url("api/sessions")) as answer:
            sessions = json.load(answer)
        for session in sessions:
            url = self.url(f"api/sessions/{session['id']}")
            urllib.request.urlopen(urllib.request.Request(url, method="DELETE")).close()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium, driven by playwright."""
    if chromium() is None:
        pytest.skip("no Chromium on this machine: install it, or name it by CHROMIUM=PATH")
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory, browser):
    """A running JupyterLab; `browser` comes first, so that nothing starts where it is missing."""
    lab = Lab(tmp_path_factory.mktemp("lab"))
    try:
        lab.wait()
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def page(browser, lab):
    """A fresh page of the browser; kernels that it started end with it."""
    page = browser.new_page(viewport={"width": 1200, "height": 1600})
    yield page
    page.close()
    lab.stop_kernels()
