"""Figures of 05_speculative_decoding. Each is a plain function; sliders call them too."""

import matplotlib.pyplot as plt
import numpy as np

from minimoe.course import speculation_lab as lab
from minimoe.course import style
from minimoe.perf.roofline import distinct_uniform

LARGE = {"E": 384, "K": 6}  # V4.1-Flash's routed experts, reported

# Chance by position that a draft stays if all before it did, DSpark with 5 layers on Qwen3-4B at
# temperature 1: read off figure 2 of arXiv 2607.05147, each within 0.003.
REPORTED = {
    "math": [0.906, 0.891, 0.889, 0.886, 0.888],
    "code": [0.887, 0.873, 0.861, 0.862, 0.859],
    "chat": [0.736, 0.739, 0.741, 0.745, 0.759],
}


def guess_table(checked) -> str:
    """A guess and what the model says, token by token."""
    lines = ["  your token      the model's"]
    for place, (mine, own) in enumerate(zip(checked.guess, checked.said, strict=False)):
        stands = "stands" if place < checked.stand else "-"
        lines.append(f"  {mine!r:<15} {own!r:<15} {stands}")
    bonus = "and one more, of its own:"
    if checked.stand < len(checked.guess):
        bonus = "in place of the first miss:"
    lines.append(f"  {bonus} {checked.said[checked.stand]!r}")
    return "\n".join(lines)


def by_domain_table(columns: dict[str, dict[str, float]]) -> str:
    """Rows by name, one column for each domain, and the mean."""
    domains = list(next(iter(columns.values())))
    lines = [f"{'':<24}" + "".join(f"{name:>8}" for name in domains) + f"{'mean':>8}"]
    for name, row in columns.items():
        values = [row[domain] for domain in domains]
        values.append(sum(values) / len(values))
        lines.append(f"{name:<24}" + "".join(f"{value:8.2f}" for value in values))
    return "\n".join(lines)


def expected_tokens(rate: float = 0.75, most: int = 12) -> None:
    """Expected tokens of a pass over the number of drafts: constant rate, and measured ones."""
    figure, axes = style.new_figure(7.5, 4.0)
    drafts = np.arange(most + 1)
    for value, color in ((rate, style.BLACK), (0.9, style.GREY), (0.5, style.GREY)):
        tokens = [expected_length([value] * n) for n in drafts]
        axes.plot(drafts, tokens, color=color, marker="", linestyle="-" if value == rate else ":")
        axes.annotate(
            f" {value:.2f} each", (drafts[-1], tokens[-1]), va="center", annotation_clip=False
        )
    for name, rates in lab.acceptance(lab.training_record()).items():
        tokens = [expected_length(rates[:n]) for n in range(len(rates) + 1)]
        axes.plot(range(len(tokens)), tokens, color=style.DOMAINS[name], label=name)
    axes.set(xlabel="drafts checked", ylabel="tokens a pass", ylim=(0.8, None))
    axes.set_title("later drafts add less, whatever the rate")
    axes.legend(title="our drafter, T = 1", loc="upper left")
    style.source_label(axes, "derived; domains measured on H200")
    plt.show()
    at_three, limit = expected_length([rate] * 3), 1 / (1 - rate) if rate < 1 else np.inf
    print(f"rate {rate:.2f}: 3 drafts give {at_three:.2f} tokens a pass, endless ones {limit:.2f}")


def expected_length(rates) -> float:
    """1 + the sum of the products of the first k rates."""
    return 1 + float(np.cumprod(rates).sum()) if len(rates) else 1.0


def acceptance_by_position() -> None:
    """Two panels: by domain at temperature 1, and on code with and without the Markov head."""
    record = lab.training_record()
    figure, (left, right) = style.new_figure(10.0, 4.0, ncols=2, sharey=True)
    places = np.arange(1, 6)
    for name, rates in lab.acceptance(record).items():
        left.plot(places, rates, color=style.DOMAINS[name], label=name)
    left.plot(places, REPORTED["chat"], color=style.GREY, linestyle=":", label="chats, Qwen3-4B")
    left.set(xlabel="position in the draft", ylabel="stays, if all before it did", ylim=(0.3, 1))
    left.set_title("temperature 1, by domain")
    left.legend(loc="lower left", fontsize=10)
    variants = {"3 layers": "main", "2 layers": "layers_2", "1 layer": "layers_1",
                "3 layers, no Markov head": "no_markov"}  # fmt: skip
    for label, name in variants.items():
        right.plot(places, lab.acceptance(record, name)["code"], label=label)
    right.set(xlabel="position in the draft")
    right.set_title("code, temperature 1")
    right.legend(loc="upper right", fontsize=10)
    for axes in (left, right):
        axes.set_xticks(places)
    style.source_label(left, "measured on H200; Qwen3-4B reported")
    plt.show()


def acceptance_text(temperature: int = 1) -> str:
    """Chance by position and tokens a pass, for each domain."""
    lines = ["position            1     2     3     4     5   tokens a pass"]
    for name, rates in lab.acceptance(lab.training_record(), temperature=temperature).items():
        values = " ".join(f"{rate:5.2f}" for rate in rates)
        lines.append(f"{name:<14} {values}   {expected_length(rates):.2f}")
    return "\n".join(lines)


def experts_hit(one: list[float], six: list[float], experts: int, per_token: int) -> None:
    """Left: distinct experts of a layer over tokens in the step. Right: how much more of the
    experts' weights a step with 5 drafts reads."""
    figure, (left, right) = style.new_figure(10.0, 4.0, ncols=2)
    loads = [2**i for i in range(len(one))]
    tokens = np.geomspace(1, 6 * loads[-1], 60)
    chance = [distinct_uniform(experts, per_token, t) for t in tokens]
    left.plot(tokens, chance, color=style.GREY, marker="", linestyle=":", label="at random")
    left.plot(loads, one, label="1 token a request")
    left.plot([6 * load for load in loads], six, label="6 tokens a request")
    left.axhline(experts, color=style.GREY, linewidth=1, linestyle="-", marker="")
    left.set(xscale="log", xlabel="tokens in the step", ylabel="experts hit, of a layer")
    _plain_ticks(left, [1, 4, 16, 64, 256])
    left.set_title(f"tiny-moe: {experts} experts, {per_token} a token")
    left.legend(loc="lower right", fontsize=10)
    right.plot(loads, [b / a for a, b in zip(one, six, strict=True)], label="tiny-moe, measured")
    many = np.array([2**i for i in range(10)])
    right.plot(many, [_more_experts(load) for load in many], label="V4.1-Flash, at random")
    right.axhline(1, color=style.GREY, linewidth=1, linestyle=":", marker="")
    right.text(1, 1.06, "a dense model", color=style.GREY, fontsize=10)
    right.set(xscale="log", xlabel="requests in the step", ylabel="experts read, times plain")
    _plain_ticks(right, [1, 4, 16, 64, 256])
    right.set_title("5 drafts checked: expensive at load 1")
    right.legend(loc="upper right", fontsize=10)
    style.source_label(left, "measured here; V4.1-Flash derived")
    plt.show()


def _plain_ticks(axes, ticks: list[int]) -> None:
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()


def _more_experts(load: int, drafts: int = 5) -> float:
    plain = distinct_uniform(LARGE["E"], LARGE["K"], load)
    return distinct_uniform(LARGE["E"], LARGE["K"], load * (1 + drafts)) / plain


def rates_table(rates: dict[str, list[float]], loads) -> str:
    """Tokens per second and times plain; the first row of `rates` is plain."""
    plain = next(iter(rates.values()))
    lines = [f"{'requests at once':<26}" + "".join(f"{load:>15}" for load in loads)]
    for name, row in rates.items():
        cells = [
            f"{value:7.0f} ({value / base:4.2f})" for value, base in zip(row, plain, strict=True)
        ]
        lines.append(f"{name:<26}" + "".join(f"{cell:>15}" for cell in cells))
    return "\n".join(lines) + "\ntokens per second, and in brackets times plain"


def speed_by_load(rates: dict[str, list[float]], loads) -> None:
    """Speed relative to plain decoding, over the load."""
    figure, axes = style.new_figure(7.5, 3.8)
    plain = next(iter(rates.values()))
    for name, row in list(rates.items())[1:]:
        axes.plot(loads, [value / base for value, base in zip(row, plain, strict=True)], label=name)
    axes.axhline(1, color=style.BLACK, linewidth=1, linestyle=":", marker="")
    axes.set(xscale="log", xlabel="requests at once", ylabel="speed, times plain", ylim=(0, None))
    _plain_ticks(axes, loads)
    axes.set_title("what five drafts a pass do to the speed")
    axes.legend(loc="lower right")
    style.source_label(axes, "measured here")
    plt.show()


def saved_table(rows: dict[int, dict]) -> str:
    """Rows of a saved `bench speculative` by load: plain, five guesses always checked, a pass."""
    lines = ["requests    plain, tok/s   5 checked, tok/s   times   tokens a pass"]
    for load, row in rows.items():
        plain, five = row["none_tok_s"], row["fixed_tok_s"]
        length = row["accepted_length_fixed"]
        lines.append(f"{load:8} {plain:15,.0f} {five:18,.0f} {five / plain:7.2f} {length:15.2f}")
    return "\n".join(lines)
