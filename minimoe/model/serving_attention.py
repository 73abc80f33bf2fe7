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
from minimoe.ops.mla_attention import absorbed_attention, expanded_attention, gather_rows
from minimoe.ops.norm import norm_floor, rms_norm, scale_weight, unit_norm
from minimoe.ops.rope import rotate_


class ServingAttention:
    """Attention of one layer. `x [T, D]` is updated in place by `add_to`."""

    def __init__(self, attn: MLA, workspace: "Workspace"):
        config = attn.config
        self.config, self.workspace = config, workspace
        self.H, self.C = config.num_attention_heads, config.kv_lora_rank
        self.N, self.scale = config.qk_nope_head_dim, attn.scale
        self.kv_a = attn.kv_a.weight  # [C + R, D]
        self.latent_floor = norm_floor(self.C, config.rms_norm_eps, self.kv_a)
        self.q_low = None
        if config.q_lora_rank:
            norm = scale_weight(attn.q_norm.weight)
            floor = norm_floor(norm.numel(), config.rms_norm_eps, norm)
            self.q_low = (attn.q_a.weight, norm, floor)
        self.q = attn.q.weight  # [H * (N + R), D or q_lora_rank]
        self.o = attn.o.weight.t()  # [H * v_head_dim, D]
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
        self.merged_in = torch.cat([heads.flatten(0, 1), self.kv_a.double()]).to(dtype)
        o = self.o.double().unflatten(0, (self.H, -1))  # [H, v_head_dim, D]
        out = torch.einsum("hvc,hvd->hcd", value_up, o)
        self.merged_out = out.reshape(self.H * self.C, D).to(dtype)

    def add_to(self, x, y, pages, step: Step, turns) -> None:
        """Add the attention of `y [T, D]` (normalised x) to `x`, and write the new KV rows into
        `pages [blocks, block_size, C + R]`. `turns [T, 1, R/2]` are the rotations."""
        short = step.short
        split = short.tokens if short else 0
        if short:
            part = slice(0, split)
            self._add_short(x[part], y[part], pages, short, step.slots[part], turns[part])
        for request in step.long:
            part = slice(request.start, request.end)
            self._add_long(x[part], y[part], pages, request, step.slots[part], turns[part])

    def _add_short(self, x, y, pages, group: ShortGroup, slots, turns) -> None:
        heads = self._absorbed_heads(y)  # [T, H + 1, C + R], the last one is the KV row
        rotate_(heads[..., self.C :], turns)
        self._write(heads[:, self.H], pages, slots)
        q = heads[:, : self.H]
        q = q.unflatten(0, (-1, group.new_tokens)) if group.pad is None else q[group.pad]
        rows = gather_rows(pages, group.block_table, group.length, self.workspace.rows(pages))
        out = absorbed_attention(q, rows, group.mask, self.C).flatten(0, 1)  # [B*L, H, C]
        if group.unpad is not None:
            out = out[group.unpad]
        if self.merged_out is not None:
            x.addmm_(out.flatten(1), self.merged_out)
        else:
            values = torch.bmm(out.transpose(0, 1), self.value_up).transpose(0, 1)
            x.addmm_(values.flatten(1), self.o)

    def _absorbed_heads(self, y: torch.Tensor) -> torch.Tensor:
        """`y [T, D]` to absorbed, scaled queries and the new KV row, `[T, H + 1, C + R]`."""
        if self.merged_in is not None:
            return F.linear(y, self.merged_in).unflatten(-1, (self.H + 1, -1))
        q = self._queries(y)  # [T, H, N + R]
        nope = torch.bmm(q[..., : self.N].transpose(0, 1), self.key_up).transpose(0, 1)
        heads = torch.cat([nope, q[..., self.N :] * self.scale], dim=-1)  # [T, H, C + R]
        return torch.cat([heads, F.linear(y, self.kv_a)[:, None]], dim=1)

    def _queries(self, y: torch.Tensor) -> torch.Tensor:
        if self.q_low is not None:
            down, norm, floor = self.q_low
            y = rms_norm(F.linear(y, down), norm, floor)
        return F.linear(y, self.q).unflatten(-1, (self.H, -1))

    def _add_long(self, x, y, pages, request: LongRequest, slots, turns) -> None:
        q = self._queries(y)  # [L, H, N + R]
        rotate_(q[..., self.N :], turns)
        row = F.linear(y, self.kv_a)  # [L, C + R]
        rotate_(row[:, None, self.C :], turns)
        self._write(row, pages, slots)
        rows = gather_rows(pages, request.block_table, request.length)[0]  # [S, C + R]
        k, v = self._expand(rows)
        x.addmm_(expanded_attention(q, k, v, self.scale).flatten(1), self.o)

    def _expand(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cached rows `[S, C + R]` to keys `[S, H, N + R]` and values `[S, H, v_head_dim]`."""
        kv = F.linear(rows[:, : self.C], self.kv_b).unflatten(-1, (self.H, -1))
        rope = rows[:, None, self.C :].expand(-1, self.H, -1)
        return torch.cat([kv[..., : self.N], rope], dim=-1), kv[..., self.N :]

    def _write(self, row: torch.Tensor, pages: torch.Tensor, slots: torch.Tensor) -> None:
        """Normalise the latent of `row [T, C + R]` in place and store the row at its slot."""
        latent = row[:, : self.C]
        latent.copy_(unit_norm(latent, self.latent_floor))
        pages.view(-1, pages.shape[-1]).index_copy_(0, slots, row)


class Workspace:
    """One buffer, as large as the largest gather so far, that all layers share.

    Fresh memory for every gather of a long context costs as much as the copy itself.
    """

    def __init__(self):
        self.buffer = None
        self.needed = 0  # values; set once a step

    def rows(self, pages: torch.Tensor) -> torch.Tensor:
        if self.buffer is None or self.buffer.numel() < self.needed:
            self.buffer = pages.new_empty(self.needed)
        return self.buffer
