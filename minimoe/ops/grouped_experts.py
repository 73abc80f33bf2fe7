"""Grouped experts: T tokens, each through its own K of E small MLPs, summed with weights.

Every path takes the same arguments: `x [T, D]`, `ids [T, K]` (chosen experts), `weights [T, K]`,
`gate_up [E, 2F, D]` (gate rows first), `down [E, D, F]`; and returns `[T, D]`. An expert is
`down @ (silu(gate @ x) * (up @ x))` (GLU variants, arXiv 2002.05202).
"""

import numpy as np
import torch
import torch.nn.functional as F

from minimoe.ops.expert_rows import FromExperts, ToExperts
from minimoe.ops.streamed_products import can_group, few_rows, good_rows, grouped_linear, linear

GATHER_ROWS = 48  # measured: up to here copying weights beats sorting and padding rows
COPIED_ROWS = 16  # measured: copying a small expert costs as much as computing this many rows
LARGE_EXPERT = 1 << 20  # bytes: from here on an expert's weights, not the calls, take the time


def experts_naive(x, ids, weights, gate_up, down):
    """The oracle: one token and one expert at a time."""
    out = torch.zeros_like(x)
    for t in range(x.shape[0]):
        for expert, weight in zip(ids[t].tolist(), weights[t], strict=True):
            gate, up = (gate_up[expert] @ x[t]).chunk(2)
            out[t] += weight * (down[expert] @ (F.silu(gate) * up))
    return out


def silu_mul(h: torch.Tensor) -> torch.Tensor:
    """`[..., 2F]`, gate first, to `[..., F]`: silu(gate) * up."""
    width = h.shape[-1] // 2
    gate, up = h[..., :width], h[..., width:]  # half the time of `chunk`
    return F.silu(gate) * up if torch.is_grad_enabled() else F.silu(gate).mul_(up)


def experts_gather(x, ids, weights, gate_up, down):
    """Copy the chosen experts' weights side by side, then one batched product: for few rows, where
    the number of operations is what takes the time."""
    T, K = ids.shape
    rows, two_f = ids.view(-1), gate_up.shape[1]
    chosen = gate_up.transpose(1, 2).index_select(0, rows)  # [T*K, D, 2F]
    x = x[:, None] if T == 1 else x.repeat_interleave(K, dim=0)[:, None]
    h = torch.bmm(x.expand(T * K, 1, -1), chosen).view(T * K, two_f)
    h = silu_mul(h).mul_(weights.view(-1, 1))
    chosen = down.transpose(1, 2).index_select(0, rows)  # [T*K, F, D]
    out = torch.bmm(h.view(T, 1, K * h.shape[1]), chosen.view(T, K * h.shape[1], x.shape[-1]))
    return out[:, 0]


def experts_one_token(x, ids, weights, gate_up, down):
    """T = 1 and large experts: nothing to sort or to gather. Between two products that each stream
    a weight the caches are cold, so that every small operation costs several times its usual."""
    experts = ids[0].tolist()
    h = silu_mul(torch.cat([F.linear(x, gate_up[e]) for e in experts]))  # [K, F]
    rows = h.mul_(weights.to(x.dtype).t()).split(1)
    out = torch.cat([F.linear(row, down[e]) for row, e in zip(rows, experts, strict=True)])
    return out.sum(0, keepdim=True)


def experts_per_expert(x, ids, weights, gate_up, down):
    """A matrix product per expert that was hit: best when each has many rows or large weights.

    Experts with few rows are taken together, since small operations are what their products wait
    for. The others come one by one, through a small buffer that stays in a cache, and add their
    results to the tokens at once: fresh memory for all T * K rows costs as much as the products.
    """
    order, ends, many = _few_and_many(ids, gate_up)
    tokens, start = order // ids.shape[1], int(ends[-1])
    scale = weights.flatten().index_select(0, order)[:, None].to(x.dtype)  # [T*K, 1]
    out = torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32))
    if start:
        h = grouped_linear(x.index_select(0, tokens[:start]), gate_up, ends)
        rows = grouped_linear(silu_mul(h).mul_(scale[:start]), down, ends)
        out.index_add_(0, tokens[:start], rows.to(out.dtype))
    if many:
        _one_by_one(x, tokens[start:], scale[start:], many, gate_up, down, out)
    return out.to(x.dtype)


def _one_by_one(x, tokens, scale, experts, gate_up, down, out) -> None:
    """Add to `out [T, D]` what `experts`, a list of (expert, rows), make of their rows: `tokens`
    and their weights `scale [M, 1]` are sorted alike."""
    padded = [good_rows(count, gate_up[expert]) for expert, count in experts]
    buffer, start = x.new_zeros(max(padded), x.shape[1]), 0
    for (expert, count), good in zip(experts, padded, strict=True):
        part = slice(start, start := start + count)
        torch.index_select(x, 0, tokens[part], out=buffer[:count])
        hidden = silu_mul(linear(buffer[:good], gate_up[expert]))  # [good, F]
        hidden[:count].mul_(scale[part])
        rows = linear(hidden, down[expert]).contiguous()[:count]
        out.index_add_(0, tokens[part], rows.to(out.dtype))


def _few_and_many(ids: torch.Tensor, gate_up: torch.Tensor):
    """Row numbers `[T*K]`, those of experts with few rows first, by expert in both parts; the end
    of each expert's rows in the first part, `[E]`; and (expert, rows) of each in the second.
    In NumPy, as below."""
    flat = ids.cpu().numpy().ravel()
    counts = np.bincount(flat, minlength=gate_up.shape[0])
    limit = few_rows(gate_up[0]) if can_group(gate_up) else 0
    many = np.flatnonzero(counts > limit)
    key, listed = flat, list(zip(many.tolist(), counts[many].tolist(), strict=True))
    if listed:
        key = flat + len(counts) * (counts > limit)[flat]
        counts[many] = 0
    arrays = key.argsort(kind="stable"), counts.cumsum(dtype=np.int32)
    return *(torch.from_numpy(array).to(ids.device) for array in arrays), listed


def experts_padded(x, ids, weights, gate_up, down):
    """Batched matrix products: every expert's rows on lines of equal length, padded."""
    T, K = ids.shape
    if T == 0:
        return torch.zeros_like(x)
    experts, source, place = _padded_layout(ids, gate_up.shape[0])
    gate_up, down = gate_up.transpose(1, 2), down.transpose(1, 2)  # [E, D, 2F], [E, F, D]
    if experts is not None:
        gate_up, down = gate_up.index_select(0, experts), down.index_select(0, experts)
    lines = gate_up.shape[0]
    rows = x.index_select(0, source).unflatten(0, (lines, len(source) // lines))  # [lines, M, D]
    out = torch.bmm(silu_mul(torch.bmm(rows, gate_up)), down).flatten(0, 1)  # [lines * M, D]
    by_token = out.index_select(0, place).unflatten(0, (T, K))
    return torch.bmm(weights[:, None].to(x.dtype), by_token)[:, 0]


def _padded_layout(ids: torch.Tensor, experts: int):
    """Where each of the T * K rows goes in a batch of lines with M places each.

    Gives the expert of each line, or None for one line per expert in order; `source [lines * M]`,
    the token of each place (0 for padding: its result is not read); `place [T * K]`. In NumPy: for
    short index arrays its calls cost a third of torch's.
    """
    flat = ids.cpu().numpy().ravel()
    order = flat.argsort(kind="stable")
    counts = np.bincount(flat, minlength=experts)
    M, lines = _line_length(counts)
    nth = np.arange(len(flat)) - (counts.cumsum() - counts)[flat[order]]  # 0, 1, ... in its expert
    first_line = lines.cumsum() - lines
    place = np.empty_like(order)
    place[order] = (first_line[flat[order]] + nth // M) * M + nth % M
    source = np.zeros(lines.sum() * M, dtype=np.int64)
    source[place] = np.arange(len(flat)) // ids.shape[1]
    chosen = None
    if (lines != 1).any():
        chosen = torch.from_numpy(np.arange(experts).repeat(lines)).to(ids.device)
    return chosen, *(torch.from_numpy(a).to(ids.device) for a in (source, place))


def _line_length(counts: np.ndarray) -> tuple[int, np.ndarray]:
    """Places per line M, and lines per expert, that cost least.

    One line per expert needs no copy of any weight, but all lines are as long as the busiest
    expert's. Shorter lines, several for a busy expert and none for an idle one, waste fewer places;
    then each line's weights are copied, which costs as much as COPIED_ROWS places.
    """
    most = max(1, int(counts.max()))
    best = (len(counts) * most, most, np.ones_like(counts))
    for M in {most, -(-most // 2), -(-most // 4)}:
        lines = -(-counts // M)
        best = min(best, (lines.sum() * (M + COPIED_ROWS), M, lines), key=lambda option: option[0])
    return best[1:]


def experts_grouped_mm(x, ids, weights, gate_up, down):
    """PyTorch's grouped matrix product: bfloat16 on CUDA, differentiable; our training path."""
    T, K = ids.shape
    order, counts = _sort_by_expert(ids, gate_up.shape[0])
    back = torch.empty_like(order).scatter_(0, order, torch.arange(T * K, device=order.device))
    ends = counts.cumsum(0).to(torch.int32)  # [E]
    x16, gate_up, down = (t.to(torch.bfloat16) for t in (x, gate_up, down))
    rows = ToExperts.apply(x16, order, back, K)  # [T*K, D]
    h = grouped_linear(rows, gate_up, ends)  # [T*K, 2F]
    out = grouped_linear(silu_mul(h), down, ends)  # [T*K, D]
    by_token = FromExperts.apply(out, order, back).view(T, K, -1)
    return (by_token * weights[..., None]).sum(1).to(x.dtype)  # [T, D]


def experts_train(x, ids, weights, gate_up, down):
    """Differentiable path: grouped product on CUDA, padded batch elsewhere."""
    if x.is_cuda:
        return experts_grouped_mm(x, ids, weights, gate_up, down)
    return experts_padded(x, ids, weights, gate_up, down)


def lay_out(gate_up: torch.Tensor, down: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same weights in the memory order that this device's path reads fastest.

    Batched products of small experts on a CPU read a weight with its last two dimensions swapped in
    memory 1.3 to 1.6 times faster (measured, MKL); shapes and values stay.
    """
    if gate_up.is_cuda or _is_large(gate_up):
        return gate_up, down
    return tuple(w.transpose(1, 2).contiguous().transpose(1, 2) for w in (gate_up, down))


def _is_large(gate_up: torch.Tensor) -> bool:
    return gate_up.shape[1] * gate_up.shape[2] * gate_up.itemsize >= LARGE_EXPERT


def choose_path(rows: int, x: torch.Tensor, gate_up: torch.Tensor):
    """The one place that chooses a path: by device, size of an expert and `rows` = T * K."""
    if x.is_cuda:
        return _cuda_path(x, gate_up)[0]
    if _is_large(gate_up):
        return experts_one_token if x.shape[0] == 1 else experts_per_expert
    if rows <= GATHER_ROWS:
        return experts_gather
    return experts_padded


def describe_path(rows: int, x: torch.Tensor, gate_up: torch.Tensor) -> str:
    """Which path `experts_serve` takes, and, for a fallback, why not the fast one."""
    reason = _cuda_path(x, gate_up)[1] if x.is_cuda else None
    name = choose_path(rows, x, gate_up).__name__
    return f"{name} (no Triton path: {reason})" if reason else name


def _cuda_path(x: torch.Tensor, gate_up: torch.Tensor):
    """Our Triton kernels where they run, else PyTorch and the reason."""
    try:
        from minimoe.ops.grouped_experts_triton import experts_triton, unsupported
    except ImportError as error:
        return experts_padded, f"Triton is missing ({error})"
    reason = unsupported(x, gate_up)
    return (experts_padded, reason) if reason else (experts_triton, None)


def experts_serve(x, ids, weights, gate_up, down):
    """The fastest path for this size and device; not differentiable."""
    return choose_path(ids.numel(), x, gate_up)(x, ids, weights, gate_up, down)


def _sort_by_expert(ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Row numbers `[T*K]` in expert order, and rows per expert `[E]`."""
    flat = ids.flatten()
    order = torch.argsort(flat, stable=True)  # stable: the sum over K has one fixed order
    # scatter_add, not bincount: its size is known without waiting for the device
    counts = torch.zeros(experts, dtype=torch.long, device=ids.device)
    return order, counts.scatter_add_(0, flat, torch.ones_like(flat))
