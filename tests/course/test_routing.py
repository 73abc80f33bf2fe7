import pytest
import torch

from minimoe.config import ModelConfig
from minimoe.course.routing import (
    Routes,
    expert_use,
    follow,
    route_table,
    shared_choices,
    shared_table,
    training_mix,
)
from minimoe.model.transformer import Transformer

IDS = list(range(40, 61))


@pytest.fixture(scope="module")
def model():
    config = ModelConfig.tiny(vocab_size=64, num_hidden_layers=3, n_routed_experts=8)
    return Transformer(config).init_weights(std=0.2).eval()


def test_routes_are_what_the_router_says(model):
    """By hand, layer by layer, beside the hooks."""
    routes = follow(model, IDS)
    x = model.embed(torch.tensor([IDS]))
    turns = model.turns(x.device)[: len(IDS)]
    for index, layer in enumerate(model.layers):
        assert torch.allclose(routes.norms[index], x[0].norm(dim=-1))
        if index >= routes.first:
            middle = x + layer.attn(layer.attn_norm(x), turns)
            ids, weights, _ = layer.ffn.router(layer.ffn_norm(middle)[0])
            assert torch.equal(routes.ids[index - routes.first], ids)
            assert torch.allclose(routes.weights[index - routes.first], weights)
        x = layer(x, turns, 0.0)
    assert torch.allclose(routes.norms[-1], x[0].norm(dim=-1))


def test_shapes_and_no_hook_stays(model):
    routes = follow(model, IDS)
    assert routes.ids.shape == routes.weights.shape == (2, 21, 4)
    assert routes.norms.shape == (4, 21) and routes.first == 1
    assert not any(module._forward_hooks for module in model.modules())


def test_hooks_go_when_the_model_fails(model):
    with pytest.raises(IndexError):
        follow(model, [10_000])
    assert not any(module._forward_hooks for module in model.modules())


def test_expert_use_counts_every_choice(model):
    use = expert_use(model, IDS)
    assert use.shape == (2, 8) and use.sum(-1).tolist() == [21 * 4] * 2
    windows = expert_use(model, IDS, window=5)
    assert windows.sum(-1).tolist() == [21 * 4] * 2


def shared_naive(routes, ids, layer, same):
    """The mean over pairs, one pair at a time."""
    chosen = [set(row) for row in routes.ids[layer].tolist()]
    found = [
        len(chosen[i] & chosen[j])
        for i in range(len(ids))
        for j in range(i)
        if (ids[i] == ids[j]) == same
    ]
    return sum(found) / len(found)


def test_shared_choices_is_the_mean_over_pairs(model):
    ids = [40, 41, 40, 42, 41, 40, 43]
    routes = follow(model, ids)
    same, different = shared_choices(routes, ids)
    for layer in range(2):
        assert same[layer] == pytest.approx(shared_naive(routes, ids, layer, True))
        assert different[layer] == pytest.approx(shared_naive(routes, ids, layer, False))


def test_shared_choices_by_hand_and_without_a_pair():
    chosen = torch.tensor([[[0, 1], [1, 2], [3, 4]]])
    routes = Routes(chosen, torch.ones(1, 3, 2), torch.ones(3, 3), first=1)
    same, different = shared_choices(routes, [7, 7, 8])
    assert same.tolist() == [1.0] and different.tolist() == [0.0]
    assert shared_table(routes, [7, 7, 8]).split()[-5:] == [
        "token",
        "1.00",
        "different",
        "tokens",
        "0.00",
    ]
    same, _ = shared_choices(routes, [7, 8, 9])
    assert same.isnan().all()


def test_training_mix(tmp_path):
    (tmp_path / "training.json").write_text('{"tokens": {"code": 3, "chat": 1}}')
    assert training_mix(tmp_path) == {"code": 0.75, "chat": 0.25}


def test_route_table(model):
    lines = route_table(follow(model, IDS), 3).splitlines()
    assert len(lines) == 5 and "dense" in lines[2]
    assert lines[3].count("(") == 4
