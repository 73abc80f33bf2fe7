"""`python -m minimoe bench WHAT`: one module of this package per thing to measure."""

import argparse
from importlib import import_module

BENCHES = {
    "decode": ("minimoe.bench.decode", "tok/s by batch, beside transformers on the same weights"),
    "prefill": ("minimoe.bench.prefill", "prompt tok/s, beside transformers"),
    "moe": ("minimoe.bench.moe", "the expert layer beside the measured roofs"),
    "attention": ("minimoe.bench.attention", "MLA decode attention beside the measured roofs"),
    "speculative": ("minimoe.bench.speculative", "tok/s by load: no drafts, fixed lengths, budget"),
    "ep": ("minimoe.bench.ep", "expert parallelism over P processes: tok/s, bytes, waiting"),
    "exchange": ("minimoe.bench.exchange", "all-to-all by size, and an expert layer over ranks"),
    "reuse": ("minimoe.bench.reuse", "time to first token, cold, warm and from disk"),
}


def add_arguments(parser) -> None:
    """A bench's own arguments are read once its name is known."""
    parser.add_argument(
        "what", choices=BENCHES, help="; ".join(f"{n}: {t}" for n, (_, t) in BENCHES.items())
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="see bench WHAT --help")


def main(args) -> dict:
    """Run the bench; `--json` may stand before or after its name."""
    module = import_module(BENCHES[args.what][0])
    parser = argparse.ArgumentParser(prog=f"python -m minimoe bench {args.what}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    module.add_arguments(parser)
    own = parser.parse_args(args.rest)
    args.json = args.json or own.json
    return {"bench": args.what, **module.main(own)}


def render(result: dict) -> str:
    return import_module(BENCHES[result["bench"]][0]).render(result)
