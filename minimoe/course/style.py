"""One plotting style for all notebooks: readable on a projector, by colour-blind eyes, in print.

Series differ in colour, marker and line style at once. Colours are the palette of Okabe and Ito
(2008), less its yellow, which is pale on white.
"""

import matplotlib as mpl
import matplotlib.pyplot as plt
from cycler import cycler

BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
GREY = "#767676"  # the lightest grey that is readable on white
SERIES = (BLUE, ORANGE, GREEN, RED, PINK, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
HEAT = "cividis"  # reads the same with and without colour vision
DOMAINS = {"code": BLUE, "story": ORANGE, "chat": GREEN, "json": RED}
LABELS = ("measured here", "measured on H200", "derived", "reported")

SETTINGS = {
    "figure.dpi": 100,
    "figure.figsize": (7.5, 4.0),
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "axes.titlesize": 13,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=SERIES, marker=MARKERS, linestyle=LINES),
    "grid.color": "#DDDDDD",
    "lines.linewidth": 2.0,
    "lines.markersize": 6,
    "legend.frameon": False,
    "image.cmap": HEAT,
}


def use() -> None:
    """Make this the style of every figure that follows."""
    mpl.rcParams.update(SETTINGS)


def new_figure(width: float = 7.5, height: float = 4.0, **options):
    """`plt.subplots` in this style, in inches. Returns (figure, axes)."""
    with mpl.rc_context(SETTINGS):
        return plt.subplots(figsize=(width, height), **options)


def source_label(axes, label: str) -> None:
    """Say in the figure's lower right corner where its numbers are from: one of LABELS.

    Raises ValueError for another label.
    """
    if not label.startswith(LABELS):
        raise ValueError(f"label {label!r} is unknown: start it with one of {', '.join(LABELS)}")
    axes.figure.supxlabel(label, x=0.99, ha="right", fontsize=10, color=GREY, style="italic")
