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


def gather_rows(pages: torch.Tensor, block_table: torch.Tensor, length: int, out=None):
    """Rows of each request side by side: `pages [blocks, block_size, W]` and `block_table [B, M]`
    to `[B, length, W]`. With a workspace `out` nothing is allocated."""
    B, M = block_table.shape
    flat = pages.flatten(1)  # [blocks, block_size * W]
    if out is None:
        rows = flat.index_select(0, block_table.flatten())
    else:
        rows = out[: B * M * flat.shape[1]].view(B * M, -1)
        torch.index_select(flat, 0, block_table.flatten(), out=rows)
    return rows.view(B, -1, pages.shape[2])[:, :length]


def absorbed_attention(q, rows, mask, latent: int):
    """Queries `q [B, L, H, C + R]`, already scaled, over `rows [B, S, C + R]`; `mask [B, L, S]` is
    0 where a token may look and -inf elsewhere, or None. Gives `[B, L, H, C]`."""
    B, L, H, W = q.shape
    q = q.reshape(B, L * H, W)
    if mask is None:
        scores = torch.bmm(q, rows.transpose(1, 2))  # [B, L*H, S]
    else:
        if L > 1:
            mask = mask[:, :, None].expand(-1, -1, H, -1).reshape(B, L * H, -1)
        scores = torch.baddbmm(mask, q, rows.transpose(1, 2))
    share = torch.softmax(scores, dim=-1)
    return torch.bmm(share, rows[..., :latent]).view(B, L, H, latent)


def expanded_attention(q, k, v, scale: float):
    """One request's chunk: `q [L, H, N + R]` are the last L of S positions, `k [S, H, N + R]`,
    `v [S, H, v_head_dim]`. Gives `[L, H, v_head_dim]`."""
    L, S, width = q.shape[0], k.shape[0], v.shape[-1]
    if width != q.shape[-1]:  # equal widths reach the fast kernel of a CPU
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
