"""`bench decode`: tokens per second by batch size, beside transformers' `generate`."""

from minimoe.bench.compare import compare
from minimoe.bench.prompts import mixed_prompts
from minimoe.checkpoint import checkpoint_folder
from minimoe.config import ModelConfig
from minimoe.errors import MinimoeError


def add_arguments(parser) -> None:
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument(
        "--no-graphs",
        dest="graphs",
        action="store_false",
        help="on CUDA, launch every kernel instead of replaying captured graphs",
    )
    add_common_arguments(parser)


def add_common_arguments(parser) -> None:
    """What `decode` and `prefill` share."""
    parser.add_argument("--model", default="tiny-moe", help="shipped name or folder")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes per side")
    parser.add_argument("--against", choices=("transformers",), help="the baseline")


def main(args) -> dict:
    """Rows `batch, tok_s, baseline_tok_s, ratio`: new tokens over time of prefill and decode."""
    cases = [
        {
            "prompts": mixed_prompts(args.model, batch, args.prompt_tokens),
            "new_tokens": args.new_tokens,
        }
        for batch in args.batch
    ]
    tokens = [batch * args.new_tokens for batch in args.batch]
    rows, result = run_cases(args, cases, tokens)
    rows = [{"batch": batch, **row} for batch, row in zip(args.batch, rows, strict=True)]
    return {"rows": rows, **result}


def run_cases(args, cases: list[dict], tokens: list[int]) -> tuple[list[dict], dict]:
    """Measure the cases on both sides; `tokens` is what each case counts."""
    if args.rounds < 1 or args.threads < 1 or min(tokens) < 1:
        raise MinimoeError("batch, tokens, threads and rounds must each be 1 or more")
    limit = ModelConfig.load(checkpoint_folder(args.model)).max_position_embeddings
    longest = max(len(case["prompts"][0]) + case["new_tokens"] for case in cases)
    if longest > limit:
        raise MinimoeError(f"{longest} tokens a request exceed the model's {limit}: use fewer")
    job = {name: getattr(args, name) for name in ("model", "device", "dtype", "threads")}
    job["graphs"] = getattr(args, "graphs", True)
    result = compare({**job, "cases": cases}, args.rounds, args.against)
    seconds = result["seconds"]
    rows = [{"tok_s": count / ours} for count, ours in zip(tokens, seconds["minimoe"], strict=True)]
    if args.against:
        for row, count, theirs, name in zip(
            rows, tokens, seconds[args.against], result["variant"], strict=True
        ):
            row["baseline_tok_s"] = count / theirs
            row["baseline"] = f"{args.against} {name}"
            row["ratio"] = row["tok_s"] / row["baseline_tok_s"]
    about = {"device": args.device, "threads": args.threads, "dtype": args.dtype}
    return rows, {**about, "rounds": args.rounds, "versions": result["versions"]}


def render(result: dict) -> str:
    """A table, one line a row; the baseline's columns where there is one."""
    rows = result["rows"]
    first = next(name for name in ("batch", "prompt_tokens") if name in rows[0])
    compared = "ratio" in rows[0]
    lines = [f"{first:>13} {'tok/s':>8}" + (f" {'baseline':>9} {'ratio':>6}" if compared else "")]
    for row in rows:
        line = f"{row[first]:13} {row['tok_s']:8.0f}"
        if compared:
            line += f" {row['baseline_tok_s']:9.0f} {row['ratio']:6.2f}  ({row['baseline']})"
        lines.append(line)
    return "\n".join(lines)
