"""Our grouped product equals the oracle in float64, on random and adversarial routings."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from triton_device import DEVICE, DTYPES, HOPPER, TOLERANCE, error

from minimoe.ops.expert_plans import DECODE, PREFILL, choose
from minimoe.ops.grouped_experts import experts_naive
from minimoe.ops.grouped_experts_triton import experts_triton
from minimoe.ops.sort_rows_triton import sort_rows

SHAPES = [(1, 1, 3, 32, 16), (5, 2, 7, 48, 24), (37, 3, 5, 64, 48), (150, 2, 3, 40, 32)]


def layer(T, K, E, D, F, dtype):
    generator = torch.Generator().manual_seed(T)
    draw = lambda *size: torch.randn(*size, generator=generator)  # noqa: E731
    x, gate_up, down = draw(T, D), draw(E, 2 * F, D) / D**0.5, draw(E, D, F) / F**0.5
    ids = torch.stack([torch.randperm(E, generator=generator)[:K] for _ in range(T)])
    weights = torch.rand(T, K, generator=generator)
    move = lambda t: t.to(DEVICE, dtype)  # noqa: E731
    return move(x), ids.to(DEVICE), weights.to(DEVICE), move(gate_up), move(down)


def oracle(x, ids, weights, gate_up, down):
    weights = torch.where(ids >= 0, weights.double(), 0)
    wide = (t.double().cpu() for t in (x, gate_up, down))
    x, gate_up, down = wide
    return experts_naive(x, ids.clamp(min=0).cpu(), weights.cpu(), gate_up, down)


def reroute(case: str, ids: torch.Tensor, E: int) -> torch.Tensor:
    """Adversarial routings. -1: the expert is on another rank."""
    ids = ids.clone()
    if case == "some elsewhere":
        ids[:, 0] = -1
        ids[::3] = -1
    if case == "one hot expert":
        ids[:] = -1
        ids[:, 0] = E - 1
    if case == "nothing here":
        ids[:] = -1
    if case == "empty experts":
        ids[ids == E // 2] = -1
        ids[ids == E - 1] = -1
    return ids


PLANS = {f"decode {rows}": ("decode", tiles) for rows, tiles in DECODE.items()}
PLANS |= {f"prefill {i}": ("prefill", tiles) for i, tiles in enumerate(PREFILL.values())}
CASES = ["random", "some elsewhere", "one hot expert", "nothing here", "empty experts"]


@pytest.mark.skipif(not HOPPER, reason="needs a Hopper GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_hopper_kernel_equals_the_oracle(dtype):
    shapes = [*SHAPES, (300, 3, 5, 136, 200), (40, 1, 2, 64, 264)]  # widths that no tile divides
    for shape in shapes:
        check_cases(shape, dtype, ("hopper", (None, None)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("plan", PLANS)
def test_equals_oracle(plan, dtype):
    for shape in SHAPES[1:3] if DEVICE == "cpu" else SHAPES:
        check_cases(shape, dtype, PLANS[plan])


def check_cases(shape, dtype, plan):
    x, ids, weights, gate_up, down = layer(*shape, dtype)
    for case in CASES:
        routing = reroute(case, ids, shape[2])
        got = experts_triton(x, routing, weights, gate_up, down, plan=plan)
        want = oracle(x, routing, weights, gate_up, down)
        assert error(got.cpu(), want) <= TOLERANCE[dtype], (shape, case)


def test_no_rows():
    x, ids, weights, gate_up, down = layer(5, 2, 7, 48, 24, torch.float32)
    out = experts_triton(x[:0], ids[:0], weights[:0], gate_up, down)
    assert out.shape == (0, 48)


def test_nan_stays_in_its_row():
    x, ids, weights, gate_up, down = layer(5, 2, 7, 48, 24, torch.float32)
    clean = experts_triton(x, ids, weights, gate_up, down)
    x[3] = float("nan")
    out = experts_triton(x, ids, weights, gate_up, down)
    keep = [0, 1, 2, 4]
    assert out[3].isnan().all() and torch.equal(out[keep], clean[keep])


@pytest.mark.parametrize("R, E", [(1, 1), (7, 3), (4096, 5), (9000, 6)])
def test_sort_is_stable_and_complete(R, E):
    ids = torch.randint(-1, E, (R,), generator=torch.Generator().manual_seed(R))
    if R > 8000 and DEVICE == "cpu":
        ids[:4000] = -1
    rows, starts = sort_rows(ids.to(DEVICE), E)
    starts = starts.tolist()
    for expert in range(E):
        want = (ids == expert).nonzero().flatten()
        assert torch.equal(rows[starts[expert] : starts[expert + 1]].cpu().long(), want)
    assert starts[0] == 0 and starts[-1] == int((ids >= 0).sum())


def test_the_table_covers_every_size():
    assert choose(0.5)[0] == "decode" and choose(64)[0] == "decode"
    assert choose(128)[0] == "prefill" and choose(1e6)[0] == "prefill"
    if HOPPER:
        assert choose(128, hopper=True)[0] == "prefill"
        assert choose(1e6, hopper=True)[0] == "hopper"


@pytest.mark.skipif(DEVICE != "cuda", reason="a CUDA graph needs a GPU")
@pytest.mark.parametrize("plan", ["decode 64", "decode 96", "prefill 1", "hopper"])
def test_a_captured_graph_follows_new_routings(plan):
    if plan == "hopper" and not HOPPER:
        pytest.skip("needs a Hopper GPU")
    plan = PLANS[plan] if plan in PLANS else choose(1e6, hopper=True)
    shape = (37, 3, 5, 64, 48)
    x, ids, weights, gate_up, down = layer(*shape, torch.bfloat16)
    experts_triton(x, ids, weights, gate_up, down, plan=plan)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = experts_triton(x, ids, weights, gate_up, down, plan=plan)
    for case in CASES:
        ids.copy_(reroute(case, layer(*shape, torch.bfloat16)[1], 5))
        graph.replay()
        again = experts_triton(x, ids, weights, gate_up, down, plan=plan)
        assert torch.equal(out, again), case
        assert error(out.cpu(), oracle(x, ids, weights, gate_up, down)) <= 1e-2, case
