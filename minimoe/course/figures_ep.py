"""The post's chart and what it rests on, for 03. Plain functions; sliders call them too."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter

from minimoe.course import style
from minimoe.perf import calibration, step_cost
from minimoe.perf.chips import CHIPS
from minimoe.perf.exchange import rdma, scale_up
from minimoe.perf.step_cost import Decode, Served, ep8, ep64

WHOLE = "Blackwell's NVLink among all"
FABRICS = {WHOLE: scale_up, "Hopper's NVLink within 8, 400 Gb/s cards beyond": rdma}
MARKED = (1, 16, 60, 256)  # requests per GPU named in the chart; about 60 is the reported load
PARTS = ("dense", "cache", "experts", "exchange", "drafter", "head")
POST_RATIO = 0.94  # EP8 over EP64, tokens/s per GPU in batch work: the post, off DeepSeek's chart


def instances(chip: str = "B200", fabric: str = WHOLE, **changes) -> dict[str, Decode]:
    """The two groups of the chart, on a chip and a network."""
    common = {"chip": CHIPS[chip], "fabric": FABRICS[fabric](), **changes}
    return {"EP8": ep8(**common), "EP64": ep64(**common)}


def ep_chart(
    chip: str = "B200",
    fabric: str = WHOLE,
    log2_context: int = 17,
    drafts: int = 3,
    acceptance: float = 0.75,
) -> None:
    """Throughput per GPU over the speed that a user sees, for EP8 and EP64, and their numbers."""
    both = instances(chip, fabric, context=2**log2_context, drafts=drafts, acceptance=acceptance)
    if not any(instance.most_requests() for instance in both.values()):
        print(f"no request of {2**log2_context:,} tokens fits into the memory of a {chip}")
        return
    _, axes = style.new_figure(7.5, 4.4)
    for name, instance in both.items():
        points = step_cost.frontier(instance) or [(1, np.nan, np.nan)]
        requests, user, gpu = (np.array(column) for column in zip(*points, strict=True))
        line = axes.plot(user, gpu, label=name, marker="")[0]
        _mark(axes, instance, line.get_color(), name)
    axes.set(xlabel="tokens/s per user", ylabel="tokens/s per GPU", xlim=(0, None), ylim=(0, None))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_title(f"{chip}, {2**log2_context:,} tokens of context, {drafts} drafts")
    axes.legend(title="points: requests per GPU")
    style.source_label(axes, "derived, calibrated on measured H200 kernels")
    plt.show()
    print(chart_text(both))


def _mark(axes, instance: Decode, colour: str, name: str) -> None:
    """Points at the same numbers of requests on both lines."""
    marker = style.MARKERS[0] if name == "EP8" else style.MARKERS[1]
    for n in (n for n in MARKED if n <= instance.most_requests()):
        at = (instance.tokens_per_user(n), instance.tokens_per_gpu(n))
        axes.plot(*at, marker=marker, color=colour, linestyle="")
        place = {"xytext": (-6, -12), "ha": "right"} if name == "EP8" else {"xytext": (6, 4)}
        axes.annotate(str(n), at, textcoords="offset points", fontsize=10, color=colour, **place)


def chart_text(both: dict[str, Decode], requests=MARKED) -> str:
    """The chart's marked points, and the most that fit, as a table."""
    head = f"{'requests per GPU':>17}{'EP8 tok/s: user':>17}{'GPU':>8}{'EP64: user':>12}{'GPU':>8}"
    lines = [head + f"{'EP8/EP64':>10}"]
    fits = min(instance.most_requests() for instance in both.values())
    for n in sorted({n for n in requests if n <= fits} | ({fits} if fits else set())):
        (user8, gpu8), (user64, gpu64) = (
            (one.tokens_per_user(n), one.tokens_per_gpu(n)) for one in both.values()
        )
        lines.append(
            f"{n:>17,}{user8:>17,.0f}{gpu8:>8,.0f}{user64:>12,.0f}{gpu64:>8,.0f}"
            f"{gpu8 / gpu64:>10.2f}"
        )
    return "\n".join(lines)


def parts_table(requests=(16, 256), **where) -> str:
    """A step's parts, EP8 beside EP64, milliseconds."""
    lines = [f"{'ms':<14}" + "".join(f"{part:>10}" for part in PARTS) + f"{'step':>10}"]
    for n in requests:
        for name, instance in instances(**where).items():
            parts = instance.parts(n)
            cells = [parts.get(part, 0.0) * 1e3 for part in PARTS]
            row = "".join(f"{cell:>10.2f}" for cell in [*cells, sum(cells)])
            lines.append(f"{name + ', ' + str(n):<14}{row}")
    return "\n".join(lines)


def ratio_by_batch() -> None:
    """EP8 over EP64 by requests per GPU, on two chips and two networks, beside the post's 94 %."""
    _, axes = style.new_figure(7.5, 4.0)
    for chip in ("B200", "H200"):
        for fabric in FABRICS:
            both = instances(chip, fabric)
            most = min(instance.most_requests() for instance in both.values())
            requests = np.geomspace(1, most, 40)
            found = [step_cost.ratio(both["EP8"], both["EP64"], n) for n in requests]
            axes.plot(requests, found, marker="", label=f"{chip}: {fabric}")
    axes.axhline(POST_RATIO, color=style.GREY, linewidth=1, marker="", linestyle=":")
    axes.text(1, POST_RATIO + 0.03, "94 %, the post", color=style.GREY, fontsize=10)
    axes.set(xscale="log", xlabel="requests per GPU", ylabel="EP8 / EP64, tokens/s per GPU")
    axes.set_ylim(0, None)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.legend(fontsize=10)
    style.source_label(axes, "derived; 94 % reported")
    plt.show()


def sensitivity() -> str:
    """EP8 / EP64 in large batches, and what each assumption of the model does to it."""
    lines = [f"{'EP8 / EP64, tokens/s per GPU':<30}{'256 a GPU':>11}{'512':>7}{'all that fit':>14}"]
    for name, change in _changes().items():
        narrow, wide = replace(ep8(), **change), replace(ep64(), **change)
        if name == "no spare slots":
            narrow, wide = replace(narrow, slots=48), replace(wide, slots=6)
        cells = [step_cost.ratio(narrow, wide, n) for n in (256, 512)]
        full = step_cost.best(narrow) / step_cost.best(wide)
        lines.append(f"{name:<30}{cells[0]:>11.2f}{cells[1]:>7.2f}{full:>14.2f}")
    return "\n".join(lines)


def _changes() -> dict[str, dict]:
    """One assumption changed at a time, in both groups."""
    kernels = calibration.calibrate()
    quick = replace(
        kernels,
        experts=replace(kernels.experts, overhead=0.0),
        attention=replace(kernels.attention, overhead=0.0),
    )
    return {
        "as it is": {},
        "no spare slots": {},
        "perfectly balanced": {"imbalance": 1.0},
        "kernels start for free": {"kernels": quick},
        "no index to score": {"model": Served(index_heads=0)},
        "exchange for free": {"fabric": replace(scale_up(), latency=0.0, link=1e18)},
        "8,192 tokens of context": {"context": 8192},
        "no drafts": {"drafts": 0},
        "H200": {"chip": CHIPS["H200"]},
    }


def price_of_speed(**where) -> None:
    """What a token costs at a speed, over what it costs on EP8 in full batches."""
    both = instances(**where)
    batch = step_cost.best(both["EP8"])
    _, axes = style.new_figure(7.5, 3.6)
    for name, instance in both.items():
        speeds = np.linspace(instance.tokens_per_user(instance.most_requests()), 400, 80)
        prices = np.array([step_cost.price(instance, speed, batch) for speed in speeds])
        axes.plot(speeds, np.where(np.isfinite(prices), prices, np.nan), label=name, marker="")
    axes.set(xlabel="tokens/s per user", ylabel="price of a token, x batch", ylim=(0, 10))
    axes.legend()
    style.source_label(axes, "derived")
    plt.show()


def price_table(speeds=(25, 50, 100, 150, 200, 250), **where) -> str:
    """The same as text; a dash where the group cannot be that fast."""
    both = instances(**where)
    batch = step_cost.best(both["EP8"])
    lines = [f"{'tokens/s per user':<18}" + "".join(f"{speed:>7}" for speed in speeds)]
    for name, instance in both.items():
        prices = [step_cost.price(instance, speed, batch) for speed in speeds]
        cells = ["-" if price == float("inf") else f"{price:.2f}" for price in prices]
        lines.append(f"{name:<18}" + "".join(f"{cell:>7}" for cell in cells))
    return "\n".join(lines)


def model_check_table() -> str:
    """Largest errors of the fits: of rows shown to them and of rows held back."""
    lines = ["largest error of a predicted time, in any row"]
    for kind in calibration.FILES:
        worst = calibration.worst_errors(kind)
        held = ", ".join(f"{name} {error:.0%}" for name, error in worst.items() if name != "shown")
        lines.append(f"{kind:<10} rows that the fit saw {worst['shown']:.0%}; held back: {held}")
    return "\n".join(lines)


def held_back(kind: str) -> float:
    """The largest error of a predicted time of "experts" or "attention", in rows held back."""
    worst = calibration.worst_errors(kind)
    return max(error for name, error in worst.items() if name != "shown")


def expert_error(error: float, requests: int) -> str:
    """EP8 / EP64 if our expert kernels were so much slower than the fit says, in either group."""
    both, kernels = instances(), calibration.calibrate()
    slower = 1 + error
    experts = replace(
        kernels.experts,
        overhead=kernels.experts.overhead * slower,
        bandwidth=kernels.experts.bandwidth / slower,
        rate=kernels.experts.rate / slower,
    )
    wrong = {
        name: replace(one, kernels=replace(kernels, experts=experts)) for name, one in both.items()
    }
    ways = {"both groups": wrong, "EP8 only": both | {"EP8": wrong["EP8"]}}
    ways["EP64 only"] = both | {"EP64": wrong["EP64"]}
    found = [
        f"{step_cost.ratio(one['EP8'], one['EP64'], requests):.2f} if in {name}"
        for name, one in ways.items()
    ]
    return f"EP8 / EP64 with expert kernels {error:.0%} slower: " + ", ".join(found)
