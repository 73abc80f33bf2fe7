"""`bench speculative`: tokens per second by load, for no drafts, fixed lengths, and the budget.

One process and the same prompts; the ways take turns, pair by pair, and part by part where turns
are short. `load` is how many requests run at once, the four domains in equal parts. No way drafts
until all of them are in decode; then the clock runs, so prompts and the thinning-out at the end of
a batch take no part.
"""

import json
import sys
from dataclasses import asdict, fields
from statistics import median

from minimoe.bench.bootstrap import lower_bound
from minimoe.config import REPO
from minimoe.errors import MinimoeError


def add_arguments(parser) -> None:
    parser.add_argument("--load", type=int, nargs="+", default=[1, 4, 16, 64, 128])
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--pairs", type=int, default=15, help="turns that each way gets")
    parser.add_argument("--new-tokens", type=int, default=64, help="a request, on average")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument(
        "--turn-tokens",
        type=int,
        default=4096,
        help="new tokens that make a turn long enough; shorter ones have 4 parts",
    )
    parser.add_argument("--method", default="dspark", help="dspark or prompt_lookup")
    parser.add_argument("--form", default="priced", help="priced, production or lossless")
    parser.add_argument("--threshold", type=float, default=0.5, help="of the static rule")
    parser.add_argument("--model", default="tiny-moe", help="shipped name or folder")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)


def main(args) -> dict:
    """Rows `load, temperature, none_tok_s, fixed_tok_s, best_fixed_tok_s, best_fixed_length,
    scheduled_tok_s, threshold_tok_s, ...`; see `row`."""
    counts = args.pairs, args.new_tokens, args.prompt_tokens, args.turn_tokens, args.threads
    if min(*args.load, *counts) < 1:
        raise MinimoeError("load, pairs, tokens and threads must each be 1 or more")
    import torch

    from minimoe.bench.contest import Contest, Settings
    from minimoe.bench.timing import about
    from minimoe.perf.hardware import device_name

    torch.set_num_threads(args.threads)
    given = {field.name: getattr(args, field.name) for field in fields(Settings)
             if hasattr(args, field.name)}  # fmt: skip
    settings = Settings(**{**given, "load": max(args.load)})
    contest = Contest(settings)
    rows = []
    for temperature in args.temperature:
        for load in args.load:
            rows.append(row(load, temperature, contest.run(load, temperature)))
            print(json.dumps(rows[-1]), file=sys.stderr)  # should a later load fail
    how = {**asdict(settings), "threads": args.threads}
    return {"rows": rows, "settings": how, "step_times": contest.step_times(),
            **about(device_name(args.device))}  # fmt: skip


def row(load: int, temperature: float, turns: dict[str, list]) -> dict:
    """One row from each way's turns (`contest.Turn`): medians, and ratios pair by pair.

    `lower_*` are lower 95 % bounds of the median ratio, by bootstrap over pairs: `lower_to_best`
    against the fastest of no drafts and all fixed lengths.
    """
    speed = {way: [turn.tok_s for turn in own] for way, own in turns.items()}
    middle = {way: median(values) for way, values in speed.items()}
    fixed = {int(way.split()[1]): tok_s for way, tok_s in middle.items() if "fixed" in way}
    length = max(fixed, key=fixed.get)
    best = max(("none", f"fixed {length}"), key=middle.get)
    scheduled = turns["scheduled"]
    out = {
        "load": load,
        "temperature": temperature,
        "none_tok_s": middle["none"],
        "fixed_tok_s": fixed[max(fixed)],
        "best_fixed_tok_s": fixed[length],
        "best_fixed_length": length,
        "scheduled_tok_s": middle["scheduled"],
        "threshold_tok_s": middle["threshold"],
        "fixed_tok_s_by_length": [fixed[n] for n in sorted(fixed)],
        "accepted_length": _mean(scheduled, "tokens", "request_steps"),
        "accepted_length_fixed": _mean(turns[f"fixed {max(fixed)}"], "tokens", "request_steps"),
        "checked_per_request": _mean(scheduled, "checked", "request_steps"),
        "drafted_share": _mean(scheduled, "drafted_steps", "steps"),
        "best": best,
    }
    others = {"best": best, "best_fixed": f"fixed {length}", "fixed": f"fixed {max(fixed)}"}
    for name, other in others.items():
        ratios = [a / b for a, b in zip(speed["scheduled"], speed[other], strict=True)]
        out |= {f"ratio_to_{name}": median(ratios), f"lower_to_{name}": lower_bound(ratios)}
    return out


def saved_rows(temperature: float, name: str = "h200-speculative") -> dict[int, dict]:
    """Rows that this bench saved in `data/measured/`, by load."""
    record = json.loads((REPO / "data" / "measured" / f"{name}.json").read_text(encoding="utf-8"))
    return {row["load"]: row for row in record["rows"] if row["temperature"] == temperature}


def _mean(turns: list, part: str, whole: str) -> float:
    return sum(getattr(t, part) for t in turns) / sum(getattr(t, whole) for t in turns)


def render(result: dict) -> str:
    """A table, one line a load and temperature."""
    head = f"{'T':>4} {'load':>5} {'none':>8} {'fixed 5':>8} {'best fixed':>12} {'threshold':>10}"
    lines = [head + f" {'scheduled':>10} {'to best':>8} {'bound':>6} {'tok/step':>9} {'checks':>7}"]
    for r in result["rows"]:
        best = f"{r['best_fixed_tok_s']:.0f} ({r['best_fixed_length']})"
        lines.append(
            f"{r['temperature']:4g} {r['load']:5} {r['none_tok_s']:8.0f} {r['fixed_tok_s']:8.0f} "
            f"{best:>12} {r['threshold_tok_s']:10.0f} {r['scheduled_tok_s']:10.0f} "
            f"{r['ratio_to_best']:8.3f} {r['lower_to_best']:6.3f} {r['accepted_length']:9.2f} "
            f"{r['checked_per_request']:7.2f}"
        )
    return "\n".join(lines)
