"""The figures of 07_kv_reuse. Each is a plain function that draws one; sliders call it too."""

import matplotlib.pyplot as plt
import numpy as np

from minimoe.course import style
from minimoe.course.conversation import BLOCK, computed_with_reuse, prompt_lengths
from minimoe.perf.economics import OFF_PEAK


def block_strips(first: int, answer: int, second: int, cached: int) -> None:
    """Two turns as rows of tokens, a box a block: what turn 2 finds, and what was computed.

    `first` and `second` are lengths of prompts; the answer of turn 1 follows its prompt, and the
    last of its `answer` tokens was never run.
    """
    _, axes = style.new_figure(8.5, 2.4)
    spans = {
        "found in the cache": (style.SKY, [(1, 0, cached)]),
        "prompt, computed": (style.ORANGE, [(0, 0, first), (1, cached, second)]),
        "answer, run token by token": (style.GREEN, [(0, first, first + answer - 1)]),
        "drawn, never run": (style.GREY, [(0, first + answer - 1, first + answer)]),
    }
    for label, (colour, places) in spans.items():
        for row, start, end in places:
            axes.broken_barh([(start, end - start)], (row - 0.3, 0.6), color=colour)
        axes.bar(0, 0, color=colour, label=label)
    for row, length in enumerate([first + answer, second]):
        for edge in range(BLOCK, length + 1, BLOCK):
            axes.plot([edge, edge], [row - 0.3, row + 0.3], "-", color="white", lw=1.5, marker="")
    axes.set_yticks([0, 1], ["turn 1", "turn 2"])
    axes.set(ylim=(1.6, -0.6), xlabel="token (white: edges of blocks of 16)")
    axes.set_xlim(0, max(first + answer, second))
    axes.grid(False)
    axes.legend(ncols=2, loc=(0.0, 1.0))
    style.source_label(axes, "measured here")
    plt.show()


def first_token_bars(seconds: dict[str, float]) -> None:
    """Time to the first token by where the prefix was."""
    _, axes = style.new_figure(7.5, 0.9 + 0.45 * len(seconds))
    names, times = list(seconds), [value * 1e3 for value in seconds.values()]
    bars = axes.barh(names, times, color=style.SERIES[: len(names)])
    axes.bar_label(bars, fmt=" %.1f ms")
    axes.invert_yaxis()
    axes.set(xlabel="time to the first token, ms", xlim=(0, max(times) * 1.2))
    axes.grid(False, axis="y")
    style.source_label(axes, "measured here")
    plt.show()


def conversation_cost(turns: int = 12, system: int = 200, question: int = 40, answer: int = 100):
    """Prompt tokens computed over a conversation, with and without reuse."""
    lengths = prompt_lengths(turns, system, question, answer)
    computed = computed_with_reuse(turns, system, question, answer)
    _, axes = style.new_figure(7.5, 3.6)
    number = np.arange(1, turns + 1)
    axes.plot(number, np.cumsum(lengths), label="everything computed in each turn")
    axes.plot(number, np.cumsum(computed), label="cached blocks reused")
    axes.set(xlabel="turn", ylabel="prompt tokens computed so far", ylim=(0, None))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="upper left")
    style.source_label(axes, "derived: lengths and block edges alone")
    plt.show()
    print(conversation_text(lengths, computed))


def conversation_text(lengths: list[int], computed: list[int]) -> str:
    """The key numbers of the figure, and what they cost at the published prices."""
    fed, done = sum(lengths), sum(computed)
    cold = fed * OFF_PEAK.miss / 1e6
    warm = (done * OFF_PEAK.miss + (fed - done) * OFF_PEAK.hit) / 1e6
    return (
        f"{len(lengths)} turns: {fed:,} prompt tokens, {done:,} computed with reuse; "
        f"{1 - done / fed:.0%} found in the cache\n"
        f"at V4.1-Flash's off-peak prices (reported): ${cold:.6f} without hits, "
        f"${warm:.6f} with them, {cold / warm:.1f} x"
    )


def chain_left(history: list[tuple[str, int]]) -> None:
    """How many leading blocks of an old prompt are still found after each newcomer."""
    _, axes = style.new_figure(7.0, 2.8)
    names, left = zip(*history, strict=True)
    bars = axes.bar(names, left, color=style.BLUE)
    axes.bar_label(bars)
    axes.set(ylabel="blocks of the first\nprompt still found", ylim=(0, max(left) * 1.2))
    axes.grid(False, axis="x")
    style.source_label(axes, "measured here")
    plt.show()
