"""The budget beside the post's figures: our scheduler, our drafter's confidences, three clocks.

    python -m minimoe.bench.serving_model [--json]

Clocks: this CPU, measured now; an H200, measured (`data/measured/h200-speculative.json`);
V4.1-Flash on B200, derived (`serving_clock.py`). Nothing is fitted to the figures that the results
are set beside: they are `POST` and `VLLM` below, and no function reads them.
"""

import argparse
import json

import numpy as np

from minimoe.bench.serving_clock import GroupClock
from minimoe.bench.serving_sim import OneEngine, Recording, Replay, Result, simulate
from minimoe.bench.speculative import saved_rows
from minimoe.config import REPO
from minimoe.perf.step_cost import ep8, ep64
from minimoe.speculative.budget import Budget
from minimoe.speculative.calibrate import Passes, load_passes
from minimoe.speculative.calibration import Calibration, Weights
from minimoe.speculative.rules import FixedLength, Threshold
from minimoe.speculative.step_times import StepTimes

G = 5
# What the budget gains over checking all 5, percent, by requests a GPU (the post; DeepSeek's Q&A).
POST = {16: (-1.5, -1.5), 60: (4.0, 7.0), 96: (11.0, 11.0)}
# Adaptive over fixed 7, percent, by requests (vLLM pull request 52362: DeepSeek-V4 on ROCm).
VLLM = {4: -7.0, 8: -8.3, 16: -4.7, 32: -5.4, 64: 6.4, 128: 18.0, 256: 69.7}
HEAD = "   load  gain over fixed 5, %  with deciding  over none  checks  tok/pass"
DRAFTER = REPO / "data" / "tiny-moe-dspark"
# Code, story, chat, json in these parts make the accepted length that was reported for V4.1-Flash
# with 5 drafts, 3.51 (InferenceX); in equal parts our drafter's is higher.
MIXES = {"equal": (1, 1, 1, 1), "3.5 a pass": (5, 1, 1, 1)}


def drafter_passes(temperature: int = 1, folder=DRAFTER) -> tuple[Passes, Weights]:
    """Passes on prompts that the calibration was not fitted to, and its weights."""
    passes = load_passes(folder / "validation.npz", temperature).halves()[1]
    calibration = Calibration.load(folder / "calibration.json")
    return passes, (calibration.greedy, calibration.drawn)[temperature]


def rule_makers(times: StepTimes, form: str, limit: float = 0.5) -> dict:
    """How to make each rule: checks of none, of 1 to 5, by a threshold, by the budget."""
    fixed = {f"fixed {n}": lambda n=n: FixedLength(n) for n in range(1, G + 1)}
    return {
        "none": lambda: FixedLength(0),
        **fixed,
        "threshold": lambda: Threshold(G, limit),
        "scheduled": lambda: Budget(StepTimes.from_dict(times.to_dict()), G, form),
    }


def compare(
    clock, times: StepTimes, passes: Passes, weights: Weights, loads, *,
    mix=(), ranks: int = 1, steps: int = 200, form: str = "priced", names=None,
) -> list[dict]:  # fmt: skip
    """One row a load: every rule's tokens per second, and what the budget gains, in percent.

    Each of `ranks` has requests of its own and decides for itself; all rules meet the same passes.
    `names` are the rules to run, all by default.
    """
    makers, recording = rule_makers(times, form), Recording(passes, weights)
    rows = []
    for load in loads:
        replays = [Replay(recording, load, mix, seed) for seed in range(ranks)]
        results = {
            name: simulate([makers[name]() for _ in replays], clock, replays, load, steps)
            for name in names or makers
        }
        rows.append(_row(load, results))
    return rows


def _row(load: int, results: dict[str, Result]) -> dict:
    speed = {name: result.tok_s for name, result in results.items()}
    scheduled = results["scheduled"]
    fixed = {n: speed[f"fixed {n}"] for n in range(1, G + 1) if f"fixed {n}" in speed}
    best = max(fixed, key=fixed.get)
    return {
        "load": load,
        "tok_s": speed,
        "best_fixed_length": best,
        "gain_over_fixed": _percent(scheduled.tok_s, fixed[G]),
        "gain_with_deciding": _percent(scheduled.tok_s_with_deciding, fixed[G]),
        "gain_over_best_fixed": _percent(scheduled.tok_s, fixed[best]),
        "gain_over_none": _percent(scheduled.tok_s, speed["none"]),
        "accepted_length": scheduled.accepted_length,
        "accepted_length_fixed": results[f"fixed {G}"].accepted_length,
        "checked_per_request": scheduled.checked_per_request,
        "step_ms": {name: 1e3 * result.seconds / result.steps for name, result in results.items()},
    }


def _percent(a: float, b: float) -> float:
    return 100 * (a / b - 1)


def v41_rows(
    make=ep64, mix="3.5 a pass", loads=tuple(POST), group: bool = True, steps: int = 60, **options
):
    """V4.1-Flash on B200s: every GPU decides for its own requests; `group`: and all wait."""
    clock = GroupClock(make, G)
    ranks, steps = (clock.ranks, steps) if group else (1, 8 * steps)
    passes, weights = drafter_passes(1)
    names = ("none", f"fixed {G}", "scheduled")
    return compare(clock, clock.times(), passes, weights, loads, mix=MIXES[mix], ranks=ranks,
                   steps=steps, names=names, **options)  # fmt: skip


def engine_rows(times: StepTimes, loads=(1, 4, 16, 64, 128), temperature: int = 1, **options):
    """An engine of ours, by the profile it took of itself."""
    passes, weights = drafter_passes(temperature)
    return compare(OneEngine(times), times, passes, weights, loads, **options)


def saved_times(name: str = "h200-speculative", temperature: int = 1) -> StepTimes:
    """Step times behind the rows of `bench speculative` in `data/measured/`.

    Seconds of a step are its tokens over the measured tokens per second. The tokens of a step with
    k checks of each request are those of the recorded passes, whose domains are mixed alike.
    """
    passes, _ = drafter_passes(temperature)
    shares = [passes.accepted[passes.domain == kind] for kind in range(len(passes.domains))]
    gained = [sum(np.minimum(own, k).mean() for own in shares) / len(shares) for k in range(G + 1)]
    plain, drafted = {}, {}
    for load, row in saved_rows(temperature, name).items():
        plain[load] = load / row["none_tok_s"]
        for k, speed in enumerate(row["fixed_tok_s_by_length"], start=1):
            drafted[load, load * (1 + k)] = load * (1 + gained[k]) / speed
    return StepTimes(plain, drafted)


def measured_times(device: str = "cpu", most: int = 64) -> StepTimes:
    """A new profile of the engine on this machine."""
    from minimoe import LLM

    llm = LLM("tiny-moe", device=device, max_num_seqs=most, max_num_batched_tokens=most * (1 + G),
              speculative_config={"method": "dspark"})  # fmt: skip
    return llm.engine.speculation.profile()


def report() -> dict:
    """All tables, by clock."""
    loads = (4, 8, 16, 32, 60, 96, 128, 256)
    tables = {
        f"V4.1-Flash on {name} B200, {mix}{', one GPU' if not group else ''}": v41_rows(
            make, mix, loads, group
        )
        for name, make in (("64", ep64), ("8", ep8))
        for mix in MIXES
        for group in (True, False)
    }
    tables["H200, measured"] = engine_rows(saved_times())
    tables["this CPU, measured now"] = engine_rows(measured_times(), loads=(1, 4, 16, 64))
    return {"post": POST, "vllm": VLLM, "tables": tables}


def render(result: dict) -> str:
    """One line a load."""
    lines = []
    for name, rows in result["tables"].items():
        lines += ["", name, HEAD]
        for row in rows:
            lines.append(
                f"{row['load']:7}{row['gain_over_fixed']:22.1f}{row['gain_with_deciding']:15.1f}"
                f"{row['gain_over_none']:11.0f}{row['checked_per_request']:8.2f}"
                f"{row['accepted_length']:10.2f}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m minimoe.bench.serving_model")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    result = report()
    print(json.dumps(result) if parser.parse_args().json else render(result))


if __name__ == "__main__":
    main()
