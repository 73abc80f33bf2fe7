"""Decode attention equals the oracle in float64, at block and part edges, in any company."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from triton_device import DEVICE, DTYPES, TOLERANCE, error

from minimoe.ops.mla_attention_triton import TILES, mla_decode_triton

CASES = [  # heads, C, R, page, lengths
    (1, 16, 16, 16, [1]),
    (6, 64, 16, 16, [0, 15, 16, 17, 100]),
    (16, 32, 16, 64, [64, 130, 1, 63, 65]),
    (20, 16, 16, 16, [48, 0, 33, 32, 31]),
]


def problem(heads, C, R, page, lengths, dtype):
    generator = torch.Generator().manual_seed(heads)
    pages_each = -(-max(lengths) // page) or 1
    blocks = len(lengths) * pages_each + 3
    table = torch.randperm(blocks, generator=generator)[: blocks - 3].view(len(lengths), -1)
    pages = torch.randn(blocks, page, C + R, generator=generator)
    q = torch.randn(len(lengths), heads, C + R, generator=generator)
    move = lambda t: t.to(DEVICE, dtype)  # noqa: E731
    lengths = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    return move(q), move(pages), table.int().to(DEVICE), lengths, 0.1, C


def oracle(q, pages, table, lengths, scale, C):
    q, pages = q.double().cpu(), pages.double().cpu()
    out = torch.zeros(*q.shape[:2], C, dtype=torch.float64)
    for b, length in enumerate(lengths.tolist()):
        if length:
            rows = pages[table[b].long().cpu()].flatten(0, 1)[:length]
            out[b] = torch.softmax(q[b] @ rows.T * scale, dim=-1) @ rows[:, :C]
    return out


def small_parts(heads):
    """A tile whose parts are so short that a few positions already make several."""
    tile = TILES[16]
    return replace(tile, part=32, keys=32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("parts", ["short parts", "one part"])
def test_equals_oracle(case, dtype, parts):
    arguments = problem(*case, dtype)
    tile = small_parts(case[0]) if parts == "short parts" and dtype != torch.float32 else None
    got = mla_decode_triton(*arguments, tile=tile)
    assert error(got.cpu(), oracle(*arguments)) <= TOLERANCE[dtype]


def test_large_scores_do_not_overflow():
    q, pages, table, lengths, _, C = problem(*CASES[1], torch.float16)
    got = mla_decode_triton(q * 30, pages, table, lengths, 10.0, C)
    assert got.isfinite().all()


def test_a_request_does_not_depend_on_its_company():
    q, pages, table, lengths, scale, C = problem(*CASES[1], torch.float16)
    tile = small_parts(6)
    together = mla_decode_triton(q, pages, table, lengths, scale, C, tile)
    for b in range(len(lengths)):
        one = slice(b, b + 1)
        alone = mla_decode_triton(q[one], pages, table[one], lengths[one], scale, C, tile)
        assert torch.equal(alone, together[one]), b


@pytest.mark.skipif(DEVICE != "cuda", reason="a CUDA graph needs a GPU")
def test_a_captured_graph_follows_new_lengths():
    q, pages, table, lengths, scale, C = problem(*CASES[1], torch.bfloat16)
    mla_decode_triton(q, pages, table, lengths, scale, C)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = mla_decode_triton(q, pages, table, lengths, scale, C)
    for change in ([1, 2, 3, 4, 5], [100, 0, 16, 0, 1], [0, 0, 0, 0, 0]):
        lengths.copy_(torch.tensor(change))
        graph.replay()
        assert error(out.cpu(), oracle(q, pages, table, lengths, scale, C)) <= 1e-2, change
