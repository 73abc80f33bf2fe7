"""Both forms of MLA attention, rotary embedding and norm against their naive oracles."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minimoe.ops.mla_attention import (
    absorbed_attention,
    expanded_attention,
    gather_rows,
    mla_naive,
)
from minimoe.ops.norm import norm_floor, rms_norm, rms_norm_naive, scale_weight
from minimoe.ops.rope import rope_table, rotate, rotate_heads_, rotate_naive, widen_turns


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("L", "S"), [(1, 1), (1, 16), (1, 17), (3, 3), (3, 40)])
def test_absorbed(L, S):
    B, H, C, R = 2, 3, 6, 4
    q, rows = randn(B, L, H, C + R), randn(B, S, C + R, seed=1)
    positions = torch.arange(S - L, S)
    future = torch.arange(S) > positions[:, None]
    mask = torch.zeros(B, L, S, dtype=torch.float64).masked_fill_(future, -torch.inf)
    mask = mask if L == 1 else mask.repeat_interleave(H, dim=1)
    got = absorbed_attention(q.flatten(1, 2) * 0.3, rows, mask, C).view(B, L, H, C)
    for b in range(B):
        expected = mla_naive(q[b], rows[b], positions, 0.3, C)
        torch.testing.assert_close(got[b], expected)


@pytest.mark.parametrize(("L", "S"), [(1, 1), (5, 5), (2, 9), (16, 33)])
def test_expanded_equals_absorbed(L, S):
    """With keys and values made from the latents, both forms are the same function."""
    H, C, R, N, V = 3, 6, 4, 5, 7
    latents, k_rope = randn(S, C), randn(S, R, seed=1)
    key_up, value_up = randn(H, N, C, seed=2), randn(H, V, C, seed=3)
    q = randn(L, H, N + R, seed=4)
    k = torch.einsum("sc,hnc->shn", latents, key_up)
    k = torch.cat([k, k_rope[:, None].expand(-1, H, -1)], -1)
    v = torch.einsum("sc,hvc->shv", latents, value_up)
    got = expanded_attention(q, k, v, 0.3)
    absorbed = torch.cat([torch.einsum("lhn,hnc->lhc", q[..., :N], key_up), q[..., N:]], -1)
    rows = torch.cat([latents, k_rope], -1)
    out = mla_naive(absorbed, rows, torch.arange(S - L, S), 0.3, C)
    torch.testing.assert_close(got, torch.einsum("lhc,hvc->lhv", out, value_up))


@pytest.mark.parametrize("workspace", [False, True])
def test_gather_rows_follows_the_block_table(workspace):
    pages = randn(6, 4, 3)
    table = torch.tensor([[5, 0, 2], [1, 1, 3]])
    out = torch.empty(1000, dtype=torch.float64) if workspace else None
    rows = gather_rows(pages.flatten(1), table.flatten(), out).view(2, 12, 3)
    for b in range(2):
        for s in range(10):
            assert torch.equal(rows[b, s], pages[table[b, s // 4], s % 4])


@given(st.lists(st.floats(-9, 9), min_size=2, max_size=8), st.integers(0, 500))
def test_rope(values, position):
    values = values[: len(values) // 2 * 2]
    turns = rope_table(501, len(values), 10000.0)[position]
    x = torch.tensor(values, dtype=torch.float64)
    expected = torch.tensor(rotate_naive(values, position, 10000.0), dtype=torch.float64)
    torch.testing.assert_close(rotate(x, turns), expected, atol=1e-4, rtol=0)
    row = torch.cat([torch.ones(2), x])[None, None]  # two values that are not rotary come first
    rotate_heads_(row, widen_turns(turns[None], 2))
    torch.testing.assert_close(row[0, 0], torch.cat([torch.ones(2), rotate(x, turns)]).double())


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=9))
def test_rms_norm(values):
    x = torch.tensor([values], dtype=torch.float64)
    weight = torch.linspace(0.5, 2, len(values), dtype=torch.float64)
    got = rms_norm(x, scale_weight(weight), norm_floor(len(values), 1e-6, weight))
    expected = torch.tensor([rms_norm_naive(values, weight.tolist(), 1e-6)], dtype=torch.float64)
    torch.testing.assert_close(got, expected)
