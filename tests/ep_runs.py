"""What tests of expert parallelism share: prompts, and the tokens that one process gives."""

from functools import cache

from minimoe import LLM, SamplingParams
from minimoe.bench.prompts import mixed_prompts

GREEDY = SamplingParams(max_tokens=32, temperature=0.0, ignore_eos=True)
PROMPTS = mixed_prompts("tiny-moe", 16, 24)


def tokens(outputs) -> list[list[int]]:
    return [out.outputs[0].token_ids for out in outputs]


@cache
def alone() -> list[list[int]]:
    """What one process makes of the prompts."""
    return tokens(LLM("tiny-moe", device="cpu").generate(PROMPTS, GREEDY))


def run_with(llm, at: dict) -> list[list[int]]:
    """All prompts, step by step; `at[step]` is called before that step."""
    requests = [
        llm.engine.add_request(f"run-{i}", prompt, GREEDY) for i, prompt in enumerate(PROMPTS)
    ]
    step = 0
    while llm.engine.has_unfinished_requests():
        at.get(step, lambda: None)()
        llm.engine.step()
        step += 1
        assert step < 200, "it does not end"
    return [request.seq.output_ids for request in requests]
