"""`bench moe`: the expert layer beside this machine's measured roofs, and beside other layers."""

import json
from pathlib import Path

import torch

from minimoe.bench.expert_baselines import BASELINES, BATCHED_ROWS, CAPTURABLE, sorted_rows
from minimoe.bench.expert_shapes import SHAPES, ExpertShape, routed, sized, weight_sets
from minimoe.bench.timing import about, save, seconds_each
from minimoe.errors import MinimoeError
from minimoe.ops.grouped_experts import describe_path, experts_serve
from minimoe.perf.hardware import (
    DTYPES,
    Hardware,
    free_memory,
    from_dict,
    measure,
    usable_dtypes,
)
from minimoe.perf.roofline import Work, expert_activations, expert_layer, predict

TOKENS = {"tiny": [1, 4, 16, 64, 256, 1024, 4096], "cpu": [1, 8, 32, 128, 512, 4096]}
TOKENS_SLICE = [16, 32, 64, 128, 256, 512, 1024, 4096]  # per rank
DRIFTS = 0.3  # seconds of a run on a CPU: up to here it is timed in turn with the baselines


def add_arguments(parser) -> None:
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default=None, help="default: float32 on cpu, bfloat16 on cuda")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=None)
    parser.add_argument("--tokens", type=int, nargs="+", default=None, help="per rank")
    parser.add_argument("--baselines", action=_flag(), default=True, help="time other layers too")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--roofs", help="JSON file with roofs measured before, instead of now")
    parser.add_argument("--save", help="write the result to this file too")


def _flag():
    import argparse

    return argparse.BooleanOptionalAction


def main(args) -> dict:
    """Rows `shape, tokens, rows, seconds, flops, bytes, share_of_bandwidth, ...`."""
    device, dtype = check_device(args.device, args.dtype)
    if args.threads:
        torch.set_num_threads(args.threads)
    roofs = load_roofs(args.roofs, device)
    names = args.shapes or (["ep8", "ep64"] if device.startswith("cuda") else ["tiny", "cpu"])
    rows, notes = [], []
    for name in names:
        shape = sized(SHAPES[name], DTYPES[dtype].itemsize, device)
        if shape.note:
            notes.append(f"{name}: {shape.note}")
        rows += bench_shape(shape, args.tokens, dtype, device, roofs, args.baselines)
    result = {**about(device), "dtype": dtype, "roofs": roofs.to_dict()}
    result |= {"rows": rows, "notes": notes}
    save(result, args.save)
    return result


def check_device(device: str, dtype: str | None) -> tuple[str, str]:
    """The device and a dtype that it has, or a clear error."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise MinimoeError(f"device {device!r}: no CUDA GPU is visible; use --device cpu")
    usable = usable_dtypes(device)
    dtype = dtype or (usable[-1] if device.startswith("cuda") else "float32")
    if dtype not in usable:
        raise MinimoeError(f"dtype {dtype!r} is not usable on {device}: choose one of {usable}")
    return device, dtype


def load_roofs(path: str | None, device: str) -> Hardware:
    """Roofs from a file of an earlier run, or measured now."""
    if path is None:
        return measure(device)
    record = json.loads(Path(path).read_text())
    return from_dict(record.get("roofs", record))


def bench_shape(
    shape: ExpertShape, tokens, dtype: str, device: str, roofs: Hardware, baselines: bool = True
) -> list[dict]:
    """A row per number of tokens, each over the same weights."""
    weights = weight_sets(shape, DTYPES[dtype], device)
    tokens = tokens or TOKENS.get(shape.name, TOKENS_SLICE)
    out = []
    for T in tokens:
        ids = routed(shape, T, device)
        out.append({"shape": shape.name, "tokens": T})
        out[-1] |= bench_ids(shape, ids, weights, dtype, device, roofs, baselines)
        torch.cuda.empty_cache() if device.startswith("cuda") else None
    return out


@torch.inference_mode()
def bench_ids(shape, ids, weights, dtype, device, roofs, baselines=True) -> dict:
    """Time one routing `ids [T', K]` over sets of (gate_up, down)."""
    x = torch.randn(len(ids), shape.D, device=device).to(DTYPES[dtype])
    scale = torch.rand(ids.shape, device=device)
    live = ids[ids >= 0]
    counts = torch.bincount(live, minlength=shape.E)
    rows, hit = len(live), int((counts > 0).sum())
    extra = {"routed": rows} if device.startswith("cuda") and rows < ids.numel() else {}
    path = describe_path(ids.numel(), x, weights[0][0])
    extra = extra if path == "experts_triton" else {}
    serve = _triton if extra else experts_serve
    runs = [lambda w=w: serve(x, ids, scale, *w, **extra) for w in weights]
    seconds, timing = seconds_each(runs, device)
    others = time_baselines(x, ids, weights, device) if baselines else {}
    if not device.startswith("cuda") and seconds < DRIFTS:
        seconds = _in_turn(runs, x, ids, weights, device, seconds, others)
    itemsize = DTYPES[dtype].itemsize
    work = expert_layer(rows, hit, shape.D, shape.F, itemsize)
    rest = expert_activations(rows, shape.D, shape.F, itemsize)
    moved = Work(work.flops, work.bytes + rest)
    row = {
        "rows": rows,
        "experts_hit": hit,
        "most_rows": int(counts.max()),
        "path": path,
        "timing": timing,
        "seconds": seconds,
        "flops": work.flops,
        "bytes": work.bytes,
        "activation_bytes": rest,
        "predicted_seconds": predict(moved, roofs.read, roofs.matmul[dtype]),
        "share_of_bandwidth": work.bytes / seconds / roofs.copy,
        "share_of_read": work.bytes / seconds / roofs.read,
        "share_of_matmul": work.flops / seconds / roofs.matmul[dtype],
    }
    if baselines:
        row["baselines"] = others
        times = [t for t in others.values() if isinstance(t, float)]
        row["speedup"] = min(times) / seconds if times else None
    return row


def _triton(*args, **kwargs):
    from minimoe.ops.grouped_experts_triton import experts_triton

    return experts_triton(*args, **kwargs)


def _in_turn(runs, x, ids, weights, device: str, seconds: float, others: dict) -> float:
    """Time ours and the baselines near it four times more, in turn, since a CPU's speed drifts over
    seconds by more than they differ. Changes `others`; gives our best."""
    near = {name for name, t in others.items() if isinstance(t, float) and t < 1.3 * seconds}
    for _ in range(4 if near else 0):
        seconds = min(seconds, seconds_each(runs, device, budget=0.1)[0])
        for name, again in time_baselines(x, ids, weights, device, near).items():
            others[name] = min(others[name], again)
    return seconds


def time_baselines(x, ids, weights, device: str, names=BASELINES) -> dict:
    """Seconds per baseline, or the reason why it does not run here."""
    rows, chosen, ends = sorted_rows(x, ids, weights[0][0].shape[0])
    expert = sum(w[0].nbytes for w in weights[0])
    most = min(BATCHED_ROWS * expert, free_memory(device) // 4)
    out = {}
    for name, make in ((name, BASELINES[name]) for name in names):
        if name.endswith("batched_mm") and len(rows) * expert > most:
            out[name] = "copies a weight per row: too large here"
            continue
        try:
            runs = [make(rows, chosen, ends, *w) for w in weights]
            out[name] = seconds_each(runs, device, name in CAPTURABLE, budget=0.1)[0]
        except (RuntimeError, ImportError, StopIteration, NotImplementedError) as error:
            out[name] = f"does not run: {str(error).splitlines()[0][:100]}"
    return out


def render(result: dict) -> str:
    """A table, one line a row."""
    roofs = result["roofs"]
    lines = [
        f"{roofs['name']}: read {roofs['read'] / 1e9:.0f} GB/s, "
        f"copy {roofs['copy'] / 1e9:.0f} GB/s, {result['dtype']} products "
        f"{roofs['matmul'][result['dtype']] / 1e12:.2f} TFLOP/s",
        *result["notes"],
        f"{'shape':>11} {'tokens':>6} {'rows':>6} {'hit':>4} {'us':>9} {'copy bw':>8} {'matmul':>7}"
        f" {'predicted':>9} {'best other':>10}  path",
    ]
    for row in result["rows"]:
        speedup = f"{row['speedup']:.2f}x" if row.get("speedup") else "-"
        lines.append(
            f"{row['shape']:>11} {row['tokens']:6} {row['rows']:6} {row['experts_hit']:4}"
            f" {row['seconds'] * 1e6:9.1f} {row['share_of_bandwidth']:8.0%}"
            f" {row['share_of_matmul']:7.0%} {row['predicted_seconds'] * 1e6:9.1f}"
            f" {speedup:>10}  {row['path']}"
        )
    return "\n".join(lines)
