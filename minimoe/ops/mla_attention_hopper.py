"""MLA decode attention for many heads on Hopper GPUs, in Gluon: Triton with explicit memory.

With 64 heads a cached row feeds 121 operations a byte, so both the copies and the matrix units must
be kept busy. One warp asks the copy engine for pages, a tile ahead. Two groups of four warps each
compute all scores of a tile and one half of its values: the scores twice, but then neither group
waits for the other, and one's softmax runs beside the other's products. Same parts, same work list,
same result format as the general kernel in `mla_attention_triton.py`.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

HEADS = 64  # rows of one matrix instruction
KEYS = 64
SHARED = gl.NVMMASharedLayout(128, 16, 2)  # panels of 64 columns, 128 bytes
CLEAR: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))


@gluon.jit
def _item(turn):
    """Items come longest first. Every other turn goes through the programs backwards, so that who
    had a longer part gets a shorter one next."""
    me, programs = gl.program_id(0), gl.num_programs(0)
    return turn * programs + gl.where(turn % 2 == 0, me, programs - 1 - me)


@gluon.jit
def _fetch(qc_from, qr_from, pages, table, parts, shared, H, M, PAGE: gl.constexpr):
    """The warp that starts copies: a part's queries, then its rows, tile by tile."""
    kc, kr, qc, qr, full, empty, q_full, q_empty = shared
    KEYS: gl.constexpr = kr.shape[1]
    rows: gl.constexpr = pages.block_type.shape[0]  # of one copy, all within a page
    wide: gl.constexpr = kc.shape[2] // 64  # panels of one half of the latent
    pieces: gl.constexpr = KEYS // rows
    layout: gl.constexpr = kc.layout
    kc_panels = kc._reinterpret(kc.dtype, [4 * wide * pieces, rows, 64], layout)
    kr_panels = kr._reinterpret(kr.dtype, [2 * pieces, rows, 64], layout)
    count = gl.load(parts)
    item = _item(0)
    turn = 0
    step = 0
    while item < count:
        request = gl.load(parts + 4 + 4 * item)
        begin = gl.load(parts + 5 + 4 * item)
        end = gl.load(parts + 6 + 4 * item)
        mbarrier.wait(q_empty, (turn + 1) & 1)
        mbarrier.expect(q_full, qr.shape[0] * (2 * kc.shape[2] + 64) * 2)
        for half in gl.static_range(2):
            tma.async_copy_global_to_shared(
                qc_from, [request * H, half * kc.shape[2]], q_full, qc.index(half)
            )
        tma.async_copy_global_to_shared(qr_from, [request * H, 2 * kc.shape[2]], q_full, qr)
        for s0 in range(begin, end, KEYS):
            now = step % 2
            here = full.index(now)
            mbarrier.wait(empty.index(now), (step // 2 + 1) & 1)
            mbarrier.expect(here, KEYS * (2 * kc.shape[2] + 64) * 2)
            for i in gl.static_range(pieces):
                s = s0 + i * rows
                page = gl.load(table + request * M + s // PAGE, mask=s < end, other=0)
                row = page.to(gl.int32) * PAGE + s % PAGE
                for panel in gl.static_range(2 * wide):
                    to = kc_panels.index((now * 2 * wide + panel) * pieces + i)
                    tma.async_copy_global_to_shared(pages, [row, 64 * panel], here, to)
                to = kr_panels.index(now * pieces + i)
                tma.async_copy_global_to_shared(pages, [row, 128 * wide], here, to)
            step += 1
        turn += 1
        item = _item(turn)


@gluon.jit
def _attend(parts, shared, partial, lse, scale, H, half):
    """Four warps: all scores, and the values of one half of the latent."""
    kc, kr, qc, qr, full, empty, q_full, q_empty = shared
    HEADS: gl.constexpr = qr.shape[0]
    KEYS: gl.constexpr = kr.shape[1]
    WIDTH: gl.constexpr = kc.shape[2]
    scores: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    values: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    j = gl.arange(0, KEYS, gl.SliceLayout(0, scores))
    zero = gl.zeros([HEADS, KEYS], gl.float32, scores)
    count = gl.load(parts)
    item = _item(0)
    turn = 0
    step = 0
    while item < count:
        begin = gl.load(parts + 5 + 4 * item)
        end = gl.load(parts + 6 + 4 * item)
        slot = gl.load(parts + 7 + 4 * item)
        acc = gl.zeros([HEADS, WIDTH], gl.float32, values)
        top = gl.full([HEADS], float("-inf"), gl.float32, gl.SliceLayout(1, scores))
        mass = gl.zeros([HEADS], gl.float32, gl.SliceLayout(1, scores))
        mbarrier.wait(q_full, turn & 1)
        for s0 in range(begin, end, KEYS):
            now = step % 2
            mbarrier.wait(full.index(now), (step // 2) & 1)
            score = hopper.warpgroup_mma(
                qc.index(0), kc.index(2 * now).permute((1, 0)), zero, use_acc=False, is_async=True
            )
            score = hopper.warpgroup_mma(
                qc.index(1), kc.index(2 * now + 1).permute((1, 0)), score, is_async=True
            )
            score = hopper.warpgroup_mma(qr, kr.index(now).permute((1, 0)), score, is_async=True)
            score = hopper.warpgroup_mma_wait(0, deps=[score])
            if s0 + KEYS > end:  # rows past the end may hold anything, NaN too
                score = gl.where((s0 + j < end)[None, :], score, float("-inf"))
                _clear_rows(kc.index(2 * now + half), end - s0)
            new_top = gl.maximum(top, gl.max(score, 1) * scale)
            share = gl.exp2(score * scale - new_top[:, None])
            fade = gl.exp2(top - new_top)
            mass = mass * fade + gl.sum(share, 1)
            top = new_top
            acc = acc * gl.convert_layout(fade, gl.SliceLayout(1, values))[:, None]
            weights = gl.convert_layout(share.to(kc.dtype), gl.DotOperandLayout(0, values, 2))
            acc = hopper.warpgroup_mma(weights, kc.index(2 * now + half), acc)
            mbarrier.arrive(empty.index(now))
            step += 1
        mbarrier.arrive(q_empty)
        h = gl.arange(0, HEADS, gl.SliceLayout(1, values))
        column = half * WIDTH + gl.arange(0, WIDTH, gl.SliceLayout(0, values))
        share_of = gl.convert_layout(1.0 / mass, gl.SliceLayout(1, values))
        to = partial + (slot * H + h).to(gl.int64)[:, None] * (2 * WIDTH) + column[None, :]
        gl.store(to, acc * share_of[:, None], mask=(h < H)[:, None])
        if half == 0:
            h_s = gl.arange(0, HEADS, gl.SliceLayout(1, scores))
            gl.store(lse + slot * H + h_s, top + gl.log2(mass), mask=h_s < H)
        turn += 1
        item = _item(turn)


@gluon.jit
def _clear_rows(v, live):
    """Zero the rows from `live` on: their weights are zero, but zero times NaN is NaN."""
    for i in gl.static_range(v.shape[1] // 64):
        panel = v.slice(64 * i, 64, 1)
        row = gl.arange(0, v.shape[0], gl.SliceLayout(1, CLEAR))
        panel.store(gl.where((row < live)[:, None], panel.load(CLEAR), 0.0))
    hopper.fence_async_shared()
    gl.thread_barrier()


@gluon.jit
def _attend_wide(
    qc_from, qr_from, pages, table, parts, partial, lse, scale, H, M,
    PAGE: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    HEADS: gl.constexpr = qc_from.block_type.shape[0]
    WIDTH: gl.constexpr = qc_from.block_type.shape[1]
    KEYS: gl.constexpr = 64
    dtype: gl.constexpr = pages.dtype
    shared: gl.constexpr = pages.layout
    kc = gl.allocate_shared_memory(dtype, [4, KEYS, WIDTH], shared)  # two tiles, two halves
    kr = gl.allocate_shared_memory(dtype, [2, KEYS, 64], shared)
    qc = gl.allocate_shared_memory(dtype, [2, HEADS, WIDTH], shared)
    qr = gl.allocate_shared_memory(dtype, [HEADS, 64], shared)
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    mbarrier.init(q_full, count=1)
    mbarrier.init(q_empty, count=2)
    hopper.fence_async_shared()
    shared = (kc, kr, qc, qr, full, empty, q_full, q_empty)
    gl.warp_specialize(
        [
            (_attend, (parts, shared, partial, lse, scale, H, 0)),
            (_attend, (parts, shared, partial, lse, scale, H, 1)),
            (_fetch, (qc_from, qr_from, pages, table, parts, shared, H, M, PAGE)),
        ],
        [4, 1],
        [232, 40],
    )


def attend_wide(programs, q, pages, table, parts, partial, lse, scale, early: bool) -> None:
    """Partial results `partial [items, H, C]` and `lse [items, H]` of the listed parts."""
    _, H, W = q.shape
    page, C = pages.shape[1], partial.shape[2]
    q_rows, cached = q.contiguous().view(-1, W), pages.view(-1, W)
    _attend_wide[(programs,)](
        _descriptor(q_rows, HEADS, C // 2), _descriptor(q_rows, HEADS, 64),
        _descriptor(cached, min(page & -page, KEYS), 64), table, parts, partial, lse, scale,
        H, table.shape[1], page, early, num_warps=4, launch_pdl=early,
    )  # fmt: skip


def _descriptor(matrix: torch.Tensor, height: int, width: int) -> TensorDescriptor:
    """What the copy engine must know of a matrix: it copies `[height, width]` at a time."""
    return TensorDescriptor.from_tensor(matrix, [height, width], SHARED)
