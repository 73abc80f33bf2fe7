"""MLA attention over a paged latent cache, for a flat step of many requests.

A cached row is the latent (C values) and the rotary key (R values) that all heads share. Two forms
give the same result (DeepSeek-V2, arXiv 2405.04434, 2.1.2):

* absorbed: the key up-projection is folded into the query, so attention runs on the C + R values
  as they lie in the cache. Least memory traffic: for few new tokens (decode, drafts to verify).
* expanded: keys and values are made per head from the latents. Fewer operations per pair of
  positions: for many new tokens (prefill).
"""

import torch
import torch.nn.functional as F


def mla_naive(q, rows, positions, scale, latent):
    """The oracle: one request. `q [L, H, C + R]` absorbed, its cached `rows [S, C + R]`, the new
    tokens' `positions [L]`; gives `[L, H, C]`. A token sees rows up to its own position."""
    out = q.new_zeros(*q.shape[:2], latent)
    for i, position in enumerate(positions.tolist()):
        seen = rows[: position + 1]
        for head in range(q.shape[1]):
            share = torch.softmax(seen @ q[i, head] * scale, dim=0)  # [S]
            out[i, head] = share @ seen[:, :latent]
    return out


def gather_rows(pages: torch.Tensor, block_table: torch.Tensor, out=None) -> torch.Tensor:
    """Pages side by side: `pages [blocks, block_size * W]` and the flat `block_table [B * M]` to
    `[B * M, block_size * W]`. With a flat workspace `out`, which must be large enough, nothing is
    allocated."""
    if out is None:
        return pages.index_select(0, block_table)
    rows = out[: len(block_table) * pages.shape[1]].view(len(block_table), -1)
    return torch.index_select(pages, 0, block_table, out=rows)


def absorbed_attention(q, rows, mask, latent: int):
    """Queries `q [B, L * H, C + R]`, already scaled, over `rows [B, S, C + R]`; `mask` is 0 where a
    query may look and -inf elsewhere, `[B, 1 or L * H, S]` or None. Gives `[B, L * H, C]`."""
    keys = rows.transpose(1, 2)
    scores = torch.bmm(q, keys) if mask is None else torch.baddbmm(mask, q, keys)
    return torch.bmm(torch.softmax(scores, -1), rows[..., :latent])


def decode_gathered(q, pages, block_table, lengths, longest: int, latent: int):
    """One new token a request: scaled queries `q [B, H, C + R]` over `pages [blocks, block_size,
    C + R]` by `block_table [B, M]` and `lengths [B]`, of which `longest` is the largest. Gives
    `[B, H, C]`. The PyTorch path: gather the rows, then absorbed attention."""
    rows = gather_rows(pages.flatten(1), block_table.flatten())
    rows = rows.view(len(q), -1, pages.shape[2])[:, :longest]
    future = torch.arange(rows.shape[1], device=q.device) >= lengths[:, None]
    mask = torch.zeros(future.shape, dtype=q.dtype, device=q.device)
    mask = mask.masked_fill_(future, -torch.inf)[:, None]
    return absorbed_attention(q, rows, mask, latent)


def decode_path(q: torch.Tensor, pages: torch.Tensor, latent: int):
    """The one place that chooses how a GPU decodes: the function, and which path it is or why our
    Triton kernel cannot run."""
    try:
        from minimoe.ops.mla_attention_triton import decode_triton, unsupported
    except ImportError as error:
        return decode_gathered, f"decode_gathered (no Triton path: Triton is missing ({error}))"
    if reason := unsupported(q, pages, latent):
        return decode_gathered, f"decode_gathered (no Triton path: {reason})"
    return decode_triton, "decode_triton"


def expanded_attention(q, k, v, scale: float):
    """One request's chunk: `q [L, H, N + R]` are the last L of S positions, `k [S, H, N + R]`,
    `v [S, H, v_head_dim]`. Gives `[L, H, v_head_dim]`."""
    L, S, width = q.shape[0], k.shape[0], v.shape[-1]
    if width < q.shape[-1]:  # equal widths reach the fast kernel of a CPU
        v = F.pad(v, (0, q.shape[-1] - width))
    mask = None
    if L < S:  # the chunk's first token sees the S - L cached positions and itself
        mask = q.new_zeros(L, S).masked_fill_(_future(L, S, q.device), float("-inf"))
    q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, scale=scale)
    return out[0].transpose(0, 1)[..., :width]


def _future(L: int, S: int, device) -> torch.Tensor:
    positions = torch.arange(S, device=device)
    return positions[None] > positions[S - L :, None]  # [L, S]
