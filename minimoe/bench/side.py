"""One side of a comparison, in a process of its own: `python -m minimoe.bench.side`.

Reads a JSON job from stdin and prints one JSON object: for each case the seconds of each variant.
The parent interleaves the two sides and takes medians.
"""

import json
import sys
import time

WARM_UP_TOKENS = 4


def run_job(job: dict) -> dict:
    """job: side, model, device, dtype, threads, cases [{prompts, new_tokens, variants}].

    `variants` names the implementations to time; None is for all that the side has.
    """
    import torch

    torch.set_num_threads(job["threads"])
    side = _Ours(job) if job["side"] == "minimoe" else _Transformers(job)
    side.on_gpu = job["device"].startswith("cuda")
    seconds = [
        {name: _time(side, name, case) for name in case.get("variants") or side.variants}
        for case in job["cases"]
    ]
    return {"seconds": seconds, "versions": side.versions()}


def _time(side, variant: str, case: dict) -> float:
    """Seconds of one run, after one that warms up: a whole one on a GPU, where kernels are compiled
    and graphs captured for every batch size on the way."""
    side.use(variant)
    new_tokens = case["new_tokens"]
    side.generate(case["prompts"], new_tokens if side.on_gpu else min(WARM_UP_TOKENS, new_tokens))
    start = time.perf_counter()
    made = side.generate(case["prompts"], new_tokens)
    seconds = time.perf_counter() - start
    assert all(len(ids) == new_tokens for ids in made), "a side stopped early"
    return seconds


class _Ours:
    variants = ("minimoe",)

    def __init__(self, job: dict):
        from minimoe import LLM

        tokens = max(len(p) for case in job["cases"] for p in case["prompts"])
        budget = max(512, tokens)  # a prompt in one step, as the other side computes it
        self.llm = LLM(
            job["model"],
            device=job["device"],
            dtype=job["dtype"],
            max_num_batched_tokens=budget,
            enable_prefix_caching=False,
        )
        if not job.get("graphs", True):
            self.llm.engine.runner.graphs = None

    def use(self, name: str) -> None:
        """There is one variant."""

    def generate(self, prompts: list, new_tokens: int) -> list[list[int]]:
        from minimoe import SamplingParams

        params = SamplingParams(max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
        return [out.outputs[0].token_ids for out in self.llm.generate(prompts, params)]

    def versions(self) -> dict:
        import minimoe

        return {"minimoe": minimoe.__version__}


class _Transformers:
    variants = ("eager", "batched_mm", "grouped_mm")

    def __init__(self, job: dict):
        import torch
        from transformers import AutoModelForCausalLM

        from minimoe.checkpoint import checkpoint_folder

        folder = checkpoint_folder(job["model"])
        dtype = getattr(torch, job["dtype"])
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(job["device"])

    def use(self, name: str) -> None:
        self.model.set_experts_implementation(name)

    def generate(self, prompts: list, new_tokens: int) -> list[list[int]]:
        import torch

        ids = torch.tensor(prompts, device=self.model.device)
        with torch.inference_mode():
            out = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=0,
            )
        return out[:, ids.shape[1] :].tolist()

    def versions(self) -> dict:
        import transformers

        return {"transformers": transformers.__version__}


if __name__ == "__main__":
    print(json.dumps(run_job(json.load(sys.stdin))))
