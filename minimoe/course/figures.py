"""The figures of the tour. Each is a plain function that draws one figure; sliders call it too."""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import FancyBboxPatch

from minimoe.course import style
from minimoe.course.routing import Routes
from minimoe.training.balance import total_variation


@dataclass(frozen=True)
class Box:
    """A part of DeepInfer: where its box stands, whether it was released, who rebuilds it here."""

    name: str
    x: float
    y: float
    width: float
    released: bool
    rebuilt: str  # notebooks, or "not yet"


HEIGHT = 0.8
AROUND = (
    Box("HTTP server, entrypoint", 0.0, 4.0, 2.4, False, "not yet"),
    Box("load balancers", 3.1, 4.0, 2.2, False, "not yet"),
    Box("split of vision, prefill, decode", 6.0, 4.0, 2.8, False, "not yet"),
    Box("KV cache store on SSD", 0.0, 1.3, 2.4, False, "07, 08"),
)
ENGINE = (
    Box("LLM class, scheduler", 3.25, 2.3, 2.5, True, "00, 01"),
    Box("kernels", 3.25, 1.3, 2.5, True, "01, 02"),
    Box("structured outputs", 3.25, 0.3, 2.5, True, "not yet"),
    Box("expert parallelism, balance", 6.15, 2.3, 2.5, True, "03, 04"),
    Box("DSpark speculation", 6.15, 1.3, 2.5, True, "05, 06"),
    Box("deterministic inference", 6.15, 0.3, 2.5, True, "not yet"),
)
PARTS = AROUND + ENGINE
ARROWS = (  # from, to, style: a request's way, and where KV is kept
    ((2.5, 4.4), (3.0, 4.4), "-|>"),
    ((5.4, 4.4), (5.9, 4.4), "-|>"),
    ((7.4, 3.93), (7.4, 3.42), "-|>"),
    ((3.0, 1.7), (2.5, 1.7), "<|-|>"),
)


def deepinfer_map() -> None:
    """DeepInfer's parts: released (filled) or kept back (dashed), and the notebook of each."""
    _, axes = style.new_figure(9.0, 5.2)
    axes.set(xlim=(-0.1, 8.95), ylim=(-0.1, 5.4))
    axes.axis("off")
    frame = FancyBboxPatch((3.1, 0.15), 5.7, 3.15, boxstyle="round,pad=0.05", fill=False)
    axes.add_patch(frame)
    frame.set(edgecolor=style.BLUE, linewidth=1.5)
    for box in PARTS:
        _draw_box(axes, box)
    for start, end, kind in ARROWS:
        axes.annotate("", end, start, arrowprops={"arrowstyle": kind, "lw": 1.5})
    axes.text(0.0, 5.1, "dashed: kept back", color=style.RED, weight="bold")
    axes.text(0.0, 3.0, "filled: released", color=style.BLUE, weight="bold")
    axes.text(0.0, 2.65, "the engine, in each service", color=style.BLUE, fontsize=11)
    axes.text(0.0, 0.3, "grey: the notebook\nthat rebuilds it", color=style.GREY, fontsize=11)
    style.source_label(axes, "reported: the DeepInfer post")
    plt.show()


def _draw_box(axes, box: Box) -> None:
    look = {"facecolor": "#DCEBF5", "edgecolor": style.BLUE, "linestyle": "-"}
    if not box.released:
        look = {"facecolor": "white", "edgecolor": style.RED, "linestyle": "--"}
    shape = {"boxstyle": "round,pad=0.05", "linewidth": 1.5}
    axes.add_patch(FancyBboxPatch((box.x, box.y), box.width, HEIGHT, **shape, **look))
    middle = {"x": box.x + box.width / 2, "ha": "center", "va": "center"}
    axes.text(y=box.y + 0.53, s=box.name, fontsize=11, **middle)
    axes.text(y=box.y + 0.18, s=box.rebuilt, color=style.GREY, fontsize=11, **middle)


def parts_text() -> str:
    """What the map shows, as a line of text."""
    kept = [box for box in PARTS if not box.released]
    rebuilt = [box for box in PARTS if box.rebuilt != "not yet"]
    return (
        f"of the {len(PARTS)} parts drawn, {len(PARTS) - len(kept)} were released and {len(kept)} "
        f"kept back; this series rebuilds {len(rebuilt)}"
    )


MARK_AREA = 300  # of a mark whose weight is 1, in square points


def token_path(routes: Routes, words: list[str], position: int) -> None:
    """The experts of one token, layer by layer; the size of a mark is the expert's weight."""
    _, axes = style.new_figure(7.5, 3.4)
    depth, chosen = routes.ids.shape[0], routes.ids.shape[2]
    layers = torch.arange(depth).repeat_interleave(chosen) + routes.first
    experts = routes.ids[:, position].flatten()
    sizes = routes.weights[:, position].flatten() * MARK_AREA
    axes.scatter(experts.tolist(), layers.tolist(), s=sizes.tolist(), color=style.BLUE, alpha=0.8)
    for weight in (0.2, 0.5, 0.8):  # empty series, for the legend of sizes
        axes.scatter([], [], s=weight * MARK_AREA, color=style.BLUE, alpha=0.8, label=f"{weight}")
    axes.legend(title="weight", loc="center left", bbox_to_anchor=(1.0, 0.5), borderpad=0)
    axes.set(xlabel="expert", ylabel="layer", title=f"experts of token {words[position]!r}")
    axes.set_xlim(-2, int(routes.ids.max()) + 2)  # the same for every token
    axes.set_yticks(range(routes.first, routes.first + depth))
    axes.set_ylim(routes.first + depth - 0.5, routes.first - 0.5)
    style.source_label(axes, "measured here")
    plt.show()
    rows = [" ".join(map(str, sorted(row))) for row in routes.ids[:, position].tolist()]
    print(f"token {position}, {words[position]!r}, its experts layer by layer:\n{' | '.join(rows)}")


def use_by_domain(use: dict[str, torch.Tensor], mix: dict[str, float], layer: int) -> None:
    """Load of each expert of one layer relative to an even share: a row a domain, and their mix.

    use: domain to counts `[L, E]`. mix: each domain's share of the training text. layer: which of
    the L, from 1.
    """
    rows = {name: relative_load(counts[layer - 1]) for name, counts in use.items()}
    rows["training mix"] = sum(mix[name] * load for name, load in rows.items())
    figure, axes = style.new_figure(8.0, 2.9)
    table = torch.stack(list(rows.values())).numpy()
    image = axes.imshow(table, aspect="auto", vmin=0, vmax=4, interpolation="nearest")
    axes.set_yticks(range(len(rows)), list(rows))
    axes.axhline(len(use) - 0.5, color="white", linewidth=3)
    axes.set(xlabel="expert", title=f"expert use by domain, layer {layer}")
    axes.grid(False)
    figure.colorbar(image, ax=axes, label="x an even share", extend="max")
    style.source_label(axes, "measured here")
    plt.show()
    print(_evenness(rows, layer))


def _evenness(rows: dict[str, torch.Tensor], layer: int) -> str:
    """A table: how busy each row's busiest expert is, and how far the row is from an even share."""
    even = torch.ones_like(next(iter(rows.values())))
    lines = [f"layer {layer:<17}" + "".join(f"{name:>{_width(name)}}" for name in rows)]
    busiest = (f"{float(row.max()):>{_width(name)}.1f}" for name, row in rows.items())
    lines.append(f"{'busiest, x even share':<23}" + "".join(busiest))
    away = (f"{total_variation(row, even):>{_width(name)}.2f}" for name, row in rows.items())
    lines.append(f"{'distance from even':<23}" + "".join(away))
    return "\n".join(lines)


def _width(name: str) -> int:
    return max(7, len(name) + 2)


def relative_load(counts: torch.Tensor) -> torch.Tensor:
    """Counts `[E]` as multiples of an even share: 1 everywhere is perfect balance."""
    return counts.double() / counts.double().mean()


def differences(use: dict[str, torch.Tensor]) -> str:
    """Total variation between the experts of each two domains, mean over layers, as a table."""
    names = list(use)
    rows = [" " * 7 + "".join(f"{name:>7}" for name in names)]
    for one in names:
        values = [apart(use[one], use[other]) for other in names]
        rows.append(f"{one:<7}" + "".join(f"{value:>7.2f}" for value in values))
    return "\n".join(rows)


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Total variation between two usages `[L, E]`, mean over layers."""
    layers = [total_variation(a, b) for a, b in zip(one, other, strict=True)]
    return sum(layers) / len(layers)
