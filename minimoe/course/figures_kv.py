"""The figures of 02_kv_cache. Each is a plain function; sliders call them too."""

import matplotlib.pyplot as plt
import numpy as np

from minimoe.course import style
from minimoe.perf import kv_cost
from minimoe.perf.chips import CHIPS
from minimoe.perf.kv_cost import BYTES_PER_TOKEN, REPORTED, SparseReads

CHART_CONTEXT = 131_072  # of DeepSeek's EP8 and EP64 chart, reported
SPARSE, DRAFTS = "V4.1-Flash, as it reads", "the same, 3 drafts"
CACHES = [*BYTES_PER_TOKEN, SPARSE]


def bytes_read(cache: str, context: int) -> float:
    """Of one request's cache, in a decode step: all that is kept, or what V4.1-Flash chooses."""
    if cache in (SPARSE, DRAFTS):
        return SparseReads().per_step(context, 4 if cache == DRAFTS else 1)
    return BYTES_PER_TOKEN[cache] * context


def bytes_kept(cache: str, context: int) -> float:
    """Of one request."""
    return BYTES_PER_TOKEN[cache.removesuffix(", as it reads")] * context


def per_token_bars(more: dict[str, float] | None = None) -> None:
    """Bytes of cache per token by model, on a logarithmic axis; `more` are bars before these."""
    values = {**(more or {}), **BYTES_PER_TOKEN}
    _, axes = style.new_figure(7.5, 0.9 + 0.42 * len(values))
    colours = [style.ORANGE] * len(more or {}) + [style.BLUE] * len(BYTES_PER_TOKEN)
    bars = axes.barh(list(values), list(values.values()), color=colours)
    axes.bar_label(bars, [f" {value:,.0f}" for value in values.values()])
    axes.set(xscale="log", xlabel="bytes of cache per token", xlim=(100, 6e7))
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    style.source_label(axes, "derived; tiny (MLA) measured here" if more else "derived")
    plt.show()


def per_token_table() -> str:
    """The same as text, with what DeepSeek reports beside it and the size of a long context."""
    lines = [f"{'':<24} {'derived B':>10} {'reported':>9} {'1M tokens':>10}"]
    for name, value in BYTES_PER_TOKEN.items():
        said = f"{REPORTED[name]:,}" if name in REPORTED else ""
        lines.append(f"{name:<24} {value:10,.0f} {said:>9} {value / 1e3:7,.1f} GB")
    return "\n".join(lines)


def waste_by_length(blocks: dict[int, int], block_size: int = 16) -> None:
    """Share of the positions held that are empty, by length of the request."""
    _, axes = style.new_figure(7.5, 3.2)
    lengths = np.array(list(blocks))
    held = np.array(list(blocks.values())) * block_size
    axes.plot(lengths, 100 * (held - lengths) / held, marker=".")
    axes.set(xlabel="cached tokens of the request", ylabel="empty, %", ylim=(0, 100))
    axes.set_xticks(range(0, max(lengths) + 1, block_size))
    style.source_label(axes, "measured here")
    plt.show()


def step_by_context(contexts: list[int], measured: list[float], models: dict[str, list[float]]):
    """Decode step over context: seconds measured, and what models of it predict."""
    _, axes = style.new_figure(7.5, 3.6)
    axes.plot(contexts, np.array(measured) * 1e3, label="measured")
    for name, seconds in models.items():
        axes.plot(contexts, np.array(seconds) * 1e3, marker="", label=name)
    axes.set(xlabel="cached tokens of each request", ylabel="decode step, ms", ylim=(0, None))
    axes.legend()
    style.source_label(axes, "measured here; other lines derived")
    plt.show()


def attention_by_context(shapes: dict[str, list[dict]], bandwidth: float) -> None:
    """One layer's decode attention over context, from the saved rows, beside bytes / bandwidth."""
    _, axes = style.new_figure(7.5, 3.6)
    for name, rows in shapes.items():
        contexts = [row["context"] for row in rows]
        axes.plot(contexts, [row["seconds"] * 1e6 for row in rows], label=name)
    floor = [row["bytes"] / bandwidth * 1e6 for row in rows]
    axes.plot(contexts, floor, marker="", color=style.BLACK, label="bytes / bandwidth")
    axes.set(xscale="log", yscale="log", xlabel="context of each of 64 requests")
    axes.set_ylabel("us per layer")
    axes.set_xticks(contexts, [f"{context // 1024}K" for context in contexts])
    axes.set_yticks([200, 500, 1000, 2000, 4000], ["200", "500", "1,000", "2,000", "4,000"])
    axes.minorticks_off()
    axes.legend()
    style.source_label(axes, "measured on H200; the line is derived")
    plt.show()


def attention_table(shapes: dict[str, list[dict]]) -> str:
    """The rows of `attention_by_context` as text."""
    lines = [f"{'':<10} {'context':>8} {'us a layer':>11}  share of copy bandwidth"]
    for name, rows in shapes.items():
        for row in rows:
            time, share = row["seconds"] * 1e6, row["share_of_bandwidth"]
            lines.append(f"{name:<10} {row['context']:8,} {time:11,.0f}  {share:.0%}")
    return "\n".join(lines)


def cache_against_weights(context: int = CHART_CONTEXT) -> None:
    """Bytes that a step reads per GPU over requests per GPU: caches rise, weights are level."""
    _, axes = style.new_figure(7.5, 4.2)
    requests = np.geomspace(0.5, 512, 50)
    for name in ("V3 (MLA)", "V4-Flash", "V4.1-Flash", SPARSE):
        each = bytes_read(name, context)
        axes.plot(requests, requests * each / 1e9, marker="", label=name)
    for name, weights, at in (("EP8", kv_cost.V41_EP8, 10), ("EP64", kv_cost.V41_EP64, 1.6)):
        axes.axhline(weights / 1e9, color=style.GREY, linewidth=1.5, linestyle=":", marker="")
        axes.text(at, weights / 1e9, f"experts, {name}", color=style.GREY, va="bottom")
    axes.set(xscale="log", yscale="log", xlabel="requests per GPU", ylabel="GB read in a step")
    axes.set(title=f"context {context:,}", ylim=(0.01, None))
    axes.legend(fontsize=10, loc="lower right")
    style.source_label(axes, "derived")
    plt.show()


def crossing_table(context: int = CHART_CONTEXT) -> str:
    """Requests per GPU at which a step reads as much cache as V4.1-Flash's routed experts."""
    slices = (kv_cost.V41_EP8, kv_cost.V41_EP64)
    sizes = "".join(f"{weights / 1e9:8.2f} GB" for weights in slices)
    lines = [f"{'':<24} {'':>11}        EP8       EP64", f"{'experts':<36}{sizes}"]
    lines.append(f"{'cache':<24} {'GB/request':>11}   requests   requests")
    for name in ("V3 (MLA)", "V4-Flash", "V4.1-Flash", SPARSE, DRAFTS):
        each = bytes_read(name, context)
        cells = "".join(f"{weights / each:11.1f}" for weights in slices)
        lines.append(f"{name:<24} {each / 1e9:11.3f}{cells}")
    return "\n".join(lines)


def context_cost(
    cache: str = SPARSE, log2_context: int = 17, requests: int = 60, experts: str = "EP64"
) -> None:
    """A decode step on a B200 over context, for one kind of cache and every request alike."""
    weights = {"EP64": kv_cost.V41_EP64, "EP8": kv_cost.V41_EP8}[experts]
    chip, context = CHIPS["B200"], 2**log2_context
    _, axes = style.new_figure(7.5, 3.8)
    contexts = 2 ** np.arange(8, 21)
    for name in CACHES:
        times = [step_ms(weights, requests, name, int(c), chip.bandwidth) for c in contexts]
        picked = {"color": style.RED, "linewidth": 3} if name == cache else {"color": style.GREY}
        axes.plot(contexts, times, marker="", linestyle="-", **picked)
        axes.text(contexts[-1], times[-1], f" {name}", color=picked["color"], fontsize=9)
    now = step_ms(weights, requests, cache, context, chip.bandwidth)
    axes.plot([context], [now], marker="X", markersize=12, color=style.RED, linestyle="")
    axes.set(xscale="log", yscale="log", xlabel="context", ylabel="step, ms (weights + cache)")
    axes.set(title=f"{requests} requests a GPU, {experts}", xlim=(200, 3e7))
    style.source_label(axes, "derived from datasheet peaks")
    plt.show()
    print(context_text(cache, context, requests, weights))


def step_ms(weights: float, requests: int, cache: str, context: int, bandwidth: float) -> float:
    """Milliseconds of reading; arithmetic, links and overhead come on top."""
    each = bytes_read(cache, context)
    return 1e3 * kv_cost.step_seconds(weights, requests, each, bandwidth)


def context_text(cache: str, context: int, requests: int, weights: float) -> str:
    """The key numbers of `context_cost`."""
    chip = CHIPS["B200"]
    read, kept = requests * bytes_read(cache, context), requests * bytes_kept(cache, context)
    fits = "fits beside" if kept + weights < chip.memory else "does not fit beside"
    return (
        f"{context:,} tokens x {requests}: cache kept {kept / 1e9:,.1f} GB, which {fits} "
        f"{weights / 1e9:.1f} GB of experts in {chip.memory / 1e9:.0f} GB\n"
        f"read in a step: cache {read / 1e9:,.2f} GB, experts {weights / 1e9:.2f} GB; "
        f"{step_ms(weights, requests, cache, context, chip.bandwidth):,.2f} ms at 8 TB/s"
    )


def batching_plans(lengths: list[int], slots: int) -> None:
    """Two rows of bars: which request runs in which slot at which step."""
    plans = {
        "static": kv_cost.static_plan(lengths, slots),
        "continuous": kv_cost.continuous_plan(lengths, slots),
    }
    _, rows = style.new_figure(8.5, 4.4, nrows=2, sharex=True)
    for axes, (name, plan) in zip(rows, plans.items(), strict=True):
        dark = [False] * slots
        for slot, start, end in plan:
            dark[slot] = not dark[slot]
            colour, place = style.BLUE if dark[slot] else style.SKY, (slot + 0.1, 0.8)
            axes.broken_barh([(start, end - start)], place, facecolor=colour, edgecolor="white")
        steps = max(end for *_, end in plan)
        axes.axvline(steps, color=style.RED, linestyle="-", marker="")
        axes.set(title=f"{name}: {steps} steps", ylabel="place", ylim=(slots, 0), yticks=[])
        axes.set_xlim(0, None)
        axes.grid(False, axis="y")
    rows[1].set_xlabel("step")
    style.source_label(rows[1], "derived: the engine takes the same steps")
    plt.show()
