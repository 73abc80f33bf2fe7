"""The figures of 08_kv_store. Each is a plain function that draws one; sliders call it too."""

import matplotlib.pyplot as plt
import numpy as np

from minimoe.course import figures_ep, style
from minimoe.course.kv_traffic import loss_by_tail, lost, share_away
from minimoe.kvstore.erasure import StripeCode, unreadable_share
from minimoe.kvstore.traffic import CHAT
from minimoe.perf import economics as eco
from minimoe.perf import step_cost

COPIES = {"one copy": (1, 0), "two copies": (1, 1), "three copies": (1, 2), "10+2": (10, 2)}


def schemes_table(node_loss: float = 0.01) -> str:
    """Space and the chance that a segment cannot be read, when each node is down by chance."""
    lines = [f"{'':<13} {'space':>6} {'survives':>9} {'unreadable':>11}"]
    for name, (data, parity) in COPIES.items():
        code = StripeCode(data, parity)
        chance = unreadable_share(code.shards, parity, node_loss)
        lines.append(f"{name:<13} {code.space:>5.1f}x {parity:>9} {chance:>11.1e}")
    return "\n".join(lines)


def hits_lost_by_minute(series: dict[str, tuple[list, list]]) -> None:
    """What a lost node costs, in points of hit ratio, over the minutes after it."""
    _, axes = style.new_figure(7.5, 3.4)
    for name, (minutes, points) in series.items():
        axes.plot(minutes, points, label=name)
    axes.set(
        xlabel="minutes since the node was lost, in windows of 2.5", ylabel="hits lost, % of blocks"
    )
    axes.set(ylim=(-0.5, None))
    axes.legend()
    style.source_label(axes, "derived: replay of synthetic traffic")
    plt.show()


def retention_curves(
    gaps: dict[str, list[float]], days=(0.25, 0.5, 1, 2, 3, 4, 5, 6, 7, 10)
) -> None:
    """Hits lost by retention, a line a class of traffic."""
    _, axes = style.new_figure(7.5, 3.8)
    for kind, values in gaps.items():
        axes.plot(days, [100 * lost(values, day) for day in days], label=kind)
    for day in (3, 7):
        axes.axvline(day, color=style.GREY, lw=1, marker="", ls=":")
        axes.text(day + 0.1, 0.6, f"{day} days", transform=axes.get_xaxis_transform(), fontsize=10)
    axes.set(xlabel="retention, days", ylabel="hits lost, % of those\nthat endless retention has")
    axes.set_ylim(0, None)
    axes.legend()
    style.source_label(axes, "derived: replay of synthetic traffic")
    plt.show()


def tail_figure(tails=(0.2, 0.3, 0.4, 0.6, 0.9, 1.3), return_share: float = 0.35) -> list[float]:
    """Hits lost by cutting 7 days to 3, by how heavy the tail of absences is."""
    losses = [100 * loss for loss in loss_by_tail(tails, return_share)]
    _, axes = style.new_figure(7.5, 3.6)
    axes.axhspan(0.5, 1.0, color=style.SKY, alpha=0.4, label="the post's 0.5 to 1 % (reported)")
    axes.plot(tails, losses, label="synthetic chats")
    axes.set(xlabel="Pareto exponent of absences (left: heavier tail)", ylabel="hits lost, %")
    axes.axvline(CHAT.return_tail, color=style.GREY, lw=1, marker="", ls=":")
    axes.text(CHAT.return_tail + 0.01, 0.05, "ours", color=style.GREY, fontsize=10)
    axes.set_ylim(0, 1.4 * max(1.0, *losses))  # room for the legend
    axes.legend(loc="upper right")
    style.source_label(axes, "derived: replay of synthetic traffic")
    plt.show()
    print("exponent   away for more than 3 days   hits lost")
    for tail, loss in zip(tails, losses, strict=True):
        print(f"{tail:>8g} {share_away(3, tail):>20.0%} of absences {loss:>10.2f} %")
    return losses


def storage_cost(
    logical_tb: float = 14.4, dollars_per_tb: float = 500, years: float = 5, around: float = 2.0,
    gpu_per_hour: float = 3.0,
) -> eco.Storage:  # fmt: skip
    """Where the dollars of an hour go: GPU, disks, and what surrounds the disks."""
    ssd = eco.Storage(logical_tb, 10, 2, dollars_per_tb, years, around)
    parts = {
        "GPU": gpu_per_hour,
        "what is around the disks": ssd.dollars_per_hour - ssd.disk_dollars_per_hour,
        "disks": ssd.disk_dollars_per_hour,
    }
    _, axes = style.new_figure(7.5, 2.4)
    bars = axes.barh(list(parts), list(parts.values()), color=style.SERIES[:3])
    axes.bar_label(bars, fmt=" $%.2f")
    axes.set(xlabel="dollars per GPU-hour", xlim=(0, max(parts.values()) * 1.15))
    style.source_label(axes, "derived: from the assumptions above")
    plt.show()
    print(storage_text(ssd, gpu_per_hour))
    return ssd


def storage_text(ssd: eco.Storage, gpu_per_hour: float) -> str:
    """The numbers of one choice of assumptions."""
    gain = eco.throughput_gain_to_pay(ssd.dollars_per_hour, gpu_per_hour)
    return (
        f"{ssd.physical_tb:.1f} TB of disk, ${ssd.disk_dollars:,.0f} once, "
        f"${ssd.disk_dollars_per_hour:.2f} an hour, ${ssd.dollars_per_hour:.2f} with the rest\n"
        f"it pays if reuse makes a ${gpu_per_hour:.2f} GPU do {gain:.0%} more"
    )


def consistent_figure(
    gpus: float = 7_000, income_per_gpu_hour: float = 38, tokens: float = 155
) -> None:
    """Pairs of hit rate and output share at which the two headline numbers agree.

    `tokens` in trillions a day.
    """
    income = eco.income_per_million(tokens * 1e12, income_per_gpu_hour, gpus)
    rates = np.linspace(0, 0.99, 100)
    shares = np.array([eco.output_share_for(income, rate) for rate in rates])
    _, axes = style.new_figure(7.5, 3.6)
    axes.plot(rates, 100 * shares, marker="", label=f"{gpus:,.0f} GPUs", color=style.BLUE)
    for count, line in ((6_000, "--"), (8_000, ":")):
        other = eco.income_per_million(tokens * 1e12, income_per_gpu_hour, count)
        curve = [100 * eco.output_share_for(other, rate) for rate in rates]
        axes.plot(rates, curve, ls=line, marker="", label=f"{count:,} GPUs", color=style.GREY)
    axes.set(xlabel="share of input found in the cache", ylabel="output, % of all tokens")
    axes.set(ylim=(0, max(10, 110 * shares.max())), xlim=(0, 1))
    axes.legend(loc="upper left")
    style.source_label(axes, "derived: from reported prices and totals")
    plt.show()
    print(consistent_text(income, gpus, tokens))


def consistent_text(income: float, gpus: float, tokens: float) -> str:
    """What the curve says at a few hit rates."""
    shares = {rate: eco.output_share_for(income, rate) for rate in (0.7, 0.8, 0.9, 0.95)}
    pairs = ", ".join(
        f"{rate:.0%}: {share:.1%}" if share >= 0 else f"{rate:.0%}: none"
        for rate, share in shares.items()
    )
    speed = eco.tokens_per_second_per_gpu(tokens * 1e12, gpus)
    return (
        f"${income:.4f} per million tokens, {speed:,.0f} tokens/s a GPU\n"
        f"output share by hit rate: {pairs}"
    )


def batch_or_interactive() -> None:
    """What a token costs by the speed each user sees, in the model that 03 explains."""
    figures_ep.price_of_speed()
    print(figures_ep.price_table())
    print(batch_text())


def batch_text(requests=(16, 60, 256, 992)) -> str:
    """EP8's throughput per GPU over EP64's, at the points of 03's chart."""
    both = figures_ep.instances()
    ratios = [f"{step_cost.ratio(both['EP8'], both['EP64'], n):.0%} at {n}" for n in requests]
    return "EP8 over EP64, tokens per GPU, by requests per GPU: " + ", ".join(ratios)
