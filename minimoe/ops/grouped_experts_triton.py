"""Grouped experts on CUDA: our own grouped matrix product in Triton.

Two shapes of work, the pair that DeepGEMM names. *Decode*: a few rows per expert, so every weight
of a hit expert is streamed once and memory is the limit. *Prefill*: hundreds of rows per expert, in
tiles of rows sorted by expert, and arithmetic is the limit. No path waits for the device, and grids
depend on shapes alone, so a CUDA graph can capture them. Arguments as in `grouped_experts.py`; an
id of -1 means that the expert lives on another rank and adds nothing here.
"""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from minimoe.ops.expert_plans import Tile, choose
from minimoe.ops.sort_rows_triton import chain, early_launch, gather_rows, sort_rows

GROUP = 8  # row tiles of one expert that are worked on side by side


@triton.jit
def _row_pointers(
    a, rows, m0, end, K, PER_TOKEN: tl.constexpr, GATED: tl.constexpr, BM: tl.constexpr
):
    """Where BM routed rows lie: their inputs, the output row of each, and which exist."""
    place = m0 + tl.arange(0, BM)
    live = place < end
    row = tl.load(rows + place, mask=live, other=0)
    source = row // PER_TOKEN if GATED else place  # a token's row, or a row of hidden values
    target = place if GATED else row
    return a + source.to(tl.int64)[:, None] * K, target.to(tl.int64), live


@triton.jit
def _load_rows(a_rows, live, k, K):
    """`[BM, BK]`, zeros where there is no row or no column."""
    return tl.load(a_rows + k[None, :], mask=live[:, None] & (k < K)[None, :], other=0.0)


@triton.jit
def _silu_mul(gate, up):
    return gate * tl.sigmoid(gate) * up


@triton.jit
def _store_columns(out, acc, target, live, n, N):
    """A transposed tile `[BN, BM]` to the output rows `target [BM]`."""
    to = out + target[None, :] * N + n[:, None]
    tl.store(to, acc.to(out.dtype.element_ty), mask=live[None, :] & (n < N)[:, None])


@triton.jit
def _decode_matmul(
    a, w, out, rows, starts, K, N,
    PER_TOKEN: tl.constexpr, GATED: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
    BM: tl.constexpr, EXTRA: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One expert, BN of its output columns, all of its rows. Transposed, so that the weights are
    the tall operand: `[BN, BK] @ [BK, BM]`."""
    chain(EARLY)
    expert = tl.program_id(1)
    n0 = tl.program_id(0) * BN
    end = tl.load(starts + expert + 1)
    w_row = expert * N * (2 if GATED else 1) + n0
    n = n0 + tl.arange(0, BN)
    for m0 in range(tl.load(starts + expert), end, BM + EXTRA):
        a_rows, target, live = _row_pointers(a, rows, m0, end, K, PER_TOKEN, GATED, BM)
        acc = tl.zeros((BN, BM), tl.float32)
        acc_up = tl.zeros((BN, BM), tl.float32)
        if EXTRA:
            b_rows, target2, live2 = _row_pointers(
                a, rows, m0 + BM, end, K, PER_TOKEN, GATED, EXTRA
            )
            acc2 = tl.zeros((BN, EXTRA), tl.float32)
            acc2_up = tl.zeros((BN, EXTRA), tl.float32)
        for k0 in range(0, K, BK):
            k = k0 + tl.arange(0, BK)
            x = tl.trans(_load_rows(a_rows, live, k, K))
            gate = w.load([w_row, k0])
            acc = tl.dot(gate, x, acc, input_precision=PRECISION)
            if EXTRA:
                x2 = tl.trans(_load_rows(b_rows, live2, k, K))
                acc2 = tl.dot(gate, x2, acc2, input_precision=PRECISION)
            if GATED:
                up = w.load([w_row + N, k0])
                acc_up = tl.dot(up, x, acc_up, input_precision=PRECISION)
                if EXTRA:
                    acc2_up = tl.dot(up, x2, acc2_up, input_precision=PRECISION)
        if GATED:
            acc = _silu_mul(acc, acc_up)
        _store_columns(out, acc, target, live, n, N)
        if EXTRA:
            if GATED:
                acc2 = _silu_mul(acc2, acc2_up)
            _store_columns(out, acc2, target2, live2, n, N)


@triton.jit
def _prefill_tile(
    a, w, out, rows, end, m0, n0, w_row, K, N,
    PER_TOKEN: tl.constexpr, GATED: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    a_rows, target, live = _row_pointers(a, rows, m0, end, K, PER_TOKEN, GATED, BM)
    acc = tl.zeros((BM, BN), tl.float32)
    acc_up = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        x = _load_rows(a_rows, live, k0 + tl.arange(0, BK), K)
        acc = tl.dot(x, tl.trans(w.load([w_row, k0])), acc, input_precision=PRECISION)
        if GATED:
            up = tl.trans(w.load([w_row + N, k0]))
            acc_up = tl.dot(x, up, acc_up, input_precision=PRECISION)
    if GATED:
        acc = _silu_mul(acc, acc_up)
    n = n0 + tl.arange(0, BN)
    to = out + target[:, None] * N + n[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=live[:, None] & (n < N)[None, :])


@triton.jit
def _prefill_matmul(
    a, w, out, rows, starts, E, K, N, E2: tl.constexpr, GROUP: tl.constexpr,
    PER_TOKEN: tl.constexpr, GATED: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A fixed number of programs share the tiles of all experts, row tiles of one expert side by
    side, so that a weight tile is read from memory once and from the L2 cache after that."""
    e = tl.arange(0, E2)
    first = tl.load(starts + e, mask=e < E, other=0)
    last = tl.load(starts + e + 1, mask=e < E, other=0)
    tiles = tl.cdiv(last - first, BM)  # [E2], row tiles of each expert
    ends = tl.cumsum(tiles, 0)
    across = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.sum(tiles) * across, tl.num_programs(0)):
        expert = tl.sum((ends * across <= tile).to(tl.int32))
        height = tl.sum(tl.where(e == expert, tiles, 0))
        within = tile - (tl.sum(tl.where(e == expert, ends, 0)) - height) * across
        group = within // (GROUP * across)
        tall = tl.minimum(height - group * GROUP, GROUP)
        within -= group * GROUP * across
        m0 = tl.load(starts + expert) + (group * GROUP + within % tall) * BM
        n0 = within // tall * BN
        end = tl.load(starts + expert + 1)
        w_row = expert * N * (2 if GATED else 1) + n0
        if (end - m0 > BM // 2) | (BM < 128):
            _prefill_tile(a, w, out, rows, end, m0, n0, w_row, K, N,
                          PER_TOKEN, GATED, PRECISION, BM, BN, BK)  # fmt: skip
        elif BM >= 128:  # the last rows of an expert: a tile of half the height wastes less
            _prefill_tile(a, w, out, rows, end, m0, n0, w_row, K, N,
                          PER_TOKEN, GATED, PRECISION, BM // 2, BN, BK)  # fmt: skip


@triton.jit
def _combine(y, ids, weights, out, D, K: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """A token's K expert outputs, weighted and summed in one fixed order."""
    chain(EARLY)
    t = tl.program_id(0).to(tl.int64)
    for d0 in range(tl.program_id(1) * BLOCK, D, tl.num_programs(1) * BLOCK):
        d = d0 + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for k in tl.static_range(K):
            here = tl.load(ids + t * K + k) >= 0
            part = tl.load(y + (t * K + k) * D + d, mask=here & (d < D), other=0.0)
            weight = tl.load(weights + t * K + k).to(tl.float32)
            total += tl.where(here, part.to(tl.float32) * weight, 0.0)
        tl.store(out + t * D + d, total.to(out.dtype.element_ty), mask=d < D)


def unsupported(x: torch.Tensor, gate_up: torch.Tensor) -> str | None:
    """Why this path cannot run here, as a short reason; None when it can."""
    if not x.is_cuda:
        return "not on CUDA"
    if torch.cuda.get_device_capability(x.device) < (8, 0):
        return "the GPU is older than compute capability 8.0"
    if x.dtype not in (torch.bfloat16, torch.float16, torch.float32) or gate_up.dtype != x.dtype:
        return f"dtypes {x.dtype} and {gate_up.dtype}"
    if any(width * x.element_size() % 16 for width in (gate_up.shape[2], gate_up.shape[1] // 2)):
        return "a row is not a multiple of 16 bytes"
    return None


def experts_triton(
    x, ids, weights, gate_up, down, routed: int | None = None, plan: tuple | None = None
) -> torch.Tensor:
    """`[T, D]` from `x [T, D]`, `ids [T, K]`, `weights [T, K]`.

    `routed` is about how many of the ids are not -1 (None: all): it only chooses the plan. `plan`
    pins it: "decode", "prefill" or "hopper", and its two tiles. Sums are in float32, and a float32
    input is multiplied in full float32, not TF32.
    """
    T, D = x.shape
    K = ids.shape[1]
    E, two_f, _ = gate_up.shape
    if not T:
        return torch.empty_like(x)
    x, ids, weights = x.contiguous(), ids.contiguous(), weights.contiguous()
    kind, (up_tile, down_tile) = plan or choose(
        (T * K if routed is None else routed) / E, _hopper(x)
    )
    matmul = MATMULS[kind]
    early = early_launch(x.device) and kind == "decode"
    rows, starts = sort_rows(ids, E, early)
    hidden, y = x.new_empty(T * K, two_f // 2), x.new_empty(T * K, D)
    matmul(x, gate_up.view(E * two_f, D), hidden, rows, starts, K, True, up_tile, early)
    matmul(hidden, down.view(E * D, two_f // 2), y, rows, starts, K, False, down_tile, early)
    out = torch.empty_like(x)
    block = min(1024, triton.next_power_of_2(D))
    # Few tokens: a program per piece of a row. Many: fewer, longer programs.
    pieces, warps = (triton.cdiv(D, block), 4) if kind == "decode" else (1, 2)
    _combine[(T, pieces)](
        y, ids, weights, out, D, K, block, early, num_warps=warps, launch_pdl=early
    )
    return out


def _decode(a, weight, out, rows, starts, K, gated, tile, early):
    E, N = starts.shape[0] - 1, out.shape[1]
    tile = _fit(tile, a, N)
    w = TensorDescriptor.from_tensor(weight, [tile.cols, tile.depth])
    _decode_matmul[(triton.cdiv(N, tile.cols), E)](
        a, w, out, rows, starts, a.shape[1], N, K, gated, _precision(a), early,
        tile.rows, tile.extra, tile.cols, tile.depth,
        num_warps=tile.warps, num_stages=tile.stages, launch_pdl=early,
    )  # fmt: skip


def _prefill(a, weight, out, rows, starts, K, gated, tile, early=False):
    E, N = starts.shape[0] - 1, out.shape[1]
    tile = _fit(tile, a, N)
    w = TensorDescriptor.from_tensor(weight, [tile.cols, tile.depth])
    _prefill_matmul[(_processors(a.device),)](
        a, w, out, rows, starts, E, a.shape[1], N, triton.next_power_of_2(E), GROUP,
        K, gated, _precision(a), tile.rows, tile.cols, tile.depth,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


def _prefill_hopper(a, weight, out, rows, starts, K, gated, tile, early=False):
    from minimoe.ops.grouped_experts_hopper import grouped_matmul

    a = gather_rows(a, rows, starts, K) if gated else a
    grouped_matmul(a, weight, out, rows, starts, gated)


MATMULS = {"decode": _decode, "prefill": _prefill, "hopper": _prefill_hopper}


def _fit(tile: Tile, a: torch.Tensor, width: int) -> Tile:
    """No wider than the output; four-byte values take half the depth in the same memory."""
    tile = replace(tile, cols=min(tile.cols, max(16, triton.next_power_of_2(width))))
    if a.element_size() == 2:
        return tile
    small = replace(tile, rows=min(tile.rows, 64), cols=min(tile.cols, 64))
    return replace(small, depth=tile.depth // 2, stages=2)


def _precision(a: torch.Tensor) -> str:
    return "ieee" if a.dtype == torch.float32 else "tf32"


def _hopper(x: torch.Tensor) -> bool:
    """Whether the Gluon kernel runs here: values of two bytes on compute capability 9."""
    return (
        x.is_cuda and x.element_size() == 2 and torch.cuda.get_device_capability(x.device)[0] == 9
    )


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # Triton's interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count
