"""From scheduled requests to a `Step`: flat token ids, positions, KV slots, block tables, mask."""

import numpy as np
import torch

from minimoe.engine.scheduler import Scheduled
from minimoe.model.step import FEW_TOKENS, LongRequest, ShortGroup, Step


def build_step(scheduled: Scheduled, block_size: int, heads: int, device, dtype):
    """The step, and the requests in the order of its logits rows.

    Logits are wanted of the last token of each request that will then be fully computed.
    """
    scheduled = sorted(scheduled, key=lambda pair: pair[1] > FEW_TOKENS)  # stable: few tokens first
    ids, positions, slots, rows, finishing = [], [], [], [], []
    for seq, count in scheduled:
        start, end = seq.num_computed, seq.num_computed + count
        ids += seq.tokens[start:end]
        positions += range(start, end)
        slots += _slots(seq.blocks, start, end, block_size)
        if end == len(seq.tokens):
            rows.append(len(ids) - 1)
            finishing.append(seq)
    short = [(seq, count) for seq, count in scheduled if count <= FEW_TOKENS]
    ids, positions, slots = torch.tensor([ids, positions, slots], device=device).unbind(0)
    wanted = torch.tensor(rows, device=device, dtype=torch.long) if len(rows) < len(ids) else None
    step = Step(
        ids=ids,
        positions=positions,
        slots=slots,
        logit_rows=wanted,
        short=_short_group(short, heads, device, dtype) if short else None,
        long=_long_requests(scheduled, len(short), device),
    )
    return step, finishing


def _slots(blocks: list[int], start: int, end: int, block_size: int) -> list[int]:
    return [blocks[p // block_size] * block_size + p % block_size for p in range(start, end)]


def _short_group(short: Scheduled, heads: int, device, dtype) -> ShortGroup:
    counts = [count for _, count in short]
    lengths = [seq.num_computed + count for seq, count in short]
    group = ShortGroup(
        tokens=sum(counts),
        requests=len(short),
        block_table=torch.tensor(_block_table(short), device=device),
        length=max(lengths),
        mask=None,
        new_tokens=max(counts),
    )
    if group.new_tokens == 1 and torch.device(device).type == "cuda":
        group.lengths = torch.tensor(lengths, device=device)
        return group
    if min(counts) < group.new_tokens:
        group.pad, group.unpad = _padding(counts, device)
    if group.new_tokens > 1 or min(lengths) < group.length:
        group.mask = _mask(counts, lengths, heads, device, dtype)
    return group


def _block_table(short: Scheduled) -> list[int]:
    """`[B * M]`, short tables padded with the request's own last page; the mask hides it."""
    width = max(len(seq.blocks) for seq, _ in short)
    table = []
    for seq, _ in short:
        table += seq.blocks
        table += seq.blocks[-1:] * (width - len(seq.blocks))
    return table


def _padding(counts: list[int], device) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of the step for each place of the padded batch `[B, L]`, and the way back `[tokens]`."""
    widest = max(counts)
    starts = np.cumsum(counts) - counts
    places = np.arange(widest)
    pad = starts[:, None] + np.minimum(places, np.array(counts)[:, None] - 1)  # [B, L]
    unpad = np.flatnonzero(places < np.array(counts)[:, None])
    return torch.from_numpy(pad).to(device), torch.from_numpy(unpad).to(device)


def _mask(counts: list[int], lengths: list[int], heads: int, device, dtype) -> torch.Tensor:
    """0 for positions up to the token's own, -inf after it: `[B, 1, S]` if each request has one new
    token, else `[B, L * H, S]`."""
    counts, lengths = np.array(counts)[:, None], np.array(lengths)[:, None]
    own = lengths - counts + np.minimum(np.arange(counts.max()), counts - 1)  # [B, L]
    own = torch.from_numpy(own).to(device)[:, :, None]
    future = torch.arange(int(lengths.max()), device=device) > own  # [B, L, S]
    mask = torch.zeros(future.shape, dtype=dtype, device=device).masked_fill_(future, -torch.inf)
    return mask if mask.shape[1] == 1 else mask.repeat_interleave(heads, dim=1)


def _long_requests(scheduled: Scheduled, skip: int, device) -> list[LongRequest]:
    start = sum(count for _, count in scheduled[:skip])
    out = []
    for seq, count in scheduled[skip:]:
        table = torch.tensor(seq.blocks, device=device)
        out.append(LongRequest(start, start + count, table, seq.num_computed + count))
        start += count
    return out
