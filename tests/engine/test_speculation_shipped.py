"""The shipped model and drafter: exact texts in float64, on prompts of all domains."""

import json

import pytest

from minimoe import LLM, SamplingParams
from minimoe.config import SHIPPED

CONFIGS = {
    "dspark": {"method": "dspark", "scheduled": False},
    "scheduled": {"method": "dspark"},
    "prompt_lookup": {"method": "prompt_lookup", "scheduled": False},
}


def prompts_of(each: int) -> list[str]:
    domains = json.loads((SHIPPED / "prompts.json").read_text(encoding="utf-8"))
    return [prompt for domain in domains.values() for prompt in domain[:each]]


def compare(each: int, tokens: int, configs) -> None:
    """Greedy and seeded texts with and without speculation; `each` prompts a domain."""
    prompts = prompts_of(each)
    greedy = SamplingParams(tokens, temperature=0.0, ignore_eos=True)
    seeded = SamplingParams(tokens, temperature=0.8, seed=3)
    plain = LLM("tiny-moe", device="cpu", dtype="float64", max_num_seqs=16)
    expected = [plain.generate(prompts, params) for params in (greedy, seeded)]
    for name in configs:
        llm = LLM("tiny-moe", "cpu", "float64", max_num_seqs=16, speculative_config=CONFIGS[name])
        for params, wanted in zip((greedy, seeded), expected, strict=True):
            outputs = llm.generate(prompts, params)
            for got, want in zip(outputs, wanted, strict=True):
                assert got.outputs[0] == want.outputs[0], (name, got.prompt[:60])
            if name != "scheduled":
                assert sum(out.metrics.accepted for out in outputs) > tokens


def test_a_few_prompts_of_each_domain():
    compare(each=1, tokens=16, configs=("dspark", "scheduled"))


@pytest.mark.soak
def test_64_prompts_of_64_tokens():
    compare(each=16, tokens=64, configs=CONFIGS)
