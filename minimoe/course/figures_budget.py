"""The figures of 06_acceptance_budget. Each is a plain function that draws one; sliders call it."""

import matplotlib.pyplot as plt
import numpy as np

from minimoe.bench.serving_clock import GroupClock
from minimoe.bench.serving_model import POST, VLLM
from minimoe.course import style
from minimoe.course.budget_lab import (
    Batch,
    batch,
    domain_survival,
    recorded,
    ways_to_calibrate,
)
from minimoe.perf.step_cost import ep8, ep64
from minimoe.speculative.admission import (
    by_survival,
    expected_accepted,
    first_too_dear,
    prefixes,
)
from minimoe.speculative.calibration_fit import reliability
from minimoe.speculative.outlook import outlook
from minimoe.speculative.step_times import StepTimes

WAYS = {"none": style.GREY, "fixed 5": style.ORANGE, "threshold": style.GREEN}
WAYS |= {"scheduled": style.BLUE}


def reliability_curves(place: int = 5) -> None:
    """Survival as said against the share that did survive, before and after calibration."""
    _, panels = style.new_figure(8.5, 3.5, ncols=2, sharey=True)
    for axes, temperature in zip(panels, (0, 1), strict=True):
        passes, _ = recorded(temperature)
        axes.plot([0, 1], [0, 1], "-", color=style.GREY, lw=1, marker="")
        for name, weights in ways_to_calibrate(temperature).items():
            said = passes.survivals(weights)[:, place - 1]
            rows = reliability(said, passes.accepted >= place)
            axes.plot(rows[:, 0], rows[:, 1], label=name)
        axes.set(title=f"T = {temperature}, place {place}", xlabel="survival, as said")
        axes.set(xlim=(0, 1), ylim=(0, 1))
    panels[0].set_ylabel("share that did survive")
    panels[0].legend(loc="upper left")
    style.source_label(panels[1], "measured on H200: recorded passes")
    plt.show()


def survival_curves(temperature: int = 1) -> None:
    """By domain: how many drafts survive to each place, as said (lines) and in truth (marks)."""
    _, axes = style.new_figure(7.0, 3.2)
    places = np.arange(1, 6)
    for name, (said, true) in domain_survival(temperature).items():
        colour = style.DOMAINS[name]
        axes.plot(places, said, "-", color=colour, marker="", label=name)
        axes.plot(places, true, "o", color=colour, markersize=8, linestyle="")
    axes.set(xlabel="place in the draft", ylabel="survival", ylim=(0, 1.02), xticks=places)
    axes.set_title(f"T = {temperature}: line as said, dot in truth")
    axes.legend(loc="lower left")
    style.source_label(axes, "measured on H200: recorded passes")
    plt.show()


def budget_picture(checks: int = 20, requests: int = 8, seed: int = 2, ordered: bool = False):
    """The slots of a batch, shaded by survival; the admitted ones are framed."""
    found = batch(requests, 1, seed)
    counts = admitted(found, checks)
    _, axes = style.new_figure(7.0, 0.9 + 0.42 * requests)
    rows = np.argsort([-c for c in counts], kind="stable") if ordered else range(requests)
    a = found.survival[list(rows)]
    axes.imshow(a, aspect="auto", vmin=0, vmax=1, cmap="Blues")
    for y, row in enumerate(rows):
        for x in range(a.shape[1]):
            colour = "white" if a[y, x] > 0.6 else "black"
            axes.text(x, y, f"{a[y, x]:.2f}", ha="center", va="center", color=colour, fontsize=10)
        if counts[row]:
            box = plt.Rectangle((-0.5, y - 0.42), counts[row], 0.84, fill=False, lw=3)
            box.set_edgecolor(style.RED)
            axes.add_patch(box)
    axes.set_yticks(range(requests), [found.domains[row] for row in rows])
    axes.set_xticks(range(a.shape[1]), range(1, a.shape[1] + 1))
    axes.set(xlabel="place in the draft", title=f"{sum(counts)} checks for {requests} requests")
    axes.grid(False)
    style.source_label(axes, "measured on H200: recorded passes")
    plt.show()
    print(budget_text(found, counts))


def admitted(found: Batch, checks: int) -> list[int]:
    """Checks of each request when the likeliest slots get them."""
    a = found.survival
    return prefixes(*by_survival(a), checks, a.shape)


def budget_text(found: Batch, counts: list[int]) -> str:
    """What the framed checks are expected to bring, and what equal parts would."""
    a = found.survival
    best = float(expected_accepted(a)[sum(counts)])
    even = [sum(counts) // len(a) + (r < sum(counts) % len(a)) for r in range(len(a))]
    equal = float(sum(row[:n].sum() for row, n in zip(a, even, strict=True)))
    return (
        f"checks by request: {counts}\n"
        f"expected tokens: {len(a) + best:.1f}; the same checks in equal parts: "
        f"{len(a) + equal:.1f}; all {a.size} checked: {len(a) + a.sum():.1f}"
    )


def price_picture(times: StepTimes, load: int = 16, label: str = "measured here") -> None:
    """Slots of a batch by survival, and the price of one more check: where they cross, it stops."""
    found = batch(load, 1, 3)
    a = found.survival
    look = outlook(times, expected_accepted(a), load)
    slots = np.sort(a, axis=None)[::-1]
    _, (left, right) = style.new_figure(8.5, 3.4, ncols=2)
    m = np.arange(a.size + 1)
    left.plot(load + m, 1e3 * times.drafted_seconds(load, a.size), marker="")
    left.plot([load], [1e3 * times.plain_seconds(load)], "s", color=style.ORANGE)
    left.annotate("no drafts", (load, 1e3 * times.plain_seconds(load)), (8, -4),
                  textcoords="offset points")  # fmt: skip
    left.plot([load + a.size], [1e3 * times.all_seconds(load)], "^", color=style.GREEN)
    left.annotate("all checked", (load + a.size, 1e3 * times.all_seconds(load)), (0, -30),
                  textcoords="offset points", ha="right")  # fmt: skip
    left.set(xlabel="tokens in the pass", ylabel="step, ms", ylim=(0, None))
    left.set_title(f"{load} requests")
    count = first_too_dear(slots, look.prices)
    right.step(m[1:], slots, "-", where="mid", marker="", label="survival")
    right.step(m[1:], look.prices, "-", where="mid", marker="", color=style.RED, label="price")
    right.axvline(count, color=style.GREY, linestyle=":", marker="")
    right.set(xlabel="slots, the likeliest first", ylim=(0, 1.05), title="what a check may cost")
    right.legend(loc="lower left")
    style.source_label(right, label)
    plt.show()
    print(price_text(look.gain, count, load, a.size))


def price_text(gain: float, count: int, load: int, drafts: int) -> str:
    """The key numbers of `price_picture`."""
    worth = "drafting pays" if gain > 1 else "drafting does not pay"
    return (
        f"{load} requests: {count} of {drafts} guesses are worth a check "
        f"({count / load:.1f} a request)\n"
        f"the best drafted step makes {gain:.2f} times the tokens/s of a plain one: {worth}"
    )


def load_and_length(load: int = 60, draft_length: int = 5, gpus: int = 64, share_of_code=62):
    """V4.1-Flash on B200, derived: tokens/s per GPU by checks a request, and what the budget
    picks."""
    clock = GroupClock(ep64 if gpus == 64 else ep8, draft_length)
    accepted = expected_by_checks(draft_length, share_of_code / 100)
    checks = np.linspace(0, draft_length, 41)
    even, best = (np.interp(checks, *line) for line in accepted)
    seconds = np.array([clock.seconds(load, [c * load]) for c in checks])
    _, axes = style.new_figure(7.5, 4.0)
    axes.plot(checks, load * (1 + even) / seconds, marker="", label="every request alike")
    axes.plot(checks, load * (1 + best) / seconds, "-", marker="", label="the likeliest slots")
    plain = load / clock.plain_seconds(load)
    axes.axhline(plain, color=style.GREY, linestyle="--", marker="")
    axes.text(draft_length, plain, "no drafts ", ha="right", va="bottom", color=style.GREY)
    at = int(np.argmax((1 + best) / seconds))
    rate = load * (1 + best) / seconds
    axes.plot([checks[at]], [rate[at]], "X", color=style.RED, markersize=12)
    axes.set(xlabel="checks a request", ylabel="tokens/s of a GPU", ylim=(0, None))
    axes.set_title(f"{load} requests a GPU, {draft_length} drafts, {gpus} GPUs")
    axes.legend(loc="lower right")
    style.source_label(axes, "derived: step cost of V4.1-Flash on B200")
    plt.show()
    gain = 100 * (rate[at] / (load * (1 + even[-1]) / seconds[-1]) - 1)
    print(
        f"best: {checks[at]:.1f} checks a request, {gain:+.1f} % over checking all {draft_length}"
    )


def expected_by_checks(length: int, code: float):
    """(checks, expected accepted) a request, for equal parts and for the likeliest slots, when a
    share `code` of the requests writes code and the others the three other domains."""
    passes, weights = recorded(1)
    a = passes.survivals(weights)[:, :length]
    is_code = passes.domain == passes.domains.index("code")
    weight = np.where(is_code, code / is_code.sum(), (1 - code) / (~is_code).sum())  # [n]
    even = np.concatenate([[0.0], np.cumsum(weight @ a)])
    order = np.argsort(-a, axis=None, kind="stable")
    parts = np.repeat(weight, length)[order]
    slots = np.concatenate([[0.0], np.cumsum(parts)])
    best = np.concatenate([[0.0], np.cumsum(parts * a.ravel()[order])])
    return (np.arange(length + 1), even), (slots, best)


def throughput(speeds: dict[int, dict[str, float]], label: str = "measured here") -> None:
    """Tokens per second by load, over those without drafts."""
    _, axes = style.new_figure(7.0, 3.2)
    loads = list(speeds)
    for way, colour in WAYS.items():
        ratio = [speeds[load][way] / speeds[load]["none"] for load in loads]
        axes.plot(range(len(loads)), ratio, color=colour, label=way)
    axes.set_xticks(range(len(loads)), loads)
    axes.set(xlabel="requests at once", ylabel="tokens/s, without drafts = 1", ylim=(0, None))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    style.source_label(axes, label)
    plt.show()


def gains(curves: dict[str, list[dict]]) -> None:
    """The budget over checking all 5, percent, by requests: ours by clock, and what was reported.

    `curves`: rows of `serving_model.compare`, by a label that starts with where they are from.
    """
    _, axes = style.new_figure(8.0, 4.2)
    axes.axhline(0, color=style.GREY, linestyle="-", lw=1, marker="")
    for label, rows in curves.items():
        axes.plot([r["load"] for r in rows], [r["gain_over_fixed"] for r in rows], label=label)
    for load, (low, high) in POST.items():
        axes.plot([load, load], [low, high + 0.01], "-", color=style.BLACK, lw=5, marker="")
        axes.plot([load], [(low + high) / 2], "*", color=style.BLACK, markersize=13)
    axes.plot([], [], "*", color=style.BLACK, markersize=13, label="the post, reported")
    shown = {load: gain for load, gain in VLLM.items() if gain < 25}
    axes.plot(list(shown), list(shown.values()), "P", color=style.GREY, linestyle=":",
              label="vLLM on ROCm, 7 drafts, reported")  # fmt: skip
    axes.set(xscale="log", xlabel="requests (a GPU)", ylabel="gain of the budget, %")
    axes.set_xticks([4, 8, 16, 32, 64, 128], [4, 8, 16, 32, 64, 128])
    axes.minorticks_off()
    axes.legend(loc="upper left", fontsize=10)
    style.source_label(axes, "derived, measured and reported")
    plt.show()


def gains_text(rows: list[dict]) -> str:
    """Ours beside the post's, at its three loads."""
    lines = [f"{'requests':>8}{'the post':>14}{'ours':>7}{'checks':>8}{'tokens a pass':>15}"]
    for row in rows:
        if row["load"] in POST:
            low, high = POST[row["load"]]
            said = f"{low:+g} %" if low == high else f"{low:+g} to {high:+g} %"
            gain = round(row["gain_over_fixed"], 1) + 0.0  # no -0.0
            lines.append(
                f"{row['load']:>8}{said:>14}{gain:+7.1f}"
                f"{row['checked_per_request']:8.1f}{row['accepted_length']:15.2f}"
            )
    return "\n".join(lines)
