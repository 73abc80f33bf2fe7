"""The serving form against the textbook form, over any way of cutting a sequence into steps."""

import pytest
import torch
from models import random_model, small_config

from minimoe.engine.params import SamplingParams
from minimoe.engine.sequence import Sequence
from minimoe.engine.step_builder import build_step
from minimoe.model.serving import ServingModel
from minimoe.ops.grouped_experts import experts_naive

BLOCK = 4
SHAPES = {
    "tiny": {},
    "query low rank": {"q_lora_rank": 24},
    "large latent, not merged": {"kv_lora_rank": 64},
    "groups of experts": {"n_group": 4, "topk_group": 2},
    "values wider than keys": {"v_head_dim": 20},
    "one expert a token": {"num_experts_per_tok": 1},
    "weights not normalised": {"norm_topk_prob": False},
    "yarn": {
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "mscale": 1.0,
            "mscale_all_dim": 0.7,
        }
    },
}


def make_sequence(name: str, tokens: list[int], blocks: list[int]) -> Sequence:
    seq = Sequence(name, tokens, SamplingParams(), seed=0, max_total=256)
    seq.blocks = blocks
    return seq


def run_steps(model: ServingModel, sequences, cuts, pairs: int = 0) -> dict[str, torch.Tensor]:
    """Compute the sequences in steps; `cuts` lists, per step, new tokens of each sequence."""
    kv = model.pages(model.new_kv(200, BLOCK))
    logits = {seq.request_id: [] for seq in sequences}
    for counts in cuts:
        scheduled = [(s, n) for s, n in zip(sequences, counts, strict=True) if n]
        step, _ = build_step(scheduled, BLOCK, 3, "cpu", model.dtype, pairs)
        step.logit_rows = None
        out = model.forward(step, kv)
        many = {s: n > 16 and n * (s.num_computed + n) > pairs for s, n in scheduled}
        assert len(step.long) == sum(many.values())
        for seq, n in sorted(scheduled, key=lambda pair: many[pair[0]]):
            logits[seq.request_id].append(out[:n])
            out = out[n:]
            seq.num_computed += n
    return {name: torch.cat(parts) for name, parts in logits.items()}


@pytest.mark.parametrize("pairs", [0, 400, 1 << 18])
@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_any_cut_gives_the_textbook_logits(changes, pairs):
    textbook = random_model(small_config(**changes))
    random = torch.Generator().manual_seed(1)
    lengths = [50, 37, 4, 16]
    tokens = [torch.randint(0, 2048, (n,), generator=random) for n in lengths]
    pages = torch.randperm(199, generator=random).tolist()
    sequences = [
        make_sequence(str(i), ids.tolist(), [1 + p for p in pages[20 * i : 20 * i + 13]])
        for i, ids in enumerate(tokens)
    ]
    cuts = [
        (17, 20, 1, 0),  # long chunks beside a decode
        (1, 16, 1, 3),  # all few, of different number
        (20, 1, 1, 1),
        (12, 0, 1, 12),
    ]
    got = run_steps(ServingModel(textbook), sequences, cuts, pairs)
    for i, ids in enumerate(tokens):
        expected = textbook(ids[None])[0]
        torch.testing.assert_close(got[str(i)], expected, atol=1e-9, rtol=1e-9)


def test_float32_is_within_1e_4_of_float64():
    config = small_config()
    wide = random_model(config, torch.float64)
    narrow = ServingModel(random_model(config, torch.float32))
    ids = torch.randint(0, 2048, (60,), generator=torch.Generator().manual_seed(2))
    seq = make_sequence("a", ids.tolist(), list(range(15)))
    got = run_steps(narrow, [seq], [(30,), (1,), (29,)])["a"]
    assert (got.double() - wide(ids[None])[0]).abs().max() < 1e-4


def test_old_rows_of_a_reused_page_do_not_matter():
    model = ServingModel(random_model(small_config()))
    seq = make_sequence("a", [5, 6, 7, 8, 9], [3, 7])
    clean = run_steps(model, [seq], [(3,), (2,)])["a"]
    kv = model.new_kv(200, BLOCK)
    kv.fill_(1e6)
    seq.num_computed = 0
    step, _ = build_step([(seq, 5)], BLOCK, 3, "cpu", model.dtype)
    step.logit_rows = None
    torch.testing.assert_close(model.forward(step, model.pages(kv)), clean)


def test_routing_is_reported_and_the_bias_only_chooses():
    textbook = random_model(small_config())
    for layer in textbook.layers[1:]:
        layer.ffn.router.bias[3] += 10.0
    model, seen = ServingModel(textbook), []
    model.on_route(lambda layer, ids, weights: seen.append((layer, ids, weights)))
    seq = make_sequence("a", [1, 2, 3], [0])
    run_steps(model, [seq], [(3,)])
    assert [layer for layer, _, _ in seen] == [1, 2]
    for _, ids, weights in seen:
        assert (ids == 3).any(-1).all()
        torch.testing.assert_close(weights.sum(-1), torch.full((3,), 1.5, dtype=torch.float64))
        assert weights.max() < 1.5  # a score of 10 would leave nothing for the others
    model.on_route(None)
    run_steps(model, [make_sequence("b", [1], [0])], [(1,)])
    assert len(seen) == 2


def test_experts_can_be_replaced():
    """Expert parallelism swaps the Experts module and nothing else."""
    textbook = random_model(small_config())
    ids = torch.tensor([[4, 5, 6, 7]])
    expected = textbook(ids)[0]

    class Naive(torch.nn.Module):
        def __init__(self, experts):
            super().__init__()
            self.gate_up, self.down = experts.gate_up, experts.down

        def forward(self, x, ids, weights):
            return experts_naive(x, ids, weights, self.gate_up, self.down)

    for layer in textbook.layers[1:]:
        layer.ffn.experts = Naive(layer.ffn.experts)
    seq = make_sequence("a", ids[0].tolist(), [0])
    got = run_steps(ServingModel(textbook), [seq], [(4,)])["a"]
    torch.testing.assert_close(got, expected)
