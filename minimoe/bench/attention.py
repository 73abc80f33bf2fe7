"""`bench attention`: MLA decode attention over the paged cache beside this machine's roofs."""

from dataclasses import dataclass, replace

import torch

from minimoe.bench.moe import check_device, load_roofs
from minimoe.bench.timing import about, save, seconds_each
from minimoe.errors import MinimoeError
from minimoe.ops.mla_attention import decode_gathered, decode_path
from minimoe.perf.hardware import DTYPES, Hardware, free_memory
from minimoe.perf.roofline import attention_decode, predict


@dataclass(frozen=True)
class AttentionShape:
    """B requests of S cached positions each; ragged: of very different lengths, the same in all."""

    name: str
    B: int
    H: int
    C: int
    R: int
    contexts: tuple[int, ...]
    page: int = 16
    ragged: bool = False

    def cache_bytes(self, S: int, itemsize: int) -> int:
        """Bytes of the whole cache at S positions a request: B x S x (C + R) elements."""
        return self.B * S * (self.C + self.R) * itemsize


LONG = (8192, 32768, 131072)
SHAPES = {
    "tiny": AttentionShape("tiny", B=32, H=6, C=64, R=16, contexts=(128, 512, 2048)),
    "mla16": AttentionShape("mla16", B=64, H=16, C=512, R=64, contexts=LONG),
    "mla64": AttentionShape("mla64", B=64, H=64, C=512, R=64, contexts=LONG),
    "cpu": AttentionShape("cpu", B=16, H=16, C=512, R=64, contexts=(1024, 8192)),
}
for _name in ("mla16", "mla64", "tiny"):
    SHAPES[f"{_name}-ragged"] = replace(SHAPES[_name], name=f"{_name}-ragged", ragged=True)
for _name in ("mla16", "mla64"):
    SHAPES[f"{_name}-page64"] = replace(SHAPES[_name], name=f"{_name}-page64", page=64)
DEFAULT = {"cpu": ["tiny", "tiny-ragged", "cpu"], "cuda": [n for n in SHAPES if "mla" in n]}


def add_arguments(parser) -> None:
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default=None, help="default: float32 on cpu, bfloat16 on cuda")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=None)
    parser.add_argument("--contexts", type=int, nargs="+", default=None, help="cached positions")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--roofs", help="JSON file with roofs measured before, instead of now")
    parser.add_argument("--save", help="write the result to this file too")


def main(args) -> dict:
    """Rows `shape, requests, contexts, seconds, flops, bytes, share_of_bandwidth, ...`."""
    device, dtype = check_device(args.device, args.dtype)
    if args.threads:
        torch.set_num_threads(args.threads)
    roofs = load_roofs(args.roofs, device)
    names = args.shapes or DEFAULT["cuda" if device.startswith("cuda") else "cpu"]
    rows, notes = [], []
    for name in names:
        for S in args.contexts or SHAPES[name].contexts:
            try:
                rows.append(bench_shape(SHAPES[name], S, dtype, device, roofs))
            except MinimoeError as error:
                notes.append(str(error))
    result = {**about(device), "dtype": dtype, "roofs": roofs.to_dict()}
    result |= {"rows": rows, "notes": notes}
    save(result, args.save)
    return result


def lengths_of(shape: AttentionShape, S: int) -> list[int]:
    """Equal lengths, or lengths from S / 8 up that sum to (almost) the same B * S: a few requests
    hold much of it, as in serving."""
    if not shape.ragged:
        return [S] * shape.B
    weight = [(i + 1) ** 2 for i in range(shape.B)]
    spare = shape.B * S - shape.B * (S // 8)
    lengths = [S // 8 + spare * w // sum(weight) for w in weight]
    order = torch.randperm(shape.B, generator=torch.Generator().manual_seed(0)).tolist()
    return [lengths[i] for i in order]


def paged_cache(lengths: list[int], page: int, width: int, dtype, device: str):
    """Random pages `[blocks, page, width]` in no order, and `block_table [B, M]`, `lengths [B]`."""
    per_request = [-(-n // page) for n in lengths]
    blocks = sum(per_request)
    pages = torch.empty(blocks, page, width, dtype=dtype, device=device).normal_()
    order = torch.randperm(blocks, device=device, dtype=torch.int32)
    table = torch.zeros(len(lengths), max(per_request), dtype=torch.int32, device=device)
    start = 0
    for row, count in zip(table, per_request, strict=True):
        row[:count] = order[start : start + count]
        start += count
    return pages, table, torch.tensor(lengths, dtype=torch.int32, device=device)


def _check_memory(shape: AttentionShape, S: int, itemsize: int, device: str) -> None:
    needed, free = shape.cache_bytes(S, itemsize), free_memory(device)
    if needed > 0.8 * free:
        raise MinimoeError(
            f"{shape.name} at {S} positions left out: its cache needs {needed / 2**30:.1f} GiB, "
            f"free are {free / 2**30:.1f}; choose fewer with --contexts"
        )


@torch.inference_mode()
def bench_shape(shape: AttentionShape, S: int, dtype: str, device: str, roofs: Hardware) -> dict:
    """One row: our path and the plain one over the same cache."""
    itemsize = DTYPES[dtype].itemsize
    _check_memory(shape, S, itemsize, device)
    lengths = lengths_of(shape, S)
    width = shape.C + shape.R
    pages, table, on_device = paged_cache(lengths, shape.page, width, DTYPES[dtype], device)
    q = torch.randn(shape.B, shape.H, width, device=device).mul_(width**-0.5).to(DTYPES[dtype])
    run, path = decode_path(q, pages, shape.C)
    longest = max(lengths)
    seconds, timing = seconds_each(
        [lambda: run(q, pages, table, on_device, longest, shape.C)], device
    )
    work = attention_decode(sum(lengths), shape.H, shape.C, shape.R, itemsize)
    row = {
        "shape": shape.name,
        "requests": shape.B,
        "heads": shape.H,
        "page": shape.page,
        "context": S,
        "contexts": sum(lengths),
        "longest": longest,
        "path": path,
        "timing": timing,
        "seconds": seconds,
        "flops": work.flops,
        "bytes": work.bytes,
        "predicted_seconds": predict(work, roofs.read, roofs.matmul[dtype]),
        "share_of_bandwidth": work.bytes / seconds / roofs.copy,
        "share_of_matmul": work.flops / seconds / roofs.matmul[dtype],
    }
    row["baselines"] = {
        "plain PyTorch": _time_decode_gathered(q, pages, table, on_device, longest, shape.C)
    }
    times = [t for t in row["baselines"].values() if isinstance(t, float)]
    row["speedup"] = min(times) / seconds if times else None
    return row


def _time_decode_gathered(q, pages, table, lengths, longest, latent):
    try:
        runs = [lambda: decode_gathered(q, pages, table, lengths, longest, latent)]
        return seconds_each(runs, str(q.device), graph=False)[0]
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return "does not fit: the padded copy of the cache is too large"


def render(result: dict) -> str:
    """A table, one line a row."""
    roofs, dtype = result["roofs"], result["dtype"]
    lines = [
        f"{roofs['name']}: copy {roofs['copy'] / 1e9:.0f} GB/s, {dtype} products "
        f"{roofs['matmul'][dtype] / 1e12:.2f} TFLOP/s",
        *result["notes"],
        f"{'shape':>13} {'context':>8} {'us':>9} {'copy bw':>8} {'matmul':>7} {'plain':>8}  path",
    ]
    for row in result["rows"]:
        speedup = f"{row['speedup']:.2f}x" if row["speedup"] else "-"
        lines.append(
            f"{row['shape']:>13} {row['context']:8} {row['seconds'] * 1e6:9.1f}"
            f" {row['share_of_bandwidth']:8.0%} {row['share_of_matmul']:7.0%} {speedup:>8}"
            f"  {row['path']}"
        )
    return "\n".join(lines)
