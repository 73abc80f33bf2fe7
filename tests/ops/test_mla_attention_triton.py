"""Decode attention equals the oracle in float64, at block and part edges, in any company."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from triton_device import DEVICE, DTYPES, HOPPER, TOLERANCE, error

from minimoe.ops.mla_attention_triton import TILE, WIDE, mla_decode_triton

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


def small_parts():
    """A tile whose parts are so short that a few positions already make several."""
    return replace(TILE, part=32, keys=32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("parts", ["short parts", "one part"])
def test_equals_oracle(case, dtype, parts):
    arguments = problem(*case, dtype)
    tile = small_parts() if parts == "short parts" and dtype != torch.float32 else None
    got = mla_decode_triton(*arguments, tile=tile)
    assert error(got.cpu(), oracle(*arguments)) <= TOLERANCE[dtype]


@pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("page", [16, 64])
def test_the_wide_kernel_equals_oracle(page, dtype):
    lengths = [1, 0, 63, 64, 65, 1024, 1025, 2500, 127, 128, 40000]
    arguments = problem(64, 512, 64, page, lengths, dtype)
    pages, table = arguments[1:3]
    for b, length in enumerate(lengths):  # what lies past the end must not matter
        if length % page:
            pages[table[b, length // page], length % page :] = float("nan")
    want = oracle(*arguments)
    for _ in range(3):  # a race would show as a changing result
        got = mla_decode_triton(*arguments, tile=WIDE)
        assert error(got.cpu(), want) <= TOLERANCE[dtype]
    few = [arguments[0][:, :40].contiguous(), *arguments[1:]]
    assert error(mla_decode_triton(*few, tile=WIDE).cpu(), want[:, :40]) <= TOLERANCE[dtype]


def test_large_scores_do_not_overflow():
    q, pages, table, lengths, _, C = problem(*CASES[1], torch.float16)
    got = mla_decode_triton(q * 30, pages, table, lengths, 10.0, C)
    assert got.isfinite().all()


def test_a_request_does_not_depend_on_its_company():
    q, pages, table, lengths, scale, C = problem(*CASES[1], torch.float16)
    tile = small_parts()
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
