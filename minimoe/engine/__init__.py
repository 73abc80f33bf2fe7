"""The engine: requests in, tokens out. Sequence, block pool, scheduler, runner, sampler, LLM."""
