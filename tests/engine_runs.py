"""Run an engine to the end, its pool checked after every step."""


def run_all(engine, prompts, params) -> list:
    """All prompts at once; finished outputs in order."""
    params = params if isinstance(params, list) else [params] * len(prompts)
    for i, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
        engine.add_request(str(i), prompt, one)
    done = {}
    while engine.has_unfinished_requests():
        done |= {out.request_id: out for out in engine.step() if out.finished}
        engine.pool.check()
    assert_idle(engine)
    return [done[str(i)] for i in range(len(prompts))]


def assert_idle(engine) -> None:
    """Every block is back and no request is left."""
    engine.pool.check()
    assert engine.pool.num_free == engine.pool.num_blocks
    assert not engine.has_unfinished_requests()
