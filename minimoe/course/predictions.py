"""The roofline's prediction beside what was measured, as tables. Used by 01."""

import random
from dataclasses import dataclass

from minimoe.course.measured import Measured
from minimoe.perf.chips import CHIPS
from minimoe.perf.roofline import (
    Work,
    away_from_knee,
    distinct_expected,
    distinct_uniform,
    knee_tokens,
    predict,
)

H200_OVERHEAD = 12e-6  # seconds: the kernels of one layer start one after another
MODELS = {  # E, K; the last two reported
    "a dense layer": (1, 1),
    "tiny-moe": (64, 4),
    "DeepSeek-V3": (256, 8),
    "V4.1-Flash": (384, 6),
}


@dataclass(frozen=True)
class Predicted:
    """One saved row: predicted and measured seconds. `away` tells if it is far from the knee."""

    name: str
    size: int  # tokens per GPU, or cached positions per request
    predicted: float
    measured: float
    away: bool

    @property
    def ratio(self) -> float:
        """Predicted over measured time: 1 is a perfect prediction."""
        return self.predicted / self.measured


def predicted_rows(saved: Measured, overhead: float = H200_OVERHEAD) -> list[Predicted]:
    """Every row whose requests are of one length, predicted from the roofs of the same file."""
    bandwidth, rate = saved.roofs.read, saved.roofs.matmul[saved.dtype]
    out = []
    for row in saved.rows:
        if "ragged" in row["shape"] or "page" in row["shape"]:
            continue
        work = Work(row["flops"], row["bytes"] + row.get("activation_bytes", 0))
        seconds = predict(work, bandwidth, rate, overhead)
        away = away_from_knee(work, bandwidth, rate)
        size = row.get("context", row.get("tokens"))
        out.append(Predicted(row["shape"], size, seconds, row["seconds"], away))
    return out


def prediction_table(rows: list[Predicted]) -> str:
    """Predicted and measured microseconds of each row, as text."""
    lines = [f"{'':<8}{'size':>7}{'predicted us':>14}{'measured us':>13}{'ratio':>7}"]
    for row in rows:
        mark = "" if row.away else "  near the knee"
        lines.append(
            f"{row.name:<8}{row.size:>7}{row.predicted * 1e6:>14.0f}{row.measured * 1e6:>13.0f}"
            f"{row.ratio:>7.2f}{mark}"
        )
    return "\n".join(lines)


def layer_table(rows: list[dict]) -> str:
    """Rows of `bench moe`: work, predicted and measured time, and what a token costs."""
    lines = [f"{'tokens':>6}{'hit':>5}{'FLOP/byte':>11}{'predicted ms':>14}{'measured ms':>13}"]
    lines[0] += f"{'us/token':>10}{'GB/s':>7}{'GFLOP/s':>9}"
    for row in rows:
        seconds = row["seconds"]
        lines.append(
            f"{row['tokens']:>6}{row['experts_hit']:>5}{row['flops'] / row['bytes']:>11.1f}"
            f"{row['predicted_seconds'] * 1e3:>14.2f}{seconds * 1e3:>13.2f}"
            f"{seconds * 1e6 / row['tokens']:>10.0f}{row['bytes'] / seconds / 1e9:>7.1f}"
            f"{row['flops'] / seconds / 1e9:>9.1f}"
        )
    return "\n".join(lines)


def steps_table(steps, machine) -> str:
    """Engine steps: the three predicted parts, their sum, and the measured time, microseconds."""
    lines = [f"{'step':<13}{'calls':>6}{'overhead':>10}{'memory':>8}{'arithmetic':>12}"]
    lines[0] += f"{'predicted':>11}{'measured':>10}{'us/token':>10}"
    for step in steps:
        parts = step.parts(machine)
        us = [part * 1e6 for part in (*parts.values(), sum(parts.values()), step.seconds)]
        lines.append(
            f"{step.name:<13}{step.calls:>6}{us[0]:>10.0f}{us[1]:>8.0f}{us[2]:>12.0f}"
            f"{us[3]:>11.0f}{us[4]:>10.0f}{us[4] / step.tokens:>10.1f}"
        )
    return "\n".join(lines)


def simulated_distinct(E: int, K: int, tokens: int, tries: int = 200) -> float:
    """Mean number of distinct experts hit when each token draws K of E; the seed is fixed."""
    rng = random.Random(tokens)
    draws = [{e for _ in range(tokens) for e in rng.sample(range(E), K)} for _ in range(tries)]
    return sum(len(draw) for draw in draws) / tries


def counted_distinct(ids, tokens: int) -> float:
    """Mean over layers and over all runs of `tokens` neighbours. ids: `[L, T, K]`."""
    runs = [layer[i : i + tokens] for layer in ids for i in range(0, len(layer), tokens)]
    full = [run.unique().numel() for run in runs if len(run) == tokens]
    return sum(full) / len(full)


def distinct_table(ids, shares, E: int, K: int, tokens=(1, 4, 16, 64, 256)) -> str:
    """Four answers to "how many experts do T tokens hit?". shares: per layer, each sums to K."""
    lines = [
        f"{'tokens':>6}{'K x T':>7}{'formula':>9}{'drawn':>7}{'real shares':>13}{'one text':>10}"
    ]
    for T in tokens:
        real = sum(distinct_expected(share, T) for share in shares) / len(shares)
        lines.append(
            f"{T:>6}{K * T:>7}{distinct_uniform(E, K, T):>9.1f}{simulated_distinct(E, K, T):>7.1f}"
            f"{real:>13.1f}{counted_distinct(ids, T):>10.1f}"
        )
    return "\n".join(lines)


def knee_table(knee: float, itemsize: int = 2) -> str:
    """Tokens per step at which each model's expert layer leaves the memory-bound side."""
    lines = [f"{'':<15}{'E':>4}{'K':>4}{'E / K':>7}{'tokens at the knee':>20}"]
    for name, (E, K) in MODELS.items():
        tokens = knee_tokens(E, K, knee, itemsize)
        lines.append(f"{name:<15}{E:>4}{K:>4}{E / K:>7.0f}{tokens:>20,.0f}")
    return "\n".join(lines)


def memory_table() -> str:
    """HBM beside what is close to the arithmetic, from `perf/chips.py`."""
    lines = [
        f"{'':<6}{'HBM GB':>8}{'L2 MB':>7}{'on chip MB':>12}{'HBM / L2':>10}{'HBM / on chip':>15}"
    ]
    for name in ("H100", "H200", "B200"):
        chip = CHIPS[name]
        lines.append(
            f"{name:<6}{chip.memory / 1e9:>8.0f}{chip.cache / 1e6:>7.0f}{chip.on_chip / 1e6:>12.0f}"
            f"{chip.memory / chip.cache:>10,.0f}{chip.memory / chip.on_chip:>15,.0f}"
        )
    return "\n".join(lines)


def per_gpu_ratios(narrow: list[dict], wide: list[dict]) -> dict[int, float]:
    """Tokens/s per GPU of the first over the second, by tokens per GPU."""
    times = {row["tokens"]: row["seconds"] for row in wide}
    return {row["tokens"]: times[row["tokens"]] / row["seconds"] for row in narrow}
