"""Routed rows by expert, sorted on the GPU: what every grouped product needs first, in Triton."""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

BLOCK = 4096  # ids that one program looks at


@triton.jit
def chain(EARLY: tl.constexpr):
    """Let the next kernel be launched while this one runs, and wait here for the one before
    (programmatic dependent launch, compute capability 9.0): hides a few microseconds a kernel."""
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()


def early_launch(device: torch.device) -> bool:
    """Whether kernels on this device can `chain`."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


@triton.jit
def _count_rows(ids, counts, R, E2: tl.constexpr, BLOCK: tl.constexpr):
    """Program b counts the experts of its BLOCK of `ids [R]`: `counts [blocks, E2]`."""
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(ids + r, mask=r < R, other=-1).to(tl.int32)
    count = tl.histogram(tl.maximum(expert, 0), E2, mask=expert >= 0)
    tl.store(counts + tl.program_id(0) * E2 + tl.arange(0, E2), count)


@triton.jit
def _place_rows(
    ids, counts, rows, starts, R, E, blocks,
    B2: tl.constexpr, E2: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Program (e, b) puts the rows of expert e in block b behind those of earlier experts and of
    earlier blocks: a stable counting sort."""
    chain(EARLY)
    expert, block = tl.program_id(0), tl.program_id(1)
    r = block * BLOCK + tl.arange(0, BLOCK)
    choice = tl.load(ids + r, mask=r < R, other=-1).to(tl.int32)
    b, e = tl.arange(0, B2)[:, None], tl.arange(0, E2)[None, :]
    if B2 == 1:  # the only block counts for itself
        count = tl.histogram(tl.maximum(choice, 0), E2, mask=choice >= 0)[None, :]
    else:
        count = tl.load(counts + b * E2 + e, mask=b < blocks, other=0)  # [B2, E2]
    place = tl.sum(tl.where(e < expert, count, 0))
    if block == 0:
        tl.store(starts + expert, place)
        if expert == E - 1:
            tl.store(starts + E, tl.sum(count))
    place += tl.sum(tl.where((e == expert) & (b < block), count, 0))
    rank = tl.cumsum((choice == expert).to(tl.int32), 0)
    tl.store(rows + place + rank - 1, r, mask=choice == expert)


def sort_rows(
    ids: torch.Tensor, experts: int, early: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`rows [T*K]`: indices into `ids.flatten()` of expert 0's rows, then of expert 1's, ...

    Those of expert e lie at `starts[e]:starts[e + 1]`, `starts [E + 1]`, in their given order; an
    id of -1 is in none. Nothing waits for the device, and sizes depend on shapes alone.
    """
    R, experts2 = ids.numel(), max(32, triton.next_power_of_2(experts))
    block = min(BLOCK, max(64, triton.next_power_of_2(R)))
    blocks = triton.cdiv(R, block)
    counts = torch.empty(blocks, experts2, dtype=torch.int32, device=ids.device)
    rows = torch.empty(R, dtype=torch.int32, device=ids.device)
    starts = torch.empty(experts + 1, dtype=torch.int32, device=ids.device)
    if blocks > 1:
        _count_rows[(blocks,)](ids, counts, R, experts2, block, num_warps=8)
    _place_rows[(experts, blocks)](
        ids, counts, rows, starts, R, experts, blocks,
        triton.next_power_of_2(blocks), experts2, block, early, num_warps=8, launch_pdl=early,
    )  # fmt: skip
    return rows, starts


@triton.jit
def _gather_rows(x, rows, total, out, D, PER_TOKEN: tl.constexpr, BLOCK: tl.constexpr):
    """Copy each routed row's token to its place in expert order."""
    for place in range(tl.program_id(0), tl.load(total), tl.num_programs(0)):
        token = (tl.load(rows + place) // PER_TOKEN).to(tl.int64)
        for d0 in range(0, D, BLOCK):
            d = d0 + tl.arange(0, BLOCK)
            value = tl.load(x + token * D + d, mask=d < D)
            tl.store(out + tl.cast(place, tl.int64) * D + d, value, mask=d < D)


def gather_rows(x, rows, starts, per_token: int) -> torch.Tensor:
    """`[R, D]`: the rows of `x [T, D]` in expert order; places that no expert has stay unset."""
    out = x.new_empty(len(rows), x.shape[1])
    programs = 8 * torch.cuda.get_device_properties(x.device).multi_processor_count
    _gather_rows[(programs,)](x, rows, starts[-1:], out, x.shape[1], per_token, 1024, num_warps=4)
    return out
