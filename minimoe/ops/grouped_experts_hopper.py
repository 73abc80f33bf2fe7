"""Grouped matrix product for many rows per expert on Hopper GPUs, in Gluon: Triton with explicit
memory.

The warps of a program have different jobs. One warp asks the copy engine for tiles of rows and of
weights, a few steps ahead; two groups of four warps multiply, each 64 rows of the same columns, and
never wait for an address. Programs stay and take tile after tile, so that the next tile's operands
arrive while this one's results are written.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

ROWS = 64  # of one group of four warps: a matrix instruction's height
COLS = 128
DEPTH = 64  # along the summed dimension: 128 bytes
STAGES = 4  # of the prefetch
GROUP = 4  # row tiles of one expert that are worked on side by side
SHARED = gl.NVMMASharedLayout(128, 16, 2)


# How four warps hold `[64, 128]` results on their way out: eight neighbouring columns a thread, so
# that they leave in stores of 16 bytes.
OUT: gl.constexpr = gl.constexpr(
    gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [0, 2], [0, 4], [8, 0], [0, 32], [0, 64]],
        lane_bases=[[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, 128],
    )
)


@gluon.jit
def _find(tile, expert, before, starts, E, across, HEIGHT: gl.constexpr):
    """Go on to the expert of this tile (E: there is none). `before`: tiles of earlier experts."""
    expert, before = gl.to_tensor(expert), gl.to_tensor(before)
    begin = gl.load(starts + expert)
    end = gl.load(starts + expert + 1, mask=expert < E, other=0)
    size = gl.cdiv(end - begin, HEIGHT) * across
    while (expert < E) & (before + size <= tile):
        before += size
        expert += 1
        begin = end
        end = gl.load(starts + expert + 1, mask=expert < E, other=0)
        size = gl.cdiv(end - begin, HEIGHT) * across
    return expert, before, begin, end


@gluon.jit
def _place(within, begin, end, across, HEIGHT: gl.constexpr, GROUP: gl.constexpr):
    """First row, and number of the column tile. GROUP row tiles are worked on side by side, so that
    a weight tile is read from memory once and from the L2 cache after that."""
    height = gl.cdiv(end - begin, HEIGHT)
    group = within // (GROUP * across)
    tall = gl.minimum(height - group * GROUP, GROUP)
    within -= group * GROUP * across
    return begin + (group * GROUP + within % tall) * HEIGHT, within // tall


@gluon.jit
def _tell(told, heard, jobs, turn, m0, end, column):
    """Post a tile for the groups that multiply: its first row, its expert's last, its columns."""
    slot = turn % 2
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    i = gl.arange(0, 4, layout)
    mbarrier.wait(heard.index(slot), (turn // 2 + 1) & 1)
    jobs.index(slot).store(gl.where(i == 0, m0, gl.where(i == 1, end, column)))
    mbarrier.arrive(told.index(slot))


@gluon.jit
def _hear(told, heard, jobs, turn):
    slot = turn % 2
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.arange(0, 4, layout)
    mbarrier.wait(told.index(slot), (turn // 2) & 1)
    job = jobs.index(slot).load(layout)
    mbarrier.arrive(heard.index(slot))
    m0, end = gl.sum(gl.where(i == 0, job, 0), 0), gl.sum(gl.where(i == 1, job, 0), 0)
    return m0, end, gl.sum(gl.where(i == 2, job, 0), 0)


@gluon.jit
def _ask(
    a, w, shared, starts, counter, E, K, N,
    GATED: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """The warp that hands out tiles and starts copies."""
    rows, weights, full, empty, told, heard, jobs = shared
    stages: gl.constexpr = full.shape[0]
    BM: gl.constexpr = rows.shape[1]
    COLS: gl.constexpr = weights.shape[1]
    DEPTH: gl.constexpr = rows.shape[2]
    row_bytes: gl.constexpr = BM * DEPTH * 2
    weight_bytes: gl.constexpr = 2 * COLS * DEPTH * 2
    width: gl.constexpr = COLS if GATED else 2 * COLS
    across = gl.cdiv(N, width)
    tile = gl.program_id(0)
    step = 0
    turn = 0
    expert, before, begin, end = _find(tile, 0, 0, starts, E, across, 2 * BM)
    while expert < E:
        upcoming = gl.atomic_add(counter, 1) + gl.num_programs(0)  # asked for early
        m0, column = _place(tile - before, begin, end, across, 2 * BM, GROUP)
        n0 = column * width
        _tell(told, heard, jobs, turn, m0, end, column)
        w_row = expert * N + n0
        w_next = w_row + COLS
        if GATED:
            w_row += expert * N
            w_next = w_row + N
        for k0 in range(0, K, DEPTH):
            slot = step % stages
            mbarrier.wait(empty.index(slot), (step // stages + 1) & 1)
            here = full.index(slot)
            mbarrier.expect(here, weight_bytes)
            tma.async_copy_global_to_shared(w, [w_row, k0], here, weights.index(2 * slot))
            tma.async_copy_global_to_shared(w, [w_next, k0], here, weights.index(2 * slot + 1))
            for i in gl.static_range(2):
                m = m0 + i * BM
                mbarrier.expect(here, row_bytes, pred=m < end)
                mbarrier.arrive(here, pred=m >= end)
                to = rows.index(2 * slot + i)
                tma.async_copy_global_to_shared(a, [m, k0], here, to, pred=m < end)
            step += 1
        turn += 1
        tile = upcoming
        expert, before, begin, end = _find(tile, expert, before, starts, E, across, 2 * BM)
    _tell(told, heard, jobs, turn, -1, 0, 0)


@gluon.jit
def _multiply(shared, out, targets, K, N, block, GATED: gl.constexpr):
    """Four warps: one block of 64 rows of each tile."""
    rows, weights, full, empty, told, heard, jobs = shared
    stages: gl.constexpr = full.shape[0]
    BM: gl.constexpr = rows.shape[1]
    COLS: gl.constexpr = weights.shape[1]
    DEPTH: gl.constexpr = rows.shape[2]
    width: gl.constexpr = COLS if GATED else 2 * COLS
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLS, 16])
    step = 0
    turn = 0
    m0, end, column = _hear(told, heard, jobs, turn)
    while m0 >= 0:
        m0 += block * BM
        n0 = column * width  # a known multiple of 16: wide stores
        left = gl.zeros([BM, COLS], gl.float32, layout)
        right = gl.zeros([BM, COLS], gl.float32, layout)
        if m0 < end:
            for k0 in range(0, K, DEPTH):
                slot = step % stages
                mbarrier.wait(full.index(slot), (step // stages) & 1)
                x = rows.index(2 * slot + block)
                w_left = weights.index(2 * slot).permute((1, 0))
                w_right = weights.index(2 * slot + 1).permute((1, 0))
                next_left = hopper.warpgroup_mma(x, w_left, left, is_async=True)
                next_right = hopper.warpgroup_mma(x, w_right, right, is_async=True)
                # Done are the products of the step before, so its operands may be replaced.
                left, right = hopper.warpgroup_mma_wait(2, deps=[next_left, next_right])
                mbarrier.arrive(empty.index((step + stages - 1) % stages), pred=k0 > 0)
                step += 1
            left, right = hopper.warpgroup_mma_wait(0, deps=[left, right])
            mbarrier.arrive(empty.index((step + stages - 1) % stages))
            place = m0 + gl.arange(0, BM, gl.SliceLayout(1, OUT))
            if GATED:
                left = left / (1 + gl.exp2(left * -1.4426950408889634)) * right
                _write(out, left, place, place < end, n0, N)
            else:
                target = gl.load(targets + place, mask=place < end, other=0)
                _write(out, left, target, place < end, n0, N)
                _write(out, right, target, place < end, n0 + COLS, N)
        else:  # no rows for this block: it only lets the copies go on
            for _ in range(0, K, DEPTH):
                slot = step % stages
                mbarrier.wait(full.index(slot), (step // stages) & 1)
                mbarrier.arrive(empty.index(slot))
                step += 1
        turn += 1
        m0, end, column = _hear(told, heard, jobs, turn)


@gluon.jit
def _write(out, values, target, live, n0, N):
    """Values `[64, COLS]` to the output rows `target [64]`."""
    values = gl.convert_layout(values.to(out.dtype.element_ty), OUT)
    n = n0 + gl.arange(0, values.shape[1], gl.SliceLayout(0, OUT))
    to = out + target.to(gl.int64)[:, None] * N + n[None, :]
    gl.store(to, values, mask=live[:, None] & (n < N)[None, :])


@gluon.jit
def _grouped_matmul(
    a, w, out, targets, starts, counter, E, K, N,
    GATED: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    BM: gl.constexpr = a.block_type.shape[0]
    COLS: gl.constexpr = w.block_type.shape[0]
    DEPTH: gl.constexpr = a.block_type.shape[1]
    rows = gl.allocate_shared_memory(a.dtype, [2 * STAGES, BM, DEPTH], a.layout)
    weights = gl.allocate_shared_memory(a.dtype, [2 * STAGES, COLS, DEPTH], w.layout)
    jobs = gl.allocate_shared_memory(gl.int32, [2, 4], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    told = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    heard = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=3)
        mbarrier.init(empty.index(i), count=2)
    for i in gl.static_range(2):
        mbarrier.init(told.index(i), count=1)
        mbarrier.init(heard.index(i), count=2)
    hopper.fence_async_shared()
    shared = (rows, weights, full, empty, told, heard, jobs)
    gl.warp_specialize(
        [
            (_multiply, (shared, out, targets, K, N, 0, GATED)),
            (_multiply, (shared, out, targets, K, N, 1, GATED)),
            (_ask, (a, w, shared, starts, counter, E, K, N, GATED, GROUP)),
        ],
        [4, 1],
        [232, 40],
    )


def grouped_matmul(a, weight, out, rows, starts, gated: bool) -> None:
    """`a [R, K]` in expert order times `weight [E * (N or 2N), K]`. Gated: `out [R, N]`, in expert
    order, is silu(gate) * up; else row i goes to `out[rows[i]]`."""
    E, N = len(starts) - 1, out.shape[1]
    counter = torch.zeros(1, dtype=torch.int32, device=a.device)
    processors = torch.cuda.get_device_properties(a.device).multi_processor_count
    _grouped_matmul[(processors,)](
        _descriptor(a, ROWS), _descriptor(weight, COLS), out, rows, starts, counter,
        E, a.shape[1], N, gated, STAGES, GROUP, num_warps=4,
    )  # fmt: skip


def _descriptor(matrix: torch.Tensor, height: int) -> TensorDescriptor:
    """What the copy engine must know of a matrix: it copies `[height, DEPTH]` at a time."""
    return TensorDescriptor.from_tensor(matrix, [height, DEPTH], SHARED)
