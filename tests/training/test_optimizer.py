import pytest
import torch

from minimoe.config import ModelConfig
from minimoe.model.transformer import Transformer
from minimoe.training.optimizer import (
    Muon,
    build_optimizers,
    match_adamw,
    orthogonalise,
    set_lr,
    split_parameters,
)

SMALL = ModelConfig(
    vocab_size=64, hidden_size=32, intermediate_size=48, moe_intermediate_size=8,
    num_hidden_layers=2, first_k_dense_replace=1, num_attention_heads=2,
    n_routed_experts=4, num_experts_per_tok=2,
    kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8,
)  # fmt: skip


@pytest.mark.parametrize("shape", [(64, 192), (192, 32), (32, 32), (5, 64, 192), (2, 3, 48, 16)])
def test_singular_values_come_near_one(shape):
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
    assert values.min() > 0.6 and values.max() < 1.25


def test_the_directions_are_those_of_the_matrix():
    torch.manual_seed(0)
    matrix = torch.randn(24, 40)
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    core = u.mT @ orthogonalise(matrix) @ vh.mT  # diagonal if the singular vectors are unchanged
    assert (core - core.diag().diag()).abs().max() < 1e-3


def test_a_stack_is_orthogonalised_matrix_by_matrix():
    torch.manual_seed(0)
    stack = torch.randn(4, 16, 24) * torch.tensor([1e-4, 1.0, 10.0, 1e4])[:, None, None]
    alone = torch.stack([orthogonalise(matrix) for matrix in stack])
    assert torch.allclose(orthogonalise(stack), alone, atol=1e-5)


def test_scale_of_the_gradient_does_not_matter_and_zero_stays_zero():
    torch.manual_seed(0)
    matrix = torch.randn(16, 24)
    assert torch.allclose(orthogonalise(matrix), orthogonalise(1000 * matrix), atol=1e-5)
    assert torch.equal(orthogonalise(torch.zeros(4, 4)), torch.zeros(4, 4))


def test_step_equals_the_rule_written_out():
    torch.manual_seed(0)
    param, twin = (torch.nn.Parameter(torch.randn(3, 8, 12)) for _ in range(2))
    gradients = [torch.randn_like(param) for _ in range(2)]
    expected, average = param.detach().clone(), torch.zeros_like(param)
    optimizer = Muon([param, twin], lr=0.01, momentum=0.9, weight_decay=0.1)
    for gradient in gradients:
        param.grad, twin.grad = gradient.clone(), torch.randn_like(twin)
        optimizer.step()
        average = 0.9 * average + 0.1 * gradient
        update = orthogonalise(0.1 * gradient + 0.9 * average)
        expected = expected * (1 - 0.01 * 0.1) - 0.01 * match_adamw(param.shape) * update
    assert torch.allclose(param, expected, atol=1e-5)


def test_update_is_as_large_as_adamws():
    torch.manual_seed(0)
    param = torch.nn.Parameter(torch.zeros(64, 192))
    param.grad = torch.randn(64, 192)
    Muon([param], lr=1.0, weight_decay=0.0).step()
    assert 0.1 < param.detach().square().mean().sqrt() < 0.3


def test_parameters_without_gradient_are_left_alone():
    param = torch.nn.Parameter(torch.ones(4, 4))
    Muon([param]).step()
    assert torch.equal(param, torch.ones(4, 4))


def test_vectors_are_refused():
    with pytest.raises(ValueError, match=r"\(7,\).*AdamW"):
        Muon([torch.nn.Parameter(torch.zeros(7))])


def test_every_parameter_has_exactly_one_optimizer():
    model = Transformer(SMALL)
    matrices, rest = split_parameters(model)
    ids = [id(p) for p in matrices + rest]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    experts = model.layers[1].ffn.experts
    assert any(p is experts.gate_up for p in matrices) and any(p is experts.down for p in matrices)
    assert any(p is model.embed.weight for p in rest) and any(p is model.head.weight for p in rest)
    assert all(p.ndim >= 2 for p in matrices)


def test_learning_rate_reaches_every_group():
    optimizers = build_optimizers(Transformer(SMALL))
    set_lr(optimizers, 0.125)
    assert {group["lr"] for o in optimizers for group in o.param_groups} == {0.125}
