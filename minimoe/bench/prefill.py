"""`bench prefill`: prompt tokens per second, one request, beside transformers' `generate`."""

from minimoe.bench.decode import add_common_arguments, render, run_cases
from minimoe.bench.prompts import mixed_prompts

__all__ = ["add_arguments", "main", "render"]


def add_arguments(parser) -> None:
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[128, 1024])
    add_common_arguments(parser)


def main(args) -> dict:
    """Rows `prompt_tokens, tok_s, baseline_tok_s, ratio`: the time to the first new token."""
    lengths = args.prompt_tokens
    cases = [{"prompts": mixed_prompts(args.model, 1, n), "new_tokens": 1} for n in lengths]
    rows, result = run_cases(args, cases, lengths)
    rows = [{"prompt_tokens": n, **row} for n, row in zip(lengths, rows, strict=True)]
    return {"rows": rows, **result}
