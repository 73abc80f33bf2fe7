"""The picture in the README: the model writes, and every dot is an expert that a token used.

    python -m minimoe.course.picture --out docs/tokens_and_experts.png

It is a record of a real run at temperature 0, so whoever runs it gets the same picture.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import torch

from minimoe import LLM, SamplingParams
from minimoe.course import style
from minimoe.course.routing import Routes, follow

PROMPT = """class Wrapper:
    def __init__(self, stream):
        self.stream = stream

    def read(self, size=-1):"""
NEW_TOKENS = 16
BLOCK = 16  # positions of a cache block


def record(prompt: str = PROMPT, new_tokens: int = NEW_TOKENS) -> tuple[list[str], int, Routes]:
    """Complete `prompt` and follow every token: (words, length of the prompt, routes)."""
    llm = LLM("tiny-moe", device="cpu")
    params = SamplingParams(max_tokens=new_tokens, temperature=0.0)
    out = llm.generate([prompt], params)[0]
    ids = [*out.prompt_token_ids, *out.outputs[0].token_ids]
    words = [llm.tokenizer.decode([token], skip_special=False) for token in ids]
    return words, len(out.prompt_token_ids), follow(llm.model.textbook, ids)


def draw(words: list[str], given: int, routes: Routes):
    """A column for each token and a band for each layer, an expert a line; gives the figure."""
    figure, axes = style.new_figure(11.0, 5.4)
    layers, tokens, chosen = routes.ids.shape
    experts = 8 * -(-(int(routes.ids.max()) + 1) // 8)
    columns = torch.arange(tokens).repeat_interleave(chosen)
    for layer in range(layers):
        rows = routes.ids[layer].flatten() + layer * (experts + 8)
        sizes = routes.weights[layer].flatten() * 45
        colour, marker = style.SERIES[layer], style.MARKERS[layer]
        axes.scatter(columns, rows, s=sizes, color=colour, marker=marker, linewidths=0)
    _label(axes, words, given, [layer * (experts + 8) + experts / 2 for layer in range(layers)])
    axes.set_ylim(layers * (experts + 8) - 4, -6)
    style.source_label(axes, "measured here: tiny-moe at temperature 0, one run")
    return figure


def _label(axes, words: list[str], given: int, middles: list[float]) -> None:
    shown = [word.replace("\n", "\\n").replace(" ", "\u00b7") for word in words]
    axes.set_xticks(range(len(words)), shown, rotation=90, fontsize=9, family="DejaVu Sans Mono")
    for label in axes.get_xticklabels()[given:]:
        label.set(color=style.BLUE, weight="bold")
    axes.set_yticks(middles, [f"layer {number}" for number in range(1, len(middles) + 1)])
    axes.grid(False)
    axes.tick_params(length=0)
    for start in range(0, len(words), BLOCK):
        axes.axvspan(
            start - 0.5,
            start + BLOCK - 0.5,
            color=style.GREY,
            alpha=0.1 * (start // BLOCK % 2),
            lw=0,
        )
    axes.axvline(given - 0.5, color=style.BLACK, linewidth=1.2)
    axes.set_xlim(-0.7, len(words) - 0.3)
    axes.set_title(
        "tiny-moe reads the black tokens and writes the blue ones: every mark is an expert that\n"
        "one token used, 4 of 64 in each layer; grey and white are the blocks of the KV cache"
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the picture; 0."""
    parser = argparse.ArgumentParser(prog="python -m minimoe.course.picture")
    parser.add_argument("--out", default="docs/tokens_and_experts.png", help="a PNG file to write")
    args = parser.parse_args(arguments)
    mpl.use("Agg")
    style.use()
    figure = draw(*record())
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, metadata={"Software": None})
    print(f"{args.out}: {Path(args.out).stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
