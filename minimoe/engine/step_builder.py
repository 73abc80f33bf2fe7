"""From scheduled requests to a `Step`: flat token ids, positions, KV slots, block tables, mask."""

import numpy as np
import torch

from minimoe.engine.scheduler import Scheduled
from minimoe.engine.sequence import Sequence
from minimoe.model.step import FEW_TOKENS, LongRequest, ShortGroup, Step


def build_step(scheduled: Scheduled, block_size: int, heads: int, device, dtype, pairs: int = 0):
    """The step, and the requests in the order of its logits rows.

    Logits are wanted of the last token of each request that will then be fully computed, and of
    each draft that follows it. Requests attend together if they have few new tokens, or few pairs
    of a new token and a cached one (at most `pairs`).
    """

    def many(pair) -> bool:
        seq, count = pair
        return count > FEW_TOKENS and count * (seq.num_computed + count) > pairs

    scheduled = sorted(scheduled, key=many)  # stable: few tokens first
    ids, positions, slots, rows, finishing = [], [], [], [], []
    for seq, count in scheduled:
        start, end = seq.num_computed, seq.num_computed + count
        ids += seq.tokens[start:end]
        positions += range(start, end)
        slots += _slots(seq.blocks, start, end, block_size)
        if end >= len(seq.tokens):
            ids += seq.draft
            rows += range(len(ids) - 1 - len(seq.draft), len(ids))
            finishing.append(seq)
    short = [pair for pair in scheduled if not many(pair)]
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


def build_draft_step(seqs: list[Sequence], width: int, block_size: int, device, dtype) -> Step:
    """Blocks of `width` tokens behind the computed tokens of each request, for a drafter that runs
    over its own KV plane: every token of a block sees all of the request up to the block's end."""
    starts = [seq.num_computed for seq in seqs]
    positions = [p for start in starts for p in range(start, start + width)]
    slots = [
        slot
        for seq, start in zip(seqs, starts, strict=True)
        for slot in _slots(seq.blocks, start, start + width, block_size)
    ]
    positions, slots = torch.tensor([positions, slots], device=device).unbind(0)
    ends = [start + width for start in starts]
    tables = _block_tables(seqs, -(-max(ends) // block_size))
    group = ShortGroup(
        tokens=len(positions),
        requests=len(seqs),
        block_table=None,
        length=max(ends),
        mask=None,
        new_tokens=width,
    )
    if torch.device(device).type == "cuda":
        _one_row_a_token(group, tables, [width] * len(seqs), np.repeat(ends, width), device)
    else:
        group.block_table = torch.from_numpy(tables.ravel()).to(device)
        if min(ends) < group.length:
            ends = torch.tensor(ends)[:, None, None]
            group.mask = _hide(torch.arange(group.length) >= ends, dtype)  # [B, 1, S]
    return Step(ids=positions, positions=positions, slots=slots, logit_rows=None, short=group)


def _slots(blocks: list[int], start: int, end: int, block_size: int) -> list[int]:
    return [blocks[p // block_size] * block_size + p % block_size for p in range(start, end)]


def _short_group(short: Scheduled, heads: int, device, dtype) -> ShortGroup:
    counts = [count for _, count in short]
    lengths = [seq.num_computed + count for seq, count in short]
    tables = _block_tables([seq for seq, _ in short])
    group = ShortGroup(
        tokens=sum(counts),
        requests=len(short),
        block_table=None,
        length=max(lengths),
        mask=None,
        new_tokens=max(counts),
    )
    if torch.device(device).type == "cuda":
        own = [p + 1 for seq, count in short for p in _new_positions(seq, count)]
        _one_row_a_token(group, tables, counts, own, device)
        return group
    group.block_table = torch.from_numpy(tables.ravel()).to(device)
    if min(counts) < group.new_tokens:
        group.pad, group.unpad = _padding(counts, device)
    if group.new_tokens > 1 or min(lengths) < group.length:
        group.mask = _mask(counts, lengths, heads, device, dtype)
    return group


def _new_positions(seq: Sequence, count: int) -> range:
    return range(seq.num_computed, seq.num_computed + count)


def _one_row_a_token(group: ShortGroup, tables: np.ndarray, counts, lengths, device) -> None:
    """On CUDA every token is a row with its own table and length: KV rows are written before they
    are read, so nothing else tells a request's new tokens apart, and no mask is needed."""
    table = np.repeat(tables, counts, axis=0)
    group.block_table = torch.from_numpy(table.ravel()).to(device)
    group.lengths = torch.as_tensor(lengths, device=device)
    group.requests, group.new_tokens = len(table), 1


def _block_tables(seqs: list[Sequence], width: int | None = None) -> np.ndarray:
    """`[B, M]`, short tables padded with the request's own last page; nobody looks there."""
    if len(seqs) == 1:
        return np.array([seqs[0].blocks[:width]])
    width = width or max(len(seq.blocks) for seq in seqs)
    return np.array(
        [seq.blocks[:width] + seq.blocks[-1:] * (width - len(seq.blocks)) for seq in seqs]
    )


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
    mask = _hide(future, dtype)
    return mask if mask.shape[1] == 1 else mask.repeat_interleave(heads, dim=1)


def _hide(where: torch.Tensor, dtype) -> torch.Tensor:
    mask = torch.zeros(where.shape, dtype=dtype, device=where.device)
    return mask.masked_fill_(where, -torch.inf)


def _long_requests(scheduled: Scheduled, skip: int, device) -> list[LongRequest]:
    start = sum(count for _, count in scheduled[:skip])
    out = []
    for seq, count in scheduled[skip:]:
        table = torch.tensor(seq.blocks, device=device)
        out.append(LongRequest(start, start + count, table, seq.num_computed + count))
        start += count
    return out
