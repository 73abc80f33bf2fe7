"""`bench exchange`: the wire between ranks by message size, and a whole expert-parallel layer.

The layer has V4.1-Flash's shapes. However many ranks there are, each holds what a rank of EP8 or of
EP64 would hold, 48 or 6 experts; so E grows with the ranks, and rows per expert are those of a
group of this size.
"""

import json
import statistics
import time
from pathlib import Path

import torch

from minimoe.bench.timing import about
from minimoe.errors import MinimoeError
from minimoe.parallel import layer
from minimoe.parallel.placement import in_order
from minimoe.parallel.supervisor import Ranks
from minimoe.perf.hardware import device_name

SLICES = {"ep8": 48, "ep64": 6}  # experts a rank
SHAPE = {"D": 5120, "F": 2304, "K": 6}  # V4.1-Flash, reported
SMALL = {"D": 512, "F": 256, "K": 4}  # for a CPU
ROW_BYTES = 1024


def add_arguments(parser) -> None:
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="cpu or cuda, one GPU a rank")
    parser.add_argument("--messages", type=int, nargs="+", help="bytes that a rank sends in all")
    parser.add_argument("--tokens", type=int, nargs="+", help="per rank")
    parser.add_argument("--requests", type=int, default=8, help="of the check of outputs; 0: none")
    parser.add_argument("--save", help="write the result to this file too")


def main(args) -> dict:
    """`messages`: seconds and bytes/s by size; `layers`: a step by tokens; `outputs_equal`."""
    if args.ranks < 2:
        raise MinimoeError(f"ranks is {args.ranks}: an exchange needs 2 or more")
    cuda = args.device.startswith("cuda")
    sizes = args.messages or [2**n for n in range(12, 29 if cuda else 23, 2)]
    tokens = args.tokens or ([16, 64, 256, 1024, 4096] if cuda else [16, 64, 256])
    with Ranks(args.ranks, args.device) as ranks:
        ranks.call(send, sizes[-1], 3)  # connect
        messages = [message_row(ranks, size) for size in sizes]
        layers = [row for name in SLICES for row in layer_rows(ranks, name, tokens, cuda)]
    result = {**about(device_name(args.device)), "ranks": args.ranks}
    result |= {"messages": messages, "layers": layers}
    if args.requests:
        result["outputs_equal"] = outputs_equal(args.ranks, args.device, args.requests)
    if args.save:
        Path(args.save).write_text(json.dumps(result, indent=1) + "\n")
    return result


@torch.inference_mode()
def send(context, size: int, repeats: int) -> list[float]:
    """Seconds of all-to-alls in which each rank sends `size` bytes, evenly to the others."""
    wire = context.wire
    others = max(1, size // ROW_BYTES // (wire.size - 1))
    parts = [0 if rank == wire.rank else others for rank in range(wire.size)]
    rows = torch.zeros(sum(parts), ROW_BYTES, dtype=torch.uint8, device=context.device)
    times = []
    for _ in range(repeats):
        wire.barrier()
        start = time.perf_counter()
        wire.all_to_all(rows, parts, parts, "dispatch")
        if rows.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return times


def message_row(ranks: Ranks, size: int, repeats: int = 20) -> dict:
    """The slowest rank's median: a message has come when it has come everywhere."""
    seconds = max(statistics.median(times) for times in ranks.call(send, size, repeats))
    return {"bytes": size, "seconds": seconds, "bytes_per_second": size / seconds}


def layer_rows(ranks: Ranks, name: str, tokens: list[int], cuda: bool) -> list[dict]:
    """Steps of one expert layer by tokens per rank; the slowest rank's times."""
    shape = SHAPE if cuda else SMALL
    experts = SLICES[name] * ranks.size
    dtype = torch.bfloat16 if cuda else torch.float32
    ranks.call(layer.build, in_order(1, experts, ranks.size), dtype=dtype, **shape)
    rows = []
    for T in tokens:
        found = ranks.call(layer.run, tokens=T, repeats=20)
        times = {name: max(one[name] for one in found) for name in layer.FIELDS}
        sent = max(one["bytes"][0] for one in found)
        rows.append({"slice": name, "experts": experts, "tokens": T, **shape, **times})
        rows[-1] |= {"rows": max(one["rows"] for one in found), "sent": sent}
    return rows


def outputs_equal(ranks: int, device: str, requests: int) -> bool:
    """Greedy tokens of tiny-moe, float32, on these ranks and in one process."""
    from minimoe.bench.prompts import mixed_prompts
    from minimoe.engine.llm import LLM
    from minimoe.engine.params import SamplingParams

    prompts = mixed_prompts("tiny-moe", requests, 24)
    params = SamplingParams(max_tokens=32, temperature=0.0, ignore_eos=True)
    made = []
    for size in (1, ranks):
        llm = LLM("tiny-moe", device=device, expert_parallel_size=size)
        made.append([out.outputs[0].token_ids for out in llm.generate(prompts, params)])
        llm.close()
    return made[0] == made[1]


def render(result: dict) -> str:
    """Two tables."""
    lines = [
        f"{result['ranks']} ranks on {result['device']}",
        f"{'bytes':>12}{'us':>10}{'GB/s':>9}",
    ]
    for row in result["messages"]:
        rate = row["bytes_per_second"] / 1e9
        lines.append(f"{row['bytes']:12}{row['seconds'] * 1e6:10.1f}{rate:9.2f}")
    lines.append(
        f"{'slice':>6}{'tokens':>8}{'rows':>8}" + "".join(f"{n:>10}" for n in layer.FIELDS)
    )
    for row in result["layers"]:
        cells = "".join(f"{row[name] * 1e6:10.1f}" for name in layer.FIELDS)
        lines.append(f"{row['slice']:>6}{row['tokens']:8}{row['rows']:8}{cells}")
    if "outputs_equal" in result:
        lines.append(f"same tokens as one process: {result['outputs_equal']}")
    return "\n".join(lines)
