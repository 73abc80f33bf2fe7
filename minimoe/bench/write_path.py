"""What writing to the store costs the decoding beside it."""

import tempfile
import time
from statistics import median

from minimoe.bench.prompts import mixed_prompts


def decode_ratio(
    model: str, batch: int = 8, tokens: int = 128, rounds: int = 5, **settings
) -> dict:
    """Decode throughput with a store over that without, in turn: `plain`, `stored` (medians of
    tokens/s), `ratio`. Every round has a salt of its own, so all of its blocks are written."""
    from minimoe.engine.llm import LLM

    prompts = mixed_prompts(model, batch, tokens)
    with tempfile.TemporaryDirectory(prefix="minimoe-write-") as folder:
        llms = {"plain": LLM(model, **settings), "stored": LLM(model, kv_store=folder, **settings)}
        rates: dict[str, list[float]] = {name: [] for name in llms}
        try:
            for number in range(rounds + 1):
                for name, llm in llms.items():
                    rates[name].append(_rate(llm, prompts, tokens, salt=str(number)))
        finally:
            llms["stored"].close()
    plain, stored = (median(values[1:]) for values in rates.values())  # the first warms up
    return {"batch": batch, "plain": plain, "stored": stored, "ratio": stored / plain}


def _rate(llm, prompts: list[list[int]], tokens: int, salt: str) -> float:
    """Generated tokens per second, prefill included."""
    from minimoe.engine.params import SamplingParams

    params = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True, cache_salt=salt)
    start = time.perf_counter()
    llm.generate(prompts, params)
    return len(prompts) * tokens / (time.perf_counter() - start)
