"""Figures of 01_compute_vs_memory_bound. Each is a plain function; sliders call them too."""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter

from minimoe.course import style
from minimoe.perf import roofline
from minimoe.perf.chips import CHIPS
from minimoe.perf.hardware import Hardware, cache_steps

V41 = {"D": 5120, "F": 2304, "K": 6, "E": 384}  # V4.1-Flash's expert layer, reported


@dataclass(frozen=True)
class Point:
    """One measured piece of work: its intensity, FLOP per byte, and FLOP/s reached."""

    intensity: float
    rate: float
    name: str = ""


def memory_steps(machine: Hardware) -> None:
    """Read and copy bandwidth over the size of the buffer: a step down is where a cache ends."""
    _, axes = style.new_figure(7.5, 3.6)
    sizes = [step.bytes / 2**20 for step in machine.sweep]
    axes.plot(sizes, [step.read / 1e9 for step in machine.sweep], label="read")
    axes.plot(sizes, [step.copy / 1e9 for step in machine.sweep], label="copy, read + written")
    for size in cache_steps(machine.sweep):
        axes.axvline(size / 2**20, color=style.GREY, linewidth=1, linestyle=":", marker="")
    axes.set(xscale="log", xlabel="buffer, MiB", ylabel="GB/s", ylim=(0, None))
    _plain_ticks(axes.xaxis)
    axes.set_title("what fits in a cache is read faster")
    axes.legend()
    style.source_label(axes, "measured here")
    plt.show()


def roofline_plot(
    bandwidth: float,
    rate: float,
    series: dict[str, list[Point]],
    title: str,
    label: str = "measured here",
) -> None:
    """The two roofs, and points below them. bandwidth in bytes/s, rate in FLOP/s."""
    _, axes = style.new_figure(7.5, 4.4)
    reached = [point.intensity for points in series.values() for point in points]
    low, high = min([rate / bandwidth / 8, *reached]) / 2, max([8 * rate / bandwidth, *reached]) * 2
    line = np.geomspace(low, high, 200)
    roof = [roofline.roof(x, bandwidth, rate) for x in line]
    unit, name = (1e12, "TFLOP/s") if rate > 5e12 else (1e9, "GFLOP/s")
    axes.plot(line, np.array(roof) / unit, color=style.BLACK, marker="", label="roof")
    for points, (key, marker, colour) in zip(
        series.values(), zip(series, style.MARKERS, style.SERIES, strict=False), strict=True
    ):
        x, y = [p.intensity for p in points], [p.rate / unit for p in points]
        axes.plot(x, y, marker=marker, color=colour, linestyle="", label=key)
        _name_points(axes, points, unit, above=key != next(iter(series)))
    knee = rate / bandwidth
    axes.axvline(knee, color=style.GREY, linewidth=1, linestyle=":", marker="")
    at_foot = axes.get_xaxis_transform()  # x in data, y from 0 to 1
    axes.text(knee, 0.03, f"  knee {knee:.0f}", color=style.GREY, transform=at_foot)
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte of memory traffic", ylabel=name)
    _plain_ticks(axes.xaxis, axes.yaxis)
    axes.set_title(title)
    axes.legend(loc="upper left", fontsize=10)
    style.source_label(axes, label)
    plt.show()


def _name_points(axes, points: list[Point], unit: float, above: bool) -> None:
    """Names below and right of the points, or above and left, so that two series keep apart."""
    place = {"xytext": (-4, 6), "ha": "right"} if above else {"xytext": (4, -12)}
    place["path_effects"] = [withStroke(linewidth=3, foreground="white")]  # over a line, too
    for point in points:
        at = (point.intensity, point.rate / unit)
        axes.annotate(point.name, at, textcoords="offset points", fontsize=9, **place)


def _plain_ticks(*axis) -> None:
    """100 in place of a ten with a small 2."""
    for one in axis:
        one.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def layer_points(rows: list[dict]) -> list[Point]:
    """Rows of `bench moe` as points; every other one carries its number of tokens."""
    return [
        Point(
            row["flops"] / row["bytes"],
            row["flops"] / row["seconds"],
            f"{row['tokens']}" if i % 2 == 0 else "",
        )
        for i, row in enumerate(rows)
    ]


def distinct_experts(E: int = 64, K: int = 4, share: list[float] | None = None) -> None:
    """Expected distinct experts hit by T tokens: uniform, and as real tokens chose."""
    _, axes = style.new_figure(7.5, 3.6)
    tokens = np.unique(np.geomspace(1, 512, 40).astype(int))
    uniform = [roofline.distinct_uniform(E, K, T) for T in tokens]
    axes.plot(tokens, uniform, label="uniform routing", marker="")
    if share is not None:
        real = [roofline.distinct_expected(share, T) for T in tokens]
        axes.plot(tokens, real, label="this model's routing", marker="")
    axes.plot(tokens, np.minimum(K * tokens, E), label="K x T, if none were shared", marker="")
    axes.set(xscale="log", xlabel="tokens in the step, T", ylabel="distinct experts read")
    _plain_ticks(axes.xaxis)
    axes.set_title(f"{E} experts, {K} per token")
    axes.legend()
    style.source_label(axes, "derived")
    plt.show()


def layer_on_chip(chip: str, experts_per_GPU: int, tokens_per_GPU: int) -> dict[str, float]:
    """V4.1-Flash's expert layer on a chip, with experts spread evenly: derived, at datasheet peaks.

    Returns seconds spent on memory and on arithmetic, and the intensity.
    """
    ranks = V41["E"] / experts_per_GPU
    hit = experts_per_GPU * (1 - (1 - V41["K"] / V41["E"]) ** (tokens_per_GPU * ranks))
    rows = tokens_per_GPU * V41["K"]  # what comes in equals what goes out, on average
    work = roofline.expert_layer(rows, hit, V41["D"], V41["F"], 2)
    found = CHIPS[chip]
    return {
        "memory": work.bytes / found.bandwidth,
        "arithmetic": work.flops / found.matmul["bfloat16"],
        "intensity": work.intensity,
        "hit": hit,
    }


def chip_slider(chip: str = "H200", experts_per_GPU: int = 48, tokens_per_GPU: int = 64) -> None:
    """Time of one V4.1-Flash expert layer over tokens per GPU, with the chosen point marked."""
    _, axes = style.new_figure(7.5, 3.8)
    tokens = np.unique(np.geomspace(1, 8192, 60).astype(int))
    found = [layer_on_chip(chip, experts_per_GPU, int(T)) for T in tokens]
    memory = np.array([row["memory"] for row in found]) * 1e6
    arithmetic = np.array([row["arithmetic"] for row in found]) * 1e6
    axes.plot(tokens, memory, label="memory", marker="")
    axes.plot(tokens, arithmetic, label="arithmetic", marker="")
    now = layer_on_chip(chip, experts_per_GPU, tokens_per_GPU)
    at = max(now["memory"], now["arithmetic"]) * 1e6
    axes.plot([tokens_per_GPU], [at], marker="X", markersize=12, color=style.RED, linestyle="")
    axes.set(xscale="log", yscale="log", xlabel="tokens per GPU", ylabel="us per layer, bfloat16")
    _plain_ticks(axes.xaxis, axes.yaxis)
    axes.set_title(f"{chip}, {experts_per_GPU} experts a GPU")
    axes.legend()
    style.source_label(axes, "derived from datasheet peaks")
    plt.show()
    side = "memory" if now["memory"] > now["arithmetic"] else "arithmetic"
    print(
        f"{tokens_per_GPU} tokens a GPU read {now['hit']:.1f} experts: {now['intensity']:.0f} FLOP "
        f"per byte, the knee is {CHIPS[chip].knee():.0f}; bound by {side}"
    )


def per_gpu_throughput(narrow: list[dict], wide: list[dict]) -> None:
    """Tokens/s per GPU of one expert layer over seconds per step: EP8 and EP64 slices measured."""
    _, axes = style.new_figure(7.5, 4.0)
    for name, rows in (("EP8: 48 experts a GPU", narrow), ("EP64: 6 experts a GPU", wide)):
        step = [row["seconds"] * 1e6 for row in rows]
        rate = [row["tokens"] / row["seconds"] / 1e6 for row in rows]
        axes.plot(step, rate, label=name)
        for row, x, y in list(zip(rows, step, rate, strict=True))[::2]:
            axes.annotate(
                str(row["tokens"]), (x, y), (4, 5), textcoords="offset points", fontsize=9
            )
    axes.set(xscale="log", yscale="log", xlabel="us per layer (less is a faster answer)")
    axes.set_ylabel("M tokens/s per GPU")
    _plain_ticks(axes.xaxis, axes.yaxis)
    axes.set_title("the layer's two regimes; labels are tokens per GPU")
    axes.legend()
    style.source_label(axes, "measured on H200")
    plt.show()
