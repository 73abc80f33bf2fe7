"""Every path of the expert layer against the naive oracle."""

import pytest
import torch

from minimoe.ops import streamed_products
from minimoe.ops.grouped_experts import (
    choose_path,
    experts_gather,
    experts_naive,
    experts_one_token,
    experts_padded,
    experts_per_expert,
    experts_serve,
    experts_train,
)

PATHS = [experts_gather, experts_per_expert, experts_padded, experts_serve, experts_train]


def layer(E: int, D: int = 12, width: int = 8, seed: int = 0):
    random = torch.Generator().manual_seed(seed)
    gate_up = torch.randn(E, 2 * width, D, dtype=torch.float64, generator=random)
    down = torch.randn(E, D, width, dtype=torch.float64, generator=random)
    return gate_up, down


def random_ids(T: int, E: int, K: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(T + E + K)
    return torch.rand(T, E, generator=random).topk(K).indices


def check(path, ids: torch.Tensor, E: int) -> None:
    T, K = ids.shape
    random = torch.Generator().manual_seed(7)
    x = torch.randn(T, 12, dtype=torch.float64, generator=random)
    weights = torch.rand(T, K, dtype=torch.float64, generator=random)
    gate_up, down = layer(E)
    got = path(x, ids, weights, gate_up, down)
    expected = experts_naive(x, ids, weights, gate_up, down)
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("T", [1, 2, 5, 16, 67])
@pytest.mark.parametrize(("E", "K"), [(8, 2), (64, 4), (5, 5), (3, 1), (1, 1)])
def test_random_routing(path, T, E, K):
    check(path, random_ids(T, E, K), E)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "ids",
    [
        torch.zeros(20, 1, dtype=torch.long),  # one hot expert, the others empty
        torch.full((9, 1), 7),  # only the last
        torch.tensor([[0, 7]] * 9 + [[3, 0]]),  # gaps between the experts hit
        torch.arange(8)[:, None],  # each expert once
        torch.zeros(0, 2, dtype=torch.long),  # no rows at all
    ],
    ids=["one hot", "last", "gaps", "each once", "none"],
)
def test_adversarial_routing(path, ids):
    check(path, ids, 8)


def test_training_path_has_the_right_gradients():
    ids, (gate_up, down) = random_ids(6, 5, 2), layer(5)
    x = torch.randn(6, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weights = torch.rand(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    leaves = [t.requires_grad_() for t in (x, weights, gate_up, down)]
    grads = torch.autograd.grad(experts_train(x, ids, weights, gate_up, down).sum(), leaves)
    out = torch.zeros((), dtype=torch.float64)
    for t in range(6):  # the oracle again, in a form that autograd follows
        for k in range(2):
            gate, up = (gate_up[ids[t, k]] @ x[t]).chunk(2)
            hidden = torch.nn.functional.silu(gate) * up
            out = out + weights[t, k] * (down[ids[t, k]] @ hidden).sum()
    for got, expected in zip(grads, torch.autograd.grad(out, leaves), strict=True):
        torch.testing.assert_close(got, expected)


def float32_case(counts: list[int], D: int = 16, width: int = 8, seed: int = 3):
    """Arguments of a layer in which expert e gets `counts[e]` rows, in mixed order."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    ids = ids[torch.randperm(len(ids), generator=random)][:, None]
    sizes = ((len(ids), D), (len(counts), 2 * width, D), (len(counts), D, width))
    x, gate_up, down = (torch.randn(size, generator=random) for size in sizes)
    return x, ids, torch.rand(len(ids), 1, generator=random), gate_up, down


def agree(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, atol=2e-4, rtol=1e-4)


MIXED = [0, 1, 3, 4, 0, 12, 13, 17, 31, 32, 33, 128, 129, 0, 2]


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("counts", [MIXED, [301, 0, 2], [0, 0, 287], [40] * 3, [3, 3, 3, 0]])
def test_every_way_to_multiply_in_one_layer(counts, large, monkeypatch):
    if large:
        monkeypatch.setattr(streamed_products, "LARGE_WEIGHT", 1)
    case = float32_case(counts)
    torch.testing.assert_close(
        experts_per_expert(*case), experts_naive(*case), atol=2e-4, rtol=1e-4
    )


@pytest.mark.parametrize("missing", ["_one_dnn", "_has_grouped_mm"])
def test_a_library_that_is_missing_is_done_without(missing, monkeypatch):
    monkeypatch.setattr(streamed_products, missing, lambda *_: None)
    case = float32_case(MIXED)
    torch.testing.assert_close(
        experts_per_expert(*case), experts_naive(*case), atol=2e-4, rtol=1e-4
    )


def test_one_bad_row_stays_alone():
    x, ids, *rest = float32_case(MIXED)  # rows of one expert share a buffer with those before
    x[5], x[100] = float("nan"), float("inf")
    good = torch.ones(len(x), dtype=torch.bool)
    good[[5, 100]] = False
    got, want = (path(x, ids, *rest) for path in (experts_per_expert, experts_naive))
    agree(got[good], want[good])
    assert not got[~good].isfinite().any()


def test_one_expert_twice_in_a_row_of_choices():
    x, _, _, gate_up, down = float32_case([1, 1, 1, 1])
    ids = torch.tensor([[2, 2], [0, 2], [1, 1], [2, 0]])
    case = x, ids, torch.rand(4, 2), gate_up, down
    torch.testing.assert_close(
        experts_per_expert(*case), experts_naive(*case), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("K", [1, 2, 5])
def test_one_token(K):
    x, _, _, gate_up, down = float32_case([1] * 5)
    for ids in (torch.arange(K)[None], torch.full((1, K), 4)):
        case = x[:1], ids, torch.rand(1, K), gate_up, down
        agree(experts_one_token(*case), experts_naive(*case))


def test_half_precision_sums_in_single():
    case = [t if t.dtype == torch.long else t.to(torch.bfloat16) for t in float32_case(MIXED)]
    want = experts_naive(*(t if t.dtype == torch.long else t.float() for t in case))
    got = experts_per_expert(*case)
    assert got.dtype == torch.bfloat16
    assert float((got - want).norm() / want.norm()) < 0.02


def test_the_choice_is_by_size():
    small, large = (torch.empty(4, 2 * width, 512) for width in (8, 512))
    x = torch.empty(2, 512)
    assert choose_path(2, x, small) is experts_gather
    assert choose_path(200, x, small) is experts_padded
    assert choose_path(2, x[:1], large) is experts_one_token
    assert choose_path(4, x, large) is experts_per_expert


@pytest.mark.parametrize("outputs", [8, 2048])
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 13, 17, 32, 100, 128, 129, 287, 288, 301])
def test_linear_is_linear(rows, outputs):
    random = torch.Generator().manual_seed(rows)
    x, weight = (torch.randn(n, 1024, generator=random) for n in (rows, outputs))
    want = x.double() @ weight.double().T
    for given in (x, x.t().contiguous().t()):  # rows that lie as a transpose, too
        got = streamed_products.linear(given, weight)
        torch.testing.assert_close(got.double(), want, atol=1e-3, rtol=1e-4)
    assert rows <= streamed_products.good_rows(rows, weight) < rows + 16
