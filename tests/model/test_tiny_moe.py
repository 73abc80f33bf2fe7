"""The shipped weights: transformers agrees, and no expert is dead or crowded."""

from collections import Counter

import pytest
import torch

from minimoe import LLM, SamplingParams
from minimoe.bench.prompts import domain_prompts, mixed_prompts
from minimoe.checkpoint import checkpoint_folder, load_checkpoint

PROMPTS, NEW = 16, 64


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny-moe", device="cpu")


@pytest.fixture(scope="module")
def transformers_model():
    from transformers import AutoModelForCausalLM

    folder = checkpoint_folder("tiny-moe")
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def test_logits_equal_those_of_transformers(transformers_model):
    ids = torch.tensor(mixed_prompts("tiny-moe", PROMPTS, 96))
    with torch.inference_mode():
        ours, theirs = load_checkpoint("tiny-moe")(ids), transformers_model(ids).logits
    assert (ours - theirs).abs().max() <= 1e-4


def test_greedy_text_equals_that_of_transformers(llm, transformers_model):
    prompts = mixed_prompts("tiny-moe", PROMPTS, 48)
    params = SamplingParams(max_tokens=NEW, temperature=0.0, ignore_eos=True)
    ours = [out.outputs[0].token_ids for out in llm.generate(prompts, params)]
    ids = torch.tensor(prompts)
    with torch.inference_mode():
        theirs = transformers_model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )
    assert ours == theirs[:, ids.shape[1] :].tolist()


def expert_counts(llm: LLM, tokens: int = 4000) -> dict[str, torch.Tensor]:
    """Per domain how often each expert was chosen, `[layers, E]`, over equally many tokens."""
    counts = {}
    for domain, texts in domain_prompts().items():
        ids = [token for text in texts for token in llm.tokenizer.encode(text)][:tokens]
        seen = chosen_experts(llm, [ids[i : i + 500] for i in range(0, len(ids), 500)])
        E, layers = llm.config.n_routed_experts, range(1, llm.config.num_hidden_layers)
        table = [[seen[layer, e] for e in range(E)] for layer in layers]
        counts[domain] = torch.tensor(table, dtype=torch.float64)
        counts[domain] /= counts[domain].sum(-1, keepdim=True)
    return counts


def chosen_experts(llm: LLM, prompts: list[list[int]]) -> Counter:
    """How often each (layer, expert) was chosen while the prompts were computed."""
    seen = Counter()
    llm.model.on_route(lambda layer, ids, _: seen.update((layer, e) for e in ids.ravel().tolist()))
    llm.generate(prompts, SamplingParams(max_tokens=1))
    llm.model.on_route(None)
    return seen


def test_experts_are_busy_and_differ_by_domain():
    llm = LLM("tiny-moe", device="cpu", enable_prefix_caching=False)
    use = expert_counts(llm)
    mix = sum(use.values()) / len(use) * llm.config.n_routed_experts  # 1 is the mean
    assert mix.max() <= 3.0
    assert mix.min() >= 0.05
    names = list(use)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            apart = (use[one] - use[other]).abs().sum(-1) / 2  # total variation, per layer
            assert apart.min() >= 0.25, (one, other, apart)
