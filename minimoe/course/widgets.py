"""One slider style: controls above a plain function that draws a figure and prints its numbers.

    from minimoe.course.widgets import sliders
    sliders(expert_use, layer=(1, 5), domain=["code", "story"])

The function comes first, in a cell of its own, as a static figure; the sliders only call it again.
"""

from collections.abc import Callable

import ipywidgets as widgets
from IPython.display import display

WIDTH = widgets.Layout(width="32em")
LABEL_WIDTH = {"description_width": "12em"}


def sliders(draw: Callable[..., None], **controls) -> None:
    """Show one control per argument of `draw`, and its figure and text below, drawn anew.

    A control is (low, high), (low, high, step) or (low, high, step, start) for a slider of whole
    or real numbers, a list for a choice, or a bool for a tick box. An underscore in a name shows
    as a space. Raises ValueError for anything else.
    """
    made = {name: _control(name, spec) for name, spec in controls.items()}
    display(widgets.VBox(list(made.values())), widgets.interactive_output(draw, made))


def _control(name: str, spec) -> widgets.Widget:
    look = {"description": name.replace("_", " "), "style": LABEL_WIDTH, "layout": WIDTH}
    if isinstance(spec, bool):
        return widgets.Checkbox(value=spec, **look)
    if isinstance(spec, list) and spec:
        return widgets.Dropdown(options=spec, value=spec[0], **look)
    if isinstance(spec, tuple) and 2 <= len(spec) <= 4 and spec[0] <= spec[1]:
        return _slider(spec, look)
    raise ValueError(
        f"the control {name}={spec!r} is unknown: give (low, high[, step[, start]]), "
        "a list that is not empty, or a bool"
    )


def _slider(spec: tuple, look: dict) -> widgets.Widget:
    """A slider that draws when it is let go: a figure takes longer than a pixel of movement."""
    low, high = spec[:2]
    whole = all(isinstance(value, int) for value in spec)
    step = spec[2] if len(spec) > 2 else (1 if whole else (high - low) / 100)
    start = spec[3] if len(spec) > 3 else low
    kind = widgets.IntSlider if whole else widgets.FloatSlider
    return kind(value=start, min=low, max=high, step=step, continuous_update=False, **look)
