"""MLA as it is served: a paged cache of C + R values per token, absorbed decode.

Folding the key up-projection into the query projection, and the value up-projection into the output
projection, leaves nothing to expand per cached token (DeepSeek-V2, arXiv 2405.04434, 2.1.2). For a
small model the folded product is multiplied out once (`merged`); for a large one it would be bigger
than its two factors, so they stay apart.
"""

import torch
import torch.nn.functional as F

from minimoe.model.attention import MLA
from minimoe.model.step import LongRequest, ShortGroup, Step
from minimoe.ops.columns import by_columns
from minimoe.ops.mla_attention import (
    absorbed_attention,
    decode_path,
    expanded_attention,
    gather_rows,
)
from minimoe.ops.norm import norm_floor, rms_norm, scale_weight, unit_norm_
from minimoe.ops.rope import rotate, rotate_heads_


class ServingAttention:
    """Attention of one layer; `x [T, D]` is updated in place by `add_to`."""

    def __init__(self, attn: MLA):
        config = attn.config
        self.config, self.scale = config, attn.scale
        self.H, self.C, self.N = (
            config.num_attention_heads,
            config.kv_lora_rank,
            config.qk_nope_head_dim,
        )
        self.kv_a = attn.kv_a.weight  # [C + R, D]
        self.latent_floor = norm_floor(self.C, config.rms_norm_eps, self.kv_a)
        self.q_low = None
        if config.q_lora_rank:
            norm = scale_weight(attn.q_norm.weight)
            floor = norm_floor(norm.numel(), config.rms_norm_eps, norm)
            self.q_low = (attn.q_a.weight, norm, floor)
        self.q = attn.q.weight  # [H * (N + R), D or q_lora_rank]
        self.o = by_columns(attn.o.weight)  # [H * v_head_dim, D]
        # The cache holds unit latents; the norm's weight goes into the up-projection.
        kv_b = attn.kv_b.weight.double() * attn.kv_norm.weight.double() * self.C**0.5
        self.kv_b = kv_b.to(self.q.dtype)
        by_head = kv_b.unflatten(0, (self.H, -1))
        key_up, value_up = by_head.split([self.N, config.v_head_dim], dim=1)
        self.key_up = (key_up * self.scale).to(self.q.dtype)  # [H, N, C]
        self.value_up = value_up.transpose(1, 2).to(self.q.dtype)  # [H, C, v_head_dim]
        self.merged_in = self.merged_out = None
        if self._merging_pays():
            self._merge(key_up, value_up)

    def _merging_pays(self) -> bool:
        """Merged, the query projection has H * C rows in place of H * N: worth it if small."""
        apart = self.q.numel() + self.key_up.numel()
        merged = self.H * self.config.kv_width * self.config.hidden_size
        return self.q_low is None and merged <= 1.5 * apart

    def _merge(self, key_up: torch.Tensor, value_up: torch.Tensor) -> None:
        """One matrix for absorbed queries of all heads and the new KV row, one for the output."""
        D, dtype = self.config.hidden_size, self.q.dtype
        q = self.q.double().unflatten(0, (self.H, -1))  # [H, N + R, D]
        nope = torch.einsum("hnc,hnd->hcd", key_up, q[:, : self.N])
        heads = torch.cat([nope, q[:, self.N :]], dim=1) * self.scale  # [H, C + R, D]
        merged = torch.cat([heads.flatten(0, 1), self.kv_a.double()])
        self.merged_in = by_columns(merged.to(dtype))  # [D, (H + 1) * (C + R)]
        o = self.o.double().unflatten(0, (self.H, -1))  # [H, v_head_dim, D]
        out = torch.einsum("hvc,hvd->hcd", value_up, o)
        self.merged_out = out.reshape(self.H * self.C, D).to(dtype)

    def add_to(self, x, y, pages: "Pages", step: Step, turns) -> None:
        """Add the attention of `y [T, D]` (normalised x) to `x`, and write the new KV rows into
        `pages`. `turns [T, 1, (C + R)/2]` are the rotations of whole cache rows."""
        if not step.long:
            return self._add_short(x, y, pages, step.short, step.slots, turns)
        if step.short:
            part = slice(0, step.short.tokens)
            self._add_short(x[part], y[part], pages, step.short, step.slots[part], turns[part])
        for request in step.long:
            part = slice(request.start, request.end)
            self._add_long(x[part], y[part], pages, request, step.slots[part], turns[part])

    def _add_short(self, x, y, pages, group: ShortGroup, slots, turns) -> None:
        heads = self._absorbed_heads(y)  # [T, H + 1, C + R], the last one is the KV row
        rotate_heads_(heads, turns)
        self._write(heads[:, self.H], pages, slots)
        q = heads[:, : self.H]
        out = self._attend(q, pages, group).view(-1, self.H * self.C)  # [B*L, H*C]
        if group.unpad is not None:
            out = out[group.unpad]
        if self.merged_out is not None:
            x.addmm_(out, self.merged_out)
        else:
            heads = out.view(-1, self.H, self.C).transpose(0, 1)
            values = torch.bmm(heads, self.value_up).transpose(0, 1)
            x.addmm_(values.flatten(1), self.o)

    def _attend(self, q: torch.Tensor, pages: "Pages", group: ShortGroup) -> torch.Tensor:
        """Absorbed queries `q [T, H, C + R]` to `[B, L * H, C]`."""
        if group.lengths is not None:  # one new token a request on a GPU
            decode, _ = decode_path(q, pages.kv, self.C)
            table = group.block_table.view(group.requests, -1)
            return decode(q, pages.kv, table, group.lengths, group.length, self.C)
        if group.pad is not None:
            q = q[group.pad]  # [B, L, H, C + R]
        if group.new_tokens > 1:
            q = q.reshape(group.requests, group.new_tokens * self.H, -1)
        rows = pages.gather(group.block_table, group.requests)[:, : group.length]  # [B, S, C + R]
        return absorbed_attention(q, rows, group.mask, self.C)

    def _absorbed_heads(self, y: torch.Tensor) -> torch.Tensor:
        """`y [T, D]` to absorbed, scaled queries and the new KV row, `[T, H + 1, C + R]`."""
        if self.merged_in is not None:
            return torch.mm(y, self.merged_in).view(len(y), self.H + 1, -1)
        q = self._queries(y)  # [T, H, N + R]
        nope = torch.bmm(q[..., : self.N].transpose(0, 1), self.key_up).transpose(0, 1)
        heads = torch.cat([nope, q[..., self.N :] * self.scale], dim=-1)  # [T, H, C + R]
        return torch.cat([heads, F.linear(y, self.kv_a)[:, None]], dim=1)

    def _queries(self, y: torch.Tensor) -> torch.Tensor:
        if self.q_low is not None:
            down, norm, floor = self.q_low
            y = rms_norm(F.linear(y, down), norm, floor)
        return F.linear(y, self.q).view(len(y), self.H, -1)

    def _add_long(self, x, y, pages, request: LongRequest, slots, turns) -> None:
        q = self._queries(y)  # [L, H, N + R]
        q = torch.cat([q[..., : self.N], rotate(q[..., self.N :], turns[..., self.C // 2 :])], -1)
        row = F.linear(y, self.kv_a)[:, None]  # [L, 1, C + R]
        rotate_heads_(row, turns)
        self._write(row[:, 0], pages, slots)
        rows = pages.gather(request.block_table, 1)[0, : request.length]  # [S, C + R]
        k, v = self._expand(rows)
        x.addmm_(expanded_attention(q, k, v, self.scale).flatten(1), self.o)

    def _expand(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cached rows `[S, C + R]` to keys `[S, H, N + R]` and values `[S, H, v_head_dim]`."""
        kv = F.linear(rows[:, : self.C], self.kv_b).view(len(rows), self.H, -1)
        rope = rows[:, None, self.C :].expand(-1, self.H, -1)
        return torch.cat([kv[..., : self.N], rope], dim=-1), kv[..., self.N :]

    def _write(self, row: torch.Tensor, pages: "Pages", slots: torch.Tensor) -> None:
        """Normalise the latent of `row [T, C + R]` in place and store the row at its slot."""
        unit_norm_(row[:, : self.C], self.latent_floor)
        pages.rows.index_copy_(0, slots, row)


class Pages:
    """The KV cache of one layer, seen as rows and as blocks; views made once, not at each step.

    Gathers go to a workspace that all layers share: fresh memory for a long context costs as much
    as the copy itself.
    """

    def __init__(self, kv: torch.Tensor, workspace: torch.Tensor | None = None):
        self.kv, self.width = kv, kv.shape[-1]
        self.rows = kv.view(-1, self.width)  # [blocks * block_size, C + R]
        self.blocks = kv.flatten(1)  # [blocks, block_size * (C + R)]
        self.workspace = workspace

    def gather(self, block_table: torch.Tensor, requests: int) -> torch.Tensor:
        """Rows of each request, `[B, M * block_size, C + R]`, valid until the next gather."""
        fits = len(block_table) * self.blocks.shape[1] <= self.workspace.numel()
        out = self.workspace if fits else None
        return gather_rows(self.blocks, block_table, out).view(requests, -1, self.width)
