"""MLA decode attention on CUDA: absorbed queries over the paged latent cache, in Triton.

The job of FlashMLA: many requests of very different lengths, one new token each. A request's cached
positions are cut into parts whose size depends on its own length alone, so that its result does not
depend on which other requests share the step. A first kernel lists the parts of all requests, the
longest first, so that the programs that share them finish together; a last one joins the parts of
each request in order. All of it is worked out on the device from `lengths`: a CUDA graph can
capture it. Online softmax: arXiv 1805.02867; splitting the positions: Flash-Decoding.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from minimoe.ops.sort_rows_triton import chain, early_launch


@dataclass(frozen=True)
class Tile:
    """`part` positions are one piece of work, walked `keys` at a time for `heads` heads."""

    heads: int
    keys: int
    part: int
    warps: int
    stages: int
    per_processor: int  # programs that run side by side on one multiprocessor
    wide: bool = False  # the Gluon kernel, whose keys, warps and stages are its own


# Chosen by a sweep on an H200 at C = 512, R = 64. More heads are taken 16 at a time, except on
# Hopper, where one program can hold 64 of them (the kernel in `mla_attention_hopper.py`).
TILE = Tile(16, 32, 1024, 4, 3, 2)
FLOAT32 = Tile(16, 32, 1024, 4, 1, 2)
WIDE = Tile(64, 64, 1024, 4, 2, 1, wide=True)
LOG2_E = 1.4426950408889634  # softmax in powers of two: exp2 is an instruction


@triton.jit
def _list_parts(
    lengths, parts, spans, counter, B, G,
    PART: tl.constexpr, B2: tl.constexpr, G2: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program `me` lists the parts of that request: `parts [4 + 4 * item...]` = request, first
    position, end, slot of the result. Items are in order of falling length, slots in order of
    requests. Also `parts [0]`, the number of all, and `spans [B, 2]`, a request's first slot and
    number of slots."""
    chain(EARLY)
    me = tl.program_id(0)
    b = tl.arange(0, B2)
    length = tl.load(lengths + b, mask=b < B, other=0).to(tl.int32)
    size = tl.where(length >= 32 * PART, 2 * PART, PART)
    whole, rest = length // size, length % size
    count = whole + (rest > 0).to(tl.int32)
    my_size, my_whole = tl.sum(tl.where(b == me, size, 0)), tl.sum(tl.where(b == me, whole, 0))
    my_rest = tl.sum(tl.where(b == me, rest, 0))
    first = tl.sum(tl.where(b < me, count, 0))
    tl.store(spans + 2 * me, first)
    tl.store(spans + 2 * me + 1, my_whole + (my_rest > 0).to(tl.int32))
    if me == 0:
        tl.store(parts, tl.sum(count))
        g = tl.arange(0, G2)
        tl.store(counter + g, tl.zeros((G2,), tl.int32), mask=g < G)
    longer = tl.where((size > my_size) | ((size == my_size) & (b < me)), whole, 0)
    item = tl.sum(longer + (rest > my_size).to(tl.int32))
    for i in range(0, my_whole):
        entry = parts + 4 + 4 * (item + i)
        _store_part(entry, me, i * my_size, (i + 1) * my_size, first + i)
    if my_rest > 0:
        longer = tl.where(size >= my_rest, whole, 0)
        longer += ((rest > my_rest) | ((rest == my_rest) & (b < me))).to(tl.int32)
        begin = my_whole * my_size
        entry = parts + 4 + 4 * tl.sum(longer)
        _store_part(entry, me, begin, begin + my_rest, first + my_whole)


@triton.jit
def _store_part(entry, request, begin, end, slot):
    tl.store(entry, request)
    tl.store(entry + 1, begin)
    tl.store(entry + 2, end)
    tl.store(entry + 3, slot)


@triton.jit
def _attend_parts(
    q, pages, table, parts, counter, partial, lse, scale, H, M, q_stride,
    C: tl.constexpr, R: tl.constexpr, PAGE: tl.constexpr, BH: tl.constexpr, BN: tl.constexpr,
    PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    chain(EARLY)
    W: tl.constexpr = C + R
    c = tl.arange(0, C)
    r = tl.arange(0, R)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    count = tl.load(parts)
    item = tl.program_id(0)
    while item < count:
        # Whoever is done first takes the next part: parts differ in length. Asked for early.
        upcoming = tl.atomic_add(counter + tl.program_id(1), 1) + tl.num_programs(0)
        entry = parts + 4 + 4 * item
        request, begin = tl.load(entry), tl.load(entry + 1)
        end, slot = tl.load(entry + 2), tl.load(entry + 3)
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
        place = h.to(tl.int64) + slot * H
        to = partial + place[:, None] * C + c[None, :]
        tl.store(to, acc / mass[:, None], mask=(h < H)[:, None])
        tl.store(lse + place, top + tl.log2(mass), mask=h < H)
        item = upcoming


@triton.jit
def _join_parts(partial, lse, spans, out, H, C: tl.constexpr, EARLY: tl.constexpr):
    """One request and head: its parts, weighted by their softmax mass, in order."""
    chain(EARLY)
    request = tl.program_id(0)
    h = tl.program_id(1)
    c = tl.arange(0, C)
    first, count = tl.load(spans + 2 * request), tl.load(spans + 2 * request + 1)
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


def _empty(like: torch.Tensor, dtype: torch.dtype, *sizes: tuple) -> list[torch.Tensor]:
    return [torch.empty(size, dtype=dtype, device=like.device) for size in sizes]


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
    tile = tile or _tile(q, pages, latent)
    q = q if q.stride()[1:] == (W, 1) else q.contiguous()
    block_table, lengths = block_table.contiguous(), lengths.contiguous()
    items = B * triton.cdiv(block_table.shape[1] * page, tile.part)  # at most
    groups = triton.cdiv(H, tile.heads)
    early = early_launch(q.device)
    parts, spans, counter = _empty(q, torch.int32, (4 + 4 * items,), (B, 2), (groups,))
    partial, lse = _empty(q, torch.float32, (items, H, latent), (items, H))
    powers = triton.next_power_of_2(B), triton.next_power_of_2(groups)
    _list_parts[(B,)](
        lengths, parts, spans, counter, B, groups, tile.part, *powers, early,
        num_warps=1, launch_pdl=early,
    )  # fmt: skip
    programs = min(items, _processors(q.device) * tile.per_processor)
    if tile.wide:
        from minimoe.ops.mla_attention_hopper import attend_wide

        attend_wide(programs, q, pages, block_table, parts, partial, lse, scale * LOG2_E, early)
    else:
        precision = "ieee" if q.element_size() == 4 else "tf32"
        _attend_parts[(programs, groups)](
            q, pages, block_table, parts, counter, partial, lse, scale * LOG2_E,
            H, block_table.shape[1], q.stride(0), latent, W - latent, page,
            tile.heads, tile.keys, precision, early,
            num_warps=tile.warps, num_stages=tile.stages, launch_pdl=early,
        )  # fmt: skip
    out = q.new_empty(B, H, latent)
    _join_parts[(B, H)](partial, lse, spans, out, H, latent, early, num_warps=4, launch_pdl=early)
    return out


def decode_triton(q, pages, block_table, lengths, longest: int, latent: int) -> torch.Tensor:
    """As `decode_path` wants it: queries come scaled, and the longest length is not needed."""
    return mla_decode_triton(q, pages, block_table, lengths, 1.0, latent)


def _tile(q: torch.Tensor, pages: torch.Tensor, latent: int) -> Tile:
    if q.element_size() == 4:
        return FLOAT32
    hopper = q.is_cuda and torch.cuda.get_device_capability(q.device)[0] == 9
    shape = (latent, q.shape[2]) == (512, 576) and pages.shape[1] % 16 == 0
    return WIDE if hopper and shape and TILE.heads < q.shape[1] <= WIDE.heads else TILE


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # Triton's interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count
