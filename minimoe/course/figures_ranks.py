"""Figures of 03_expert_parallelism that show ranks: where a step's time goes, what each holds."""

import matplotlib.pyplot as plt
import numpy as np

from minimoe.course import style
from minimoe.course.ep_lab import PARTS, Exchange, Run
from minimoe.perf.kv_cost import BYTES_PER_TOKEN
from minimoe.perf.step_cost import Served

HATCHES = ("", "//", "..")


def step_bars(runs: list[Run]) -> None:
    """A step's time by part, one bar for each number of ranks."""
    _, axes = style.new_figure(7.5, 3.6)
    names = ["1 process" if run.ranks == 1 else f"{run.ranks} ranks" for run in runs]
    base = np.zeros(len(runs))
    for part, colour, hatch in zip(PARTS, style.SERIES, HATCHES, strict=False):
        height = np.array([run.step[part] * 1e3 for run in runs])
        axes.bar(names, height, 0.6, base, label=part, color=colour, hatch=hatch, edgecolor="white")
        base += height
    axes.set_ylabel("one step, ms")
    axes.grid(False, axis="x")
    axes.set_title("the same 16 requests on more processes")
    axes.legend(loc="upper left")
    style.source_label(axes, "measured here")
    plt.show()


def pairs_heat(one: Exchange) -> None:
    """Who computes whose (token, expert) pairs; the diagonal never uses the wire."""
    _, axes = style.new_figure(4.6, 3.8)
    image = axes.imshow(np.array(one.pairs), vmin=0)
    for r, row in enumerate(one.pairs):
        for q, count in enumerate(row):
            colour = "white" if count < max(map(max, one.pairs)) * 0.6 else "black"
            axes.text(q, r, count, ha="center", va="center", color=colour)
    axes.set(xlabel="computed by rank", ylabel="token of rank")
    axes.set_xticks(range(one.ranks))
    axes.set_yticks(range(one.ranks))
    axes.grid(False)
    axes.figure.colorbar(image, label="pairs")
    style.source_label(axes, "measured here")
    plt.show()


def group_table(ranks=(8, 16, 32, 64, 128), bandwidth: float = 8e12) -> str:
    """V4.1-Flash's experts by size of the group: slots, weights, the least time of a step, and the
    tokens of KV cache that fit into the memory saved. *Derived*."""
    model = Served()
    lines = [
        f"{'GPUs':>4}{'experts a GPU':>15}{'weights':>11}{'read in':>10}{'room gained, tokens':>22}"
    ]
    most = model.layers * model.expert_bytes(model.E / ranks[0])
    for P in ranks:
        held = model.layers * model.expert_bytes(model.E / P)
        room = (most - held) / BYTES_PER_TOKEN["V4.1-Flash"]
        lines.append(
            f"{P:>4}{model.E / P:>15.0f}{held / 1e9:>8.2f} GB{held / bandwidth * 1e3:>7.2f} ms"
            f"{room / 1e6:>20.1f} M"
        )
    return "\n".join(lines)
