"""Every notebook in a real browser: Run All, then every control moved, as a reader would."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from minimoe.course.normal_form import code_cells, read

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
RUN_SECONDS = 180
HERE = ("127.0.0.1", "localhost")
STEPS = 12  # of a slider, until its figure and text must have changed
ERRORS = (
    '[data-mime-type="application/vnd.jupyter.error"]',
    "text=Error displaying widget",
    "mjx-merror",  # a formula that cannot be read
)
ALL_RAN = """() => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].every(
    prompt => /\\[\\d+\\]/.test(prompt.textContent))"""
IDLE = ".jp-Notebook-ExecutionIndicator[data-status='idle']"


class Watch:
    """What the page complains about, and whom it asks for something."""

    def __init__(self, page):
        self.errors, self.outside = [], []
        page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self.see)

    def see(self, request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and address.hostname not in HERE:
            self.outside.append(request.url)


def open_and_run_all(page, lab, name: str) -> None:
    """The address a reader has, then Run > Run All Cells, until every cell has its number."""
    page.goto(lab.url(f"lab/tree/notebooks/{name}", "&reset"))
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    page.wait_for_selector("text=| Idle", timeout=90_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    page.wait_for_function(ALL_RAN, timeout=RUN_SECONDS * 1000)
    page.wait_for_selector(IDLE, timeout=60_000)


def errors(page) -> list[str]:
    return [text for kind in ERRORS for text in page.locator(kind).all_inner_texts()]


def controls_of(cell):
    """The sliders, choices and tick boxes of a cell, each with the way to move it."""
    for at in range(cell.locator(".noUi-handle").count()):
        yield cell.locator(".noUi-handle").nth(at), step_slider
    for at in range(cell.locator(".widget-dropdown select").count()):
        yield cell.locator(".widget-dropdown select").nth(at), step_choice
    for at in range(cell.locator(".widget-checkbox input").count()):
        yield cell.locator(".widget-checkbox input").nth(at), tick


def step_slider(handle, step: int) -> None:
    """To the right, and from the end back to the left."""
    now, most = (handle.get_attribute(f"aria-value{name}") for name in ("now", "max"))
    handle.focus()
    handle.press("ArrowLeft" if float(now) >= float(most) else "ArrowRight")


def step_choice(select, step: int) -> None:
    options = select.locator("option").count()
    select.select_option(index=(step + 1) % options)


def tick(box, step: int) -> None:
    box.click()


def shown(cell) -> tuple:
    """Text and pictures of a cell, as they are now. The pictures in one look: one asked for by its
    number may be gone by then, as the figure is drawn anew."""
    texts = cell.locator(".jp-OutputArea-output pre").all_inner_texts()
    pictures = cell.locator("img").evaluate_all("all => all.map(one => one.getAttribute('src'))")
    return texts, pictures


def change(page, cell, control, move, steps: int) -> tuple[bool, bool]:
    """Move a control step by step; did the text change, did the picture?"""
    before, text, picture = shown(cell), False, False
    for step in range(steps):
        move(control, step)
        for _ in range(40):
            page.wait_for_timeout(100)
            now = shown(cell)
            text = text or (now[0] != before[0] and bool(now[0]))
            picture = picture or (now[1] != before[1] and bool(now[1]))
            if text and picture:
                return text, picture
            if now != before and now[0] and now[1]:
                break  # drawn anew, but one of them is as it was: go on a step
    return text, picture


def test_there_is_a_cell_of_sliders_to_move():
    assert any("sliders(" in cell.source for path in NOTEBOOKS for cell in code_cells(read(path)))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(page, lab, path):
    watch = Watch(page)
    open_and_run_all(page, lab, path.name)
    assert not errors(page)
    expected = [cell.id for cell in code_cells(read(path)) if "sliders(" in cell.source]
    cells = page.locator(".jp-CodeCell").filter(has=page.locator(".widget-vbox"))
    if expected:
        cells.nth(len(expected) - 1).wait_for(timeout=60_000)
    assert cells.count() == len(expected)
    for name, cell in zip(expected, cells.all(), strict=True):
        cell.scroll_into_view_if_needed()
        cell.locator("img").first.wait_for(timeout=60_000)
        for control, move in controls_of(cell):
            text, picture = change(page, cell, control, move, STEPS if move is not tick else 1)
            label = control.locator("xpath=ancestor::*[contains(@class, 'widget-inline-hbox')][1]")
            said = f"{name}: {label.inner_text()!r}"
            if move is not tick:  # which may change the look alone, such as an order
                assert text, f"{said} moves, and the text does not change"
            assert picture, f"{said} moves, and the figure does not change"
    assert not errors(page) and not watch.errors and not watch.outside
