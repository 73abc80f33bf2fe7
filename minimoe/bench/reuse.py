"""`bench reuse`: time to the first token of a next turn, by where its prefix is found.

Four ways to the same answer: computed (cold), from memory, from the store on disk, and from the
store with two of its twelve node folders gone.
"""

import secrets
import tempfile
from statistics import median

from minimoe.bench.lost_nodes import hide_nodes, show_nodes
from minimoe.bench.prompts import mixed_prompts
from minimoe.errors import MinimoeError
from minimoe.kvstore.line_fit import LineFit

WAYS = ("cold", "memory", "disk", "degraded")


def add_arguments(parser) -> None:
    parser.add_argument("--model", default="tiny-moe", help="shipped name or folder")
    parser.add_argument("--prefix-tokens", type=int, nargs="+", default=[32, 128, 512, 1024, 1536])
    parser.add_argument("--new-tokens", type=int, default=24, help="length of the new user turn")
    parser.add_argument("--busy", type=int, default=0, help="other requests decoding meanwhile")
    parser.add_argument("--chunk", type=int, default=512, help="tokens in one step at most")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)


def main(args) -> dict:
    """Rows `prefix_tokens, cold_s, memory_s, disk_s, degraded_s` (medians), and the crossover:
    the prefix length from which the disk is quicker than computing."""
    import torch

    from minimoe.engine.llm import LLM

    if args.rounds < 1 or args.new_tokens < 1 or min(args.prefix_tokens) < 1:
        raise MinimoeError("prefix-tokens, new-tokens and rounds must each be 1 or more")
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory(prefix="minimoe-reuse-") as folder:
        llm = LLM(
            args.model,
            device=args.device,
            dtype=args.dtype,
            max_num_batched_tokens=args.chunk,
            kv_store=folder,
        )
        try:
            rows = [measure(llm, args.model, n, args) for n in args.prefix_tokens]
        finally:
            llm.close()
    from minimoe.bench import restore, write_path

    settings = {"device": args.device, "dtype": args.dtype}
    return {
        "rows": rows,
        "crossover_tokens": crossover(rows),
        "restore": restore.restore_rates(),
        "decode": write_path.decode_ratio(args.model, rounds=args.rounds, **settings),
        **{name: getattr(args, name) for name in ("new_tokens", "busy", "chunk", "rounds")},
        **{name: getattr(args, name) for name in ("device", "dtype", "threads")},
        "versions": {"torch": torch.__version__},
    }


def measure(llm, model: str, prefix_tokens: int, args) -> dict:
    """One row: medians over rounds, each with a conversation of its own."""
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    prompts = mixed_prompts(model, args.rounds, prefix_tokens + 4 * args.new_tokens)
    for prompt in prompts:
        prefix, turns = prompt[:prefix_tokens], prompt[prefix_tokens:]
        salt = secrets.token_hex(8)  # nothing of an earlier row, round or call is found
        for i, way in enumerate(WAYS):
            turn = turns[i * args.new_tokens : (i + 1) * args.new_tokens]
            seconds, cached = with_prefix(llm, way, prefix + turn, salt, args.busy)
            expected = 0 if way == "cold" else prefix_tokens // 16 * 16
            if cached != expected:
                raise MinimoeError(f"{way}: {cached} tokens cached, expected {expected}")
            times[way].append(seconds)
    return {"prefix_tokens": prefix_tokens} | {f"{way}_s": median(times[way]) for way in WAYS}


def with_prefix(llm, way: str, prompt: list[int], salt: str, busy: int) -> tuple[float, int]:
    """Seconds to the first token and cached tokens, with the prefix where `way` says."""
    disk = llm.engine.reuse.disk
    disk.computing = LineFit()  # measure the disk even where computing would be quicker
    if way in ("disk", "degraded"):
        llm.engine.reuse.flush()
        llm.engine.reuse.index.clear()
    if way != "degraded":
        return first_token(llm, prompt, salt, busy)
    hidden = hide_nodes(disk.store, 2)
    try:
        return first_token(llm, prompt, salt, busy)
    finally:
        show_nodes(hidden)


def first_token(
    llm, prompt: list[int], salt: str | None = None, busy: int = 0
) -> tuple[float, int]:
    """Seconds from arrival to first token, and cached tokens, beside `busy` decoding requests."""
    from minimoe.engine.params import SamplingParams

    engine, params = llm.engine, SamplingParams(max_tokens=64, temperature=0.0, ignore_eos=True)
    others = [f"other-{i}" for i in range(busy)]
    for i, name in enumerate(others):
        engine.add_request(name, [5 + i] * 20, params)
    while others and any(seq.num_remaining > 1 for seq in all_requests(engine)):
        engine.step()
    params = SamplingParams(max_tokens=1, temperature=0.0, cache_salt=salt)
    engine.add_request("measured", prompt, params)
    done = None
    while done is None:
        done = next((out for out in engine.step() if out.request_id == "measured"), None)
    for name in others:
        engine.abort_request(name)
    return done.metrics.time_to_first_token, done.num_cached_tokens


def all_requests(engine) -> list:
    """Requests that run or wait, in this order."""
    return engine.scheduler.running + engine.scheduler.waiting


def crossover(rows: list[dict]) -> float | None:
    """Prefix length at which disk and computing take equally long, between measured lengths; 0 if
    the disk always wins, None if it never does."""
    gains = [(row["prefix_tokens"], row["cold_s"] - row["disk_s"]) for row in rows]
    for (n0, g0), (n1, g1) in zip([(0, gains[0][1]), *gains], gains, strict=False):
        if g1 >= 0:
            return 0.0 if g0 >= 0 else n0 + (n1 - n0) * -g0 / (g1 - g0)
    return None


def render(result: dict) -> str:
    """A table, one line a row."""
    lines = [f"{'prefix':>7} {'cold ms':>8} {'memory':>8} {'disk':>8} {'degraded':>8}   of cold"]
    for row in result["rows"]:
        ms = [row[f"{way}_s"] * 1e3 for way in WAYS]
        shares = " ".join(f"{value / ms[0]:.2f}" for value in ms[1:])
        cells = " ".join(f"{value:8.1f}" for value in ms)
        lines.append(f"{row['prefix_tokens']:7} {cells}   {shares}")
    rates = result["restore"]
    lines.append(f"disk beats computing from {_tokens(result)}")
    lines.append(
        f"the store alone, verified, {rates['bytes'] / 1e6:.0f} MB: "
        f"{rates['whole'] / 1e6:.0f} MB/s, "
        f"{rates['two_lost'] / 1e6:.0f} MB/s with two nodes gone (measured here)"
    )
    decode = result["decode"]
    lines.append(
        f"decode of {decode['batch']} requests while all their blocks are written: "
        f"{decode['ratio']:.2f} of its speed without a store (measured here)"
    )
    return "\n".join(lines)


def _tokens(result: dict) -> str:
    length = result["crossover_tokens"]
    return "no measured length" if length is None else f"{length:.0f} tokens of prefix"
