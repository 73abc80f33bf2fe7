"""MLA decode attention on CUDA: absorbed queries over the paged latent cache, in Triton.

The job of FlashMLA: many requests of very different lengths, one new token each. A request's cached
positions are cut into parts of a fixed size, so that its result does not depend on which other
requests share the step (a fixed number of parts would). The parts of all requests form one list
that a fixed number of programs share, worked out on the device from `lengths`: a CUDA graph can
capture it. Each part gives a softmax over its own positions; a second kernel joins the parts in
order. Online softmax: arXiv 1805.02867; splitting the positions: Flash-Decoding.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True)
class Tile:
    """`part` positions are one piece of work, walked `keys` at a time for `heads` heads."""

    heads: int
    keys: int
    part: int
    warps: int
    stages: int
    per_processor: int  # programs that run side by side on one multiprocessor


# Chosen by a sweep on an H200 at C = 512, R = 64. More heads are taken 16 at a time, except on
# Hopper, where one program can hold 64 of them (the kernel in `mla_attention_hopper.py`).
TILE = Tile(16, 32, 1024, 4, 3, 2)
FLOAT32 = Tile(16, 32, 1024, 4, 1, 2)
WIDE = Tile(64, 64, 1024, 8, 2, 1)


@triton.jit
def _part_lists(lengths, B, PART: tl.constexpr, B2: tl.constexpr):
    """Length of each request, size of its parts, and their number, `[B2]`. The size depends on the
    request's own length alone."""
    b = tl.arange(0, B2)
    length = tl.load(lengths + b, mask=b < B, other=0).to(tl.int32)
    size = tl.where(length >= 32 * PART, 2 * PART, PART)
    return length, size, tl.cdiv(length, size)


@triton.jit
def _attend_parts(
    q, pages, table, lengths, counter, partial, lse, scale, B, H, M, q_stride,
    C: tl.constexpr, R: tl.constexpr, PAGE: tl.constexpr, PART: tl.constexpr, B2: tl.constexpr,
    BH: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    W: tl.constexpr = C + R
    c = tl.arange(0, C)
    r = tl.arange(0, R)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    b = tl.arange(0, B2)
    length, size, parts = _part_lists(lengths, B, PART, B2)
    item = tl.program_id(0)
    while item < tl.sum(parts):
        # Whoever is done first takes the next part: parts differ in length. Asked for early.
        upcoming = tl.atomic_add(counter + tl.program_id(1), 1) + tl.num_programs(0)
        request = tl.sum((tl.cumsum(parts, 0) <= item).to(tl.int32))
        part = item - tl.sum(tl.where(b < request, parts, 0))
        span = tl.sum(tl.where(b == request, size, 0))
        begin = part * span
        end = tl.minimum(tl.sum(tl.where(b == request, length, 0)), begin + span)
        q_rows = q + request.to(tl.int64) * q_stride + h[:, None] * W
        qc = tl.load(q_rows + c[None, :], mask=(h < H)[:, None], other=0.0)  # [BH, C]
        qr = tl.load(q_rows + C + r[None, :], mask=(h < H)[:, None], other=0.0)  # [BH, R]
        top = tl.full((BH,), float("-inf"), tl.float32)
        mass = tl.zeros((BH,), tl.float32)
        acc = tl.zeros((BH, C), tl.float32)
        s = begin + tl.arange(0, BN)
        page = tl.load(table + request * M + s // PAGE, mask=s < end, other=0)
        for s0 in range(begin, end, BN):
            s = s0 + tl.arange(0, BN)
            row = pages + (page.to(tl.int64) * PAGE + s % PAGE)[:, None] * W
            kc = tl.load(row + c[None, :], mask=(s < end)[:, None], other=0.0)  # [BN, C]
            kr = tl.load(row + C + r[None, :], mask=(s < end)[:, None], other=0.0)  # [BN, R]
            score = tl.dot(qc, tl.trans(kc), input_precision=PRECISION)  # [BH, BN]
            score = tl.dot(qr, tl.trans(kr), score, input_precision=PRECISION)
            score = tl.where((s < end)[None, :], score * scale, float("-inf"))
            new_top = tl.maximum(top, tl.max(score, 1))
            share = tl.exp2(score - new_top[:, None])
            fade = tl.exp2(top - new_top)
            mass = mass * fade + tl.sum(share, 1)
            acc = acc * fade[:, None]
            acc = tl.dot(share.to(kc.dtype), kc, acc, input_precision=PRECISION)
            top = new_top
            # Look the next pages up now, so that no load of rows waits for its page number.
            ahead = s0 + BN + tl.arange(0, BN)
            page = tl.load(table + request * M + ahead // PAGE, mask=ahead < end, other=0)
        place = h.to(tl.int64) + item * H
        to = partial + place[:, None] * C + c[None, :]
        tl.store(to, acc / mass[:, None], mask=(h < H)[:, None])
        tl.store(lse + place, top + tl.log2(mass), mask=h < H)
        item = upcoming


@triton.jit
def _join_parts(
    partial, lse, lengths, out, B, H, C: tl.constexpr, PART: tl.constexpr, B2: tl.constexpr
):
    """One request and head: its parts, weighted by their softmax mass, in order."""
    request = tl.program_id(0)
    h = tl.program_id(1)
    b = tl.arange(0, B2)
    c = tl.arange(0, C)
    _, _, parts = _part_lists(lengths, B, PART, B2)
    first = tl.sum(tl.where(b < request, parts, 0))
    count = tl.sum(tl.where(b == request, parts, 0))
    p = tl.arange(0, 8)  # parts at a time
    top = float("-inf")
    for p0 in range(0, count, 8):
        place = (first + p0 + p) * H + h
        top = tl.maximum(
            top, tl.max(tl.load(lse + place, mask=p0 + p < count, other=-float("inf")))
        )
    mass = 0.0
    acc = tl.zeros((C,), tl.float32)
    for p0 in range(0, count, 8):
        place = (first + p0 + p) * H + h.to(tl.int64)
        live = p0 + p < count
        weight = tl.exp2(tl.load(lse + place, mask=live, other=-float("inf")) - top)  # [8]
        rows = tl.load(partial + place[:, None] * C + c[None, :], mask=live[:, None], other=0.0)
        acc += tl.sum(rows * weight[:, None], 0)
        mass += tl.sum(weight)
    acc = tl.where(count > 0, acc / mass, 0.0)
    to = out + (request.to(tl.int64) * H + h) * C + c
    tl.store(to, acc.to(out.dtype.element_ty))


def unsupported(q: torch.Tensor, pages: torch.Tensor, latent: int) -> str | None:
    """Why this path cannot run here, as a short reason; None when it can."""
    if not q.is_cuda:
        return "not on CUDA"
    if torch.cuda.get_device_capability(q.device) < (8, 0):
        return "the GPU is older than compute capability 8.0"
    if q.dtype not in (torch.bfloat16, torch.float16, torch.float32) or q.dtype != pages.dtype:
        return f"dtypes {q.dtype} and {pages.dtype}"
    widths = (latent, pages.shape[2] - latent)
    if any(width < 16 or width & (width - 1) for width in widths):
        return f"latent and rotary widths {widths} are not powers of two of at least 16"
    if q.element_size() == 4 and pages.shape[2] > 160:
        return "float32 rows of more than 160 values do not fit in shared memory"
    return None


def mla_decode_triton(
    q, pages, block_table, lengths, scale: float, latent: int, tile: Tile | None = None
) -> torch.Tensor:
    """`[B, H, C]` from absorbed queries `q [B, H, C + R]` over `pages [blocks, block_size, C + R]`.

    Request b sees its first `lengths[b]` cached positions, which lie in the pages that
    `block_table [B, M]` names; values are the first `latent` = C of a row. A request of length 0
    gives zeros. Softmax and sums are in float32.
    """
    B, H, W = q.shape
    page = pages.shape[1]
    tile = tile or _tile(q, latent)
    if q.stride()[1:] != (W, 1):
        q = q.contiguous()
    block_table, lengths = block_table.contiguous(), lengths.contiguous()
    items = B * triton.cdiv(block_table.shape[1] * page, tile.part)  # at most
    partial = torch.empty(items, H, latent, dtype=torch.float32, device=q.device)
    lse = torch.empty(items, H, dtype=torch.float32, device=q.device)
    out = q.new_empty(B, H, latent)
    B2 = triton.next_power_of_2(B)
    programs = min(items, _processors(q.device) * tile.per_processor)
    groups = triton.cdiv(H, tile.heads)
    counter = torch.zeros(groups, dtype=torch.int32, device=q.device)
    arguments = (
        q, pages, block_table, lengths, counter, partial, lse, scale * 1.4426950408889634,
        B, H, block_table.shape[1], q.stride(0), latent, W - latent, page, tile.part, B2,
    )  # fmt: skip
    if tile is WIDE:
        from minimoe.ops.mla_attention_hopper import KEYS, WARPS, attend_wide

        attend_wide[(programs,)](*arguments, WIDE.heads, KEYS, num_warps=WARPS)
    else:
        precision = "ieee" if q.element_size() == 4 else "tf32"
        _attend_parts[(programs, groups)](
            *arguments, tile.heads, tile.keys, precision,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
    _join_parts[(B, H)](partial, lse, lengths, out, B, H, latent, tile.part, B2, num_warps=4)
    return out


def decode_triton(q, pages, block_table, lengths, longest: int, latent: int) -> torch.Tensor:
    """As `decode_path` wants it: queries come scaled, and the longest length is not needed."""
    return mla_decode_triton(q, pages, block_table, lengths, 1.0, latent)


def _tile(q: torch.Tensor, latent: int) -> Tile:
    if q.element_size() == 4:
        return FLOAT32
    hopper = q.is_cuda and torch.cuda.get_device_capability(q.device)[0] == 9
    wide = TILE.heads < q.shape[1] <= WIDE.heads and (latent, q.shape[2]) == (512, 576)
    return WIDE if hopper and wide else TILE


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # Triton's interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count
