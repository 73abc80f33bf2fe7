"""`bench ep`: expert parallelism over real ranks: tokens/s, bytes, and where the time goes."""

import time

from minimoe.bench.prompts import mixed_prompts
from minimoe.bench.timing import about
from minimoe.errors import MinimoeError
from minimoe.parallel.tally import exchange_bytes

SHARES = ("own", "exchange", "waiting")


def add_arguments(parser) -> None:
    parser.add_argument("--ranks", type=int, default=2, help="processes; 1 for the engine alone")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--spare-slots", type=int, default=0, help="per rank and layer")
    parser.add_argument("--model", default="tiny-moe", help="shipped name or folder")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32")


def main(args) -> dict:
    """`tok_s`, and per rank its bytes, measured and by formula, and the shares of its time."""
    from minimoe.engine.llm import LLM
    from minimoe.engine.params import SamplingParams

    prompts = mixed_prompts(args.model, args.requests, args.prompt_tokens)
    if args.new_tokens < 1:
        raise MinimoeError(f"new-tokens is {args.new_tokens}: it must be 1 or more")
    params = SamplingParams(max_tokens=args.new_tokens, temperature=0.0, ignore_eos=True)
    llm = LLM(
        args.model,
        device=args.device,
        dtype=args.dtype,
        enable_prefix_caching=False,
        expert_parallel_size=args.ranks,
        expert_parallel_config={"spare_slots": args.spare_slots} if args.ranks > 1 else None,
    )
    try:
        _require_room(args.prompt_tokens + args.new_tokens, llm.config.max_position_embeddings)
        llm.generate(prompts[:2], SamplingParams(max_tokens=4, temperature=0.0))  # warm up
        result = measure(llm, prompts, params)
    finally:
        llm.close()
    names = ("ranks", "requests", "prompt_tokens", "new_tokens", "spare_slots", "model", "dtype")
    return {**about(args.device), **{name: getattr(args, name) for name in names}, **result}


def _require_room(tokens: int, most: int) -> None:
    if tokens > most:
        raise MinimoeError(
            f"prompt-tokens and new-tokens are {tokens} together and the model has {most} "
            "positions: lower one"
        )


def measure(llm, prompts: list, params) -> dict:
    """Two runs: one by the clock, with its bytes; one in which waiting is told from exchange."""
    if llm.model is not None:
        return {"tok_s": len(prompts) * params.max_tokens / _timed(llm, prompts, params)}
    llm.engine.step_times(reset=True)
    seconds = _timed(llm, prompts, params)
    counted = llm.engine.step_times(reset=True)
    llm.engine.time_apart(True)
    llm.generate(prompts, params)
    apart = llm.engine.step_times(reset=True)
    llm.engine.time_apart(False)
    rows = [one["rows"] for one in counted]
    return {
        "tok_s": len(prompts) * params.max_tokens / seconds,
        "steps": counted[0]["steps"],
        "imbalance": max(rows) * len(rows) / sum(rows),
        "per_rank": [
            _rank(*both, formula)
            for *both, formula in zip(counted, apart, by_formula(llm, counted), strict=True)
        ],
    }


def _timed(llm, prompts: list, params) -> float:
    start = time.perf_counter()
    llm.generate(prompts, params)
    return time.perf_counter() - start


def by_formula(llm, times: list[dict]) -> list[dict[str, tuple[int, int]]]:
    """The bytes that each rank must have sent and received, by kind, from `step_times`.

    It holds where each step is one forward pass, so without speculation's profile in between.
    """
    placement, steps = llm.engine.placement, times[0]["steps"]
    return exchange_bytes(
        [one["pairs"] for one in times],
        placement.per_rank,
        llm.config.hidden_size,
        times[0]["itemsize"],
        layers=steps * placement.layers,
        ends=steps,
    )


def _rank(counted: dict, apart: dict, formula: dict) -> dict:
    return {
        "rows": counted["rows"],
        "sent": sum(sent for sent, _ in counted["bytes"].values()),
        "sent_by_formula": sum(sent for sent, _ in formula.values()),
        "received": sum(received for _, received in counted["bytes"].values()),
        "received_by_formula": sum(received for _, received in formula.values()),
        "bytes": counted["bytes"],
        "own_s_per_step": apart["own"] / apart["steps"],
        **{f"{name}_share": apart[name] / apart["seconds"] for name in SHARES},
    }


def render(result: dict) -> str:
    """A line of totals, and a table with a line a rank."""
    lines = [f"{result['ranks']} ranks: {result['tok_s']:.0f} tok/s"]
    if "per_rank" in result:
        lines[0] += f", {result['steps']} steps, busiest rank {result['imbalance']:.2f} x the mean"
        lines.append(
            f"{'rank':>4} {'rows':>8} {'sent':>11} {'by formula':>11} {'received':>11}"
            f" {'own':>5} {'exchange':>9} {'waiting':>8}"
        )
    for rank, row in enumerate(result.get("per_rank", [])):
        lines.append(
            f"{rank:4} {row['rows']:8} {row['sent']:11} {row['sent_by_formula']:11}"
            f" {row['received']:11} {row['own_share']:5.0%} {row['exchange_share']:9.0%}"
            f" {row['waiting_share']:8.0%}"
        )
    return "\n".join(lines)
