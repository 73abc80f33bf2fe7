"""Figures of 04_expert_load_balance. Each is a plain function; sliders call them too."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter

from minimoe.course import style
from minimoe.course.expert_traffic import MIXES, Drift, Traffic, chance_peak, count, peak_by_window
from minimoe.parallel import stragglers
from minimoe.parallel.placement import Placement, balance, in_order, rank_load, slots_for


def rank_bars(traffic: Traffic, tokens: int, ranks: int, layer: int = 0) -> None:
    """Tokens of each rank over the mean, one panel a mix: experts in order, and balanced."""
    figure, panels = style.new_figure(8.0, 4.6, nrows=2, ncols=2, sharex=True, sharey=True)
    for axes, (name, mix) in zip(panels.flat, MIXES.items(), strict=True):
        load = count(traffic.take(mix, tokens), traffic.experts)
        spread = balance(load, ranks, slots_for(traffic.experts, ranks, 1))
        plain = in_order(len(load), traffic.experts, ranks)
        for offset, placement, colour, label in (
            (-0.2, plain, style.ORANGE, "in order"),
            (0.2, spread, style.BLUE, "EPLB, 1 spare a rank"),
        ):
            busy = rank_load(placement, load)[layer]
            axes.bar(np.arange(ranks) + offset, busy / busy.mean(), 0.4, color=colour, label=label)
        axes.axhline(1, color=style.BLACK, linewidth=1, marker="", linestyle=":")
        axes.set_title(name)
        axes.grid(False, axis="x")
    panels[0, 0].legend(fontsize=10)
    for axes in panels[:, 0]:
        axes.set_ylabel("tokens / mean")
    for axes in panels[1]:
        axes.set_xlabel("rank")
    style.source_label(panels[0, 0], "measured here")
    plt.show()


def packed(placement: Placement, load: list[float], title: str) -> None:
    """One layer's ranks as stacked bars, a block per slot with its expert's number."""
    _, axes = style.new_figure(7.5, 3.4)
    load = np.asarray(load, dtype=float)
    slots = placement.slots[0].reshape(placement.ranks, -1)
    share = placement.share[0].reshape(placement.ranks, -1)
    copied = placement.copies()[0] > 1
    for rank in range(placement.ranks):
        base = 0.0
        for expert, part in sorted(zip(slots[rank], share[rank], strict=True)):
            height = load[expert] * part
            colour = style.ORANGE if copied[expert] else style.SKY
            axes.bar(rank, height, 0.7, base, color=colour, edgecolor="white")
            if height > 0.03 * load.sum() / placement.ranks:
                axes.text(rank, base + height / 2, str(expert), ha="center", va="center")
            base += height
    axes.axhline(load.sum() / placement.ranks, color=style.BLACK, linewidth=1, marker="", ls=":")
    axes.set(xlabel="rank", ylabel="tokens", xticks=range(placement.ranks))
    axes.grid(False, axis="x")
    axes.set_title(title)
    style.source_label(axes, "derived; numbers are experts, orange ones have copies")
    plt.show()


def peak_by_tokens(
    layout: Placement, ids: np.ndarray, K: int, windows=(16, 32, 64, 128, 256, 512, 1024, 2048)
) -> dict[str, list[float]]:
    """Busiest rank over the mean by tokens counted: in order, balanced, and chance alone."""
    plain = in_order(layout.layers, layout.experts, layout.ranks)
    found = {
        "experts in order": [peak_by_window(plain, ids, T) for T in windows],
        "EPLB, on later traffic": [peak_by_window(layout, ids, T) for T in windows],
        "chance alone": [chance_peak(layout.ranks, K, layout.experts, T, 60) for T in windows],
    }
    _, axes = style.new_figure(7.5, 3.8)
    for name, peaks in found.items():
        axes.plot(windows, peaks, label=name)
    axes.axhline(1.09, color=style.GREY, linewidth=1, marker="", linestyle=":")
    axes.text(windows[0], 1.1, "9 %, the post", color=style.GREY, fontsize=10)
    axes.set(xscale="log", xlabel="tokens counted together", ylabel="busiest rank / mean")
    axes.set_ylim(1, None)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.legend()
    style.source_label(axes, "measured here; 9 % reported")
    plt.show()
    return found


def drift_lines(traffic: Drift, ranks: int, slots: int, intervals=(128, 2048)) -> None:
    """Busiest rank over the mean as traffic swings, by how often the layout is made anew."""
    _, axes = style.new_figure(7.5, 3.6)
    for interval in intervals:
        peaks = traffic.peaks(ranks, slots, interval)
        steps = len(traffic.loads) - 32 * np.arange(len(peaks), 0, -1)
        axes.plot(steps, peaks, marker="", label=f"every {interval:,} steps")
    axes.set(xlabel="step", ylabel="busiest rank / mean", ylim=(1, None))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.legend(title="layout made anew")
    style.source_label(axes, "derived from measured routes, drawn at random")
    plt.show()


def slow_bars(runs) -> None:
    """Own work, exchange and waiting of two ranks in the three runs of `balance_lab.slow_rank`."""
    _, axes = style.new_figure(7.5, 3.6)
    names = ("alike", "rank 1 slowed", "by speed")
    labels = [f"{name}\nrank {rank}" for name in names for rank in (0, 1)]
    base = np.zeros(6)
    for part, colour, hatch in (
        ("own", style.BLUE, ""),
        ("exchange", style.ORANGE, "//"),
        ("waiting", "#CCCCCC", ".."),
    ):
        height = np.array([one[part] * 1e3 for run in runs.reports for one in run])
        axes.bar(
            labels, height, 0.6, base, color=colour, hatch=hatch, label=part, edgecolor="white"
        )
        base += height
    axes.set(ylabel="ms per step", ylim=(0, 1.25 * base.max()))
    axes.tick_params(axis="x", labelsize=9)
    axes.grid(False, axis="x")
    axes.legend(ncols=3, loc="upper left", fontsize=10)
    style.source_label(axes, "measured here")
    plt.show()


def slow_group(ranks: int = 64, slow_ranks: int = 1, times_slower: float = 2.0) -> None:
    """Step time of a group with slow ranks over one without: tokens balanced, and by speed."""
    experts = 384
    load = np.random.default_rng(0).poisson(1000, (4, experts)).astype(float)
    slots = slots_for(experts, ranks, 1)
    factors = np.linspace(1, max(times_slower, 1.01), 7)
    blind, aware = [], []
    for factor in factors:
        speed = np.ones(ranks)
        speed[: min(slow_ranks, ranks)] = 1 / factor
        found = stragglers.model(load, ranks, slots, speed)
        blind.append(found.blind / found.even)
        aware.append(found.aware / found.even)
    _, axes = style.new_figure(7.5, 3.6)
    axes.plot(factors, blind, label="balance by tokens")
    axes.plot(factors, aware, label="balance by measured speed")
    axes.set(
        xlabel="slow ranks take so many times as long", ylabel="step time / without slow ranks"
    )
    axes.set_ylim(0.9, None)
    axes.set_title(f"{ranks} ranks, {slow_ranks} of them slow")
    axes.legend()
    style.source_label(axes, "derived")
    plt.show()
    print(
        f"{times_slower:g} times slower: steps take {blind[-1]:.2f} times as long by tokens, "
        f"{aware[-1]:.2f} by speed, {ranks / speed.sum():.2f} by speed with slots to spare"
    )
