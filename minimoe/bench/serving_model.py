"""The budget beside the post's figures: our scheduler, our drafter's confidences, three clocks.

    python -m minimoe.bench.serving_model [--json]

Clocks: this CPU, measured now; an H200, measured (`data/measured/h200-speculative.json`);
V4.1-Flash on B200, derived (`serving_clock.py`). Nothing is fitted to the figures that the results
are set beside: they are `POST` and `VLLM` below, and no function reads them.
"""

import argparse
import json

from minimoe.bench.serving_clock import GroupClock
from minimoe.bench.serving_sim import OneEngine, Replay, Result, simulate
from minimoe.config import REPO
from minimoe.perf.step_cost import ep8, ep64
from minimoe.speculative.budget import Budget
from minimoe.speculative.calibrate import Passes, load_passes
from minimoe.speculative.calibration import Calibration, Weights
from minimoe.speculative.rules import FixedLength, Rule, Threshold
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
    mix=(), ranks: int = 1, steps: int = 200, form: str = "priced",
) -> list[dict]:  # fmt: skip
    """One row a load: every rule's tokens per second, and what the budget gains, in percent.

    A rule that is the same for every rank is run on one; the budget on `ranks` that decide apart.
    """
    rows = []
    for load in loads:
        results = {}
        for name, make in rule_makers(times, form).items():
            count = ranks if name == "scheduled" else 1
            rules: list[Rule] = [make() for _ in range(count)]
            replays = [Replay(passes, weights, load, mix, seed) for seed in range(count)]
            results[name] = simulate(rules, clock, replays, load, max(20, steps // count))
        rows.append(_row(load, results))
    return rows


def _row(load: int, results: dict[str, Result]) -> dict:
    speed = {name: result.tok_s for name, result in results.items()}
    scheduled = results["scheduled"]
    fixed = {n: speed[f"fixed {n}"] for n in range(1, G + 1)}
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


def v41_rows(make=ep64, mix="3.5 a pass", loads=tuple(POST), group: bool = True, **options):
    """V4.1-Flash on B200s: every GPU decides for its own requests; `group`: and all wait."""
    clock = GroupClock(make, G)
    ranks = clock.ranks if group else 1
    passes, weights = drafter_passes(1)
    mix = MIXES[mix]
    return compare(clock, clock.times(), passes, weights, loads, mix=mix, ranks=ranks, **options)


def engine_rows(times: StepTimes, loads=(1, 4, 16, 64, 128), temperature: int = 1, **options):
    """An engine of ours, by the profile it took of itself."""
    passes, weights = drafter_passes(temperature)
    return compare(OneEngine(times), times, passes, weights, loads, **options)


def saved_times(name: str = "h200-speculative") -> StepTimes:
    """The profile in a file of `data/measured/`."""
    path = REPO / "data" / "measured" / f"{name}.json"
    return StepTimes.from_dict(json.loads(path.read_text(encoding="utf-8"))["step_times"])


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
