"""`python -m minimoe eval FILE...`: bits per byte of a model, beside gzip and xz on the same bytes.

A language model that predicts text well is a compressor that does well: with an arithmetic coder
behind it, token t costs -log2 p(t) bits. So both can be measured by the same yardstick.
"""

import gzip
import lzma
import math
import statistics
from collections.abc import Iterator
from pathlib import Path

from minimoe.errors import MinimoeError

OVERLAP = 512  # tokens that a window repeats from the one before, to have a context for the rest
BATCH_TOKENS = 4096  # in one forward pass


def add_arguments(parser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="text files in UTF-8")
    parser.add_argument("--model", default="tiny-moe", help="a shipped name or a checkpoint folder")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument(
        "--context", type=int, help="tokens in a window (default: all the model has)"
    )


def main(args) -> dict:
    """{"files": [{"file", "bytes", "tokens", "bits_per_byte", "gzip_...", "xz_..."}], "median"}."""
    texts = [read_text(Path(name)) for name in args.files]  # bad files show before the model loads
    model, tokenizer = _load(args.model, args.device)
    rows = []
    for name, text in zip(args.files, texts, strict=True):
        rows.append({"file": name} | measure(model, tokenizer, text, args.context))
    ratios = [row["bits_per_byte"] / row["xz_bits_per_byte"] for row in rows]
    return {"model": args.model, "files": rows, "median_ratio_to_xz": statistics.median(ratios)}


def render(result: dict) -> str:
    lines = [f"{'bits per byte':32}{'bytes':>10}{'model':>12}{'gzip':>8}{'xz':>8}{'/ xz':>8}"]
    for row in result["files"]:
        bits, xz = row["bits_per_byte"], row["xz_bits_per_byte"]
        lines.append(f"{row['file'][-32:]:32}{row['bytes']:>10,}{bits:>12.3f}"
                     f"{row['gzip_bits_per_byte']:>8.3f}{xz:>8.3f}{bits / xz:>8.2f}")  # fmt: skip
    return "\n".join([*lines, f"median ratio to xz: {result['median_ratio_to_xz']:.2f}"])


def read_text(path: Path) -> str:
    """The file's text, byte for byte. MinimoeError when it is missing, empty or not UTF-8."""
    if not path.is_file():
        raise MinimoeError(f"{path} is not a file: give the path of a text file")
    data = path.read_bytes()
    if not data:
        raise MinimoeError(f"{path} is empty: bits per byte need at least one byte")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MinimoeError(
            f"{path} is not UTF-8 text (byte {error.start}): convert it, or give another file"
        ) from None


def measure(model, tokenizer, text: str, context: int | None = None) -> dict:
    """Bits per byte of `text` under the model, gzip -9 and xz -9; sizes in bytes and tokens."""
    size = len(text.encode())
    ids = tokenizer.encode(text, bos=True, parse_special=False)
    return {
        "bytes": size,
        "tokens": len(ids) - 1,
        "bits_per_byte": total_bits(model, ids, context) / size,
        "gzip_bits_per_byte": 8 * len(gzip.compress(text.encode(), 9, mtime=0)) / size,
        "xz_bits_per_byte": 8 * len(lzma.compress(text.encode(), preset=9)) / size,
    }


def total_bits(model, ids: list[int], context: int | None = None) -> float:
    """-log2 of the probability of ids[1:], each token given what its window holds before it.

    Args:
        model: the textbook form, ids [B, S] to logits [B, S, V].
        ids: starts with `<|begin|>`.
        context: tokens in a window; None for as many as the model has positions.
    """
    import torch

    limit = model.config.max_position_embeddings
    context = limit if context is None else context
    if not 2 <= context <= limit:
        raise MinimoeError(f"context is {context}: it must be between 2 and the model's {limit}")
    size = min(context, len(ids) - 1)
    bits = 0.0
    with torch.inference_mode():
        for batch in _batches(list(windows(len(ids) - 1, size)), max(1, BATCH_TOKENS // size)):
            bits += _batch_bits(model, ids, batch, size)
    return bits


def windows(count: int, size: int) -> Iterator[tuple[int, int]]:
    """(start, first scored position in the window) so that each of `count` is scored once.

    >>> list(windows(10, 4))
    [(0, 0), (2, 2), (4, 2), (6, 2)]
    """
    overlap = min(OVERLAP, size // 2)
    start = scored = 0
    while scored < count:
        start = min(start, count - size)  # the last window reaches back rather than be short
        yield start, scored - start
        scored = start + size
        start = scored - overlap


def _batches(items: list, size: int) -> Iterator[list]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _batch_bits(model, ids: list[int], batch: list[tuple[int, int]], size: int) -> float:
    import torch
    import torch.nn.functional as F

    device = model.embed.weight.device
    rows = torch.tensor([ids[start : start + size + 1] for start, _ in batch], device=device)
    logits = model(rows[:, :-1]).float()  # [B, S, V]
    nats = F.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")  # [B, S]
    scored = (row[first:].sum() for row, (_, first) in zip(nats, batch, strict=True))
    return float(sum(scored)) / math.log(2)


def _load(name: str, device: str | None):
    import torch

    from minimoe.checkpoint import checkpoint_folder, load_checkpoint
    from minimoe.tokenizer import Tokenizer

    if device == "cuda" and not torch.cuda.is_available():
        raise MinimoeError("device 'cuda' is not here: this PyTorch sees no GPU, use --device cpu")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    folder = checkpoint_folder(name)
    return load_checkpoint(folder, torch.float32, device).eval(), Tokenizer(folder)
