"""MLA decode attention for many heads on Hopper GPUs, in Gluon: Triton with explicit memory.

With 33 to 64 heads a cached row feeds 121 operations a byte, and the general kernel in
`mla_attention_triton.py` loses half of its time waiting for rows that it asked for too late. Here
the order is written out: while tile i is worked on, tile i + 1 is on its way into the other of two
buffers, and the products of scores and of values overlap. Same parts, same work list, same result
format as the general kernel. Scores are two independent products over parts of the C + R sums, so
that neither waits for the other.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.ampere import async_copy

HEADS = 64  # rows of one matrix instruction
KEYS = 64
WARPS = 8  # two warpgroups, each with half of the keys and half of the values
LIST: gl.constexpr = gl.constexpr(gl.BlockedLayout([1], [32], [WARPS], [0]))
ROWS_C: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0]))
ROWS_R: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0]))


@gluon.jit
def _copy_rows(to, pages, page, s, end, first, PAGE: gl.constexpr, W: gl.constexpr, layout):
    """Start copying columns `first...` of the rows at positions `s` into shared memory."""
    width: gl.constexpr = to.shape[1]
    column = first + gl.arange(0, width, gl.SliceLayout(0, layout))
    row = pages + (page.to(gl.int64) * PAGE + s % PAGE) * W
    async_copy.async_copy_global_to_shared(to, row[:, None] + column[None, :], (s < end)[:, None])


@gluon.jit
def _page_of(table, s, end, PAGE: gl.constexpr):
    return gl.load(table + s // PAGE, mask=s < end, other=0)


@gluon.jit
def attend_wide(
    q, pages, table, lengths, counter, partial, lse, scale, B, H, M, q_stride,
    C: gl.constexpr, R: gl.constexpr, PAGE: gl.constexpr, PART: gl.constexpr, B2: gl.constexpr,
    HEADS: gl.constexpr, KEYS: gl.constexpr,
):  # fmt: skip
    W: gl.constexpr = C + R
    dtype: gl.constexpr = q.dtype.element_ty
    scores: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, KEYS // 2, 16])
    values: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, C // 2, 16])
    shared: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    qc = gl.allocate_shared_memory(dtype, [HEADS, C], shared)
    qr = gl.allocate_shared_memory(dtype, [HEADS, R], shared)
    kc = gl.allocate_shared_memory(dtype, [2, KEYS, C], shared)
    kr = gl.allocate_shared_memory(dtype, [2, KEYS, R], shared)
    weights = gl.allocate_shared_memory(dtype, [HEADS, KEYS], shared)

    b = gl.arange(0, B2, LIST)
    length = gl.load(lengths + b, mask=b < B, other=0).to(gl.int32)
    size = gl.where(length >= 32 * PART, 2 * PART, PART)
    parts = (length + size - 1) // size
    total = gl.sum(parts, 0)
    h_c = gl.arange(0, HEADS, gl.SliceLayout(1, ROWS_C))
    h_r = gl.arange(0, HEADS, gl.SliceLayout(1, ROWS_R))
    c = gl.arange(0, C, gl.SliceLayout(0, ROWS_C))
    r = gl.arange(0, R, gl.SliceLayout(0, ROWS_R))
    j_c = gl.arange(0, KEYS, gl.SliceLayout(1, ROWS_C))
    j_r = gl.arange(0, KEYS, gl.SliceLayout(1, ROWS_R))
    j = gl.arange(0, KEYS, gl.SliceLayout(0, scores))

    item = gl.program_id(0)
    while item < total:
        upcoming = gl.atomic_add(counter, 1) + gl.num_programs(0)
        ends = gl.associative_scan(parts, 0, _add)
        request = gl.sum((ends <= item).to(gl.int32), 0)
        part = item - gl.sum(gl.where(b < request, parts, 0), 0)
        whole = gl.sum(gl.where(b == request, length, 0), 0)
        span = gl.sum(gl.where(b == request, size, 0), 0)
        begin = part * span
        end = gl.minimum(whole, begin + span)
        pages_of = table + request * M

        q_row = q + request.to(gl.int64) * q_stride
        qc.store(gl.load(q_row + h_c[:, None] * W + c[None, :], mask=(h_c < H)[:, None], other=0.0))
        qr.store(
            gl.load(q_row + h_r[:, None] * W + C + r[None, :], mask=(h_r < H)[:, None], other=0.0)
        )
        page_c = _page_of(pages_of, begin + j_c, end, PAGE)
        page_r = _page_of(pages_of, begin + j_r, end, PAGE)
        _copy_rows(kc.index(0), pages, page_c, begin + j_c, end, 0, PAGE, W, ROWS_C)
        _copy_rows(kr.index(0), pages, page_r, begin + j_r, end, C, PAGE, W, ROWS_R)
        async_copy.commit_group()
        page_c = _page_of(pages_of, begin + KEYS + j_c, end, PAGE)
        page_r = _page_of(pages_of, begin + KEYS + j_r, end, PAGE)

        acc = hopper.warpgroup_mma_init(gl.zeros([HEADS, C], gl.float32, values))
        top = gl.full([HEADS], float("-inf"), gl.float32, gl.SliceLayout(1, scores))
        mass = gl.zeros([HEADS], gl.float32, gl.SliceLayout(1, scores))
        zero = gl.zeros([HEADS, KEYS], gl.float32, scores)
        for s0 in range(begin, end, KEYS):
            now = ((s0 - begin) // KEYS) % 2
            acc = hopper.warpgroup_mma_wait(0, deps=[acc])  # the values of the tile before
            gl.thread_barrier()  # all warps are done with its buffer: refill it
            s = s0 + KEYS
            _copy_rows(kc.index(1 - now), pages, page_c, s + j_c, end, 0, PAGE, W, ROWS_C)
            _copy_rows(kr.index(1 - now), pages, page_r, s + j_r, end, C, PAGE, W, ROWS_R)
            async_copy.commit_group()
            page_c = _page_of(pages_of, s + KEYS + j_c, end, PAGE)
            page_r = _page_of(pages_of, s + KEYS + j_r, end, PAGE)
            async_copy.wait_group(1)  # this tile has landed
            hopper.fence_async_shared()
            gl.thread_barrier()
            k = kc.index(now)
            half: gl.constexpr = C // 2
            low = hopper.warpgroup_mma(
                qc.slice(0, half, 1), k.slice(0, half, 1).permute((1, 0)), zero,
                use_acc=False, is_async=True,
            )  # fmt: skip
            high = hopper.warpgroup_mma(
                qc.slice(half, half, 1), k.slice(half, half, 1).permute((1, 0)), zero,
                use_acc=False, is_async=True,
            )  # fmt: skip
            high = hopper.warpgroup_mma(qr, kr.index(now).permute((1, 0)), high, is_async=True)
            low, high = hopper.warpgroup_mma_wait(0, deps=[low, high])
            score = (low + high) * scale
            score = gl.where((s0 + j < end)[None, :], score, float("-inf"))
            new_top = gl.maximum(top, gl.max(score, 1))
            share = gl.exp2(score - new_top[:, None])
            fade = gl.exp2(top - new_top)
            mass = mass * fade + gl.sum(share, 1)
            top = new_top
            weights.store(share.to(dtype))
            hopper.fence_async_shared()
            gl.thread_barrier()
            acc = acc * gl.convert_layout(fade, gl.SliceLayout(1, values))[:, None]
            acc = hopper.warpgroup_mma(weights, k, acc, is_async=True)
        done = hopper.warpgroup_mma_wait(0, deps=[acc])
        async_copy.wait_group(0)
        h = gl.arange(0, HEADS, gl.SliceLayout(1, values))
        column = gl.arange(0, C, gl.SliceLayout(0, values))
        share_of = gl.convert_layout(1.0 / mass, gl.SliceLayout(1, values))
        to = partial + (item * H + h).to(gl.int64)[:, None] * C + column[None, :]
        gl.store(to, done * share_of[:, None], mask=(h < H)[:, None])
        h_s = gl.arange(0, HEADS, gl.SliceLayout(1, scores))
        gl.store(lse + item * H + h_s, top + gl.log2(mass), mask=h_s < H)
        gl.thread_barrier()
        item = upcoming


@gluon.jit
def _add(x, y):
    return x + y
