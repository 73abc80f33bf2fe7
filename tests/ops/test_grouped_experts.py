"""Every path of the expert layer against the naive oracle."""

import pytest
import torch

from minimoe.ops.grouped_experts import (
    experts_gather,
    experts_naive,
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
