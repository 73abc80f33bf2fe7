"""The static decode step equals the one built afresh, with padding, as requests come and go."""

import pytest
import torch

from minimoe.engine.cuda_graphs import DecodeGraphs, StaticStep
from minimoe.engine.params import SamplingParams
from minimoe.engine.step_builder import build_step

PARAMS = SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)
CUDA = torch.cuda.is_available()


def decoding(engine, prompts):
    """Step until every request decodes; gives the next schedule."""
    for i, ids in enumerate(prompts):
        engine.add_request(str(i), ids, PARAMS)
    while True:
        scheduled = engine.scheduler.schedule()
        if all(seq.num_computed + 1 == len(seq.tokens) for seq, _ in scheduled):
            return scheduled
        logits, finishing = engine.runner.run(scheduled)
        for seq, count in scheduled:
            seq.num_computed += count
        if finishing:
            engine._append_tokens(logits, finishing)


@pytest.mark.parametrize("size", [3, 4, 8])
def test_static_step_equals_a_fresh_one(make_engine, size):
    engine = make_engine()
    prompts = [list(range(5, 5 + n)) for n in (15, 16, 33)]  # at and around block edges
    scheduled = decoding(engine, prompts)
    model, pages = engine.runner.model, engine.runner.pages
    static = StaticStep(size, pages=16, block_size=16, device=torch.device("cpu"))
    for _ in range(20):  # over a block boundary
        step, finishing = build_step(scheduled, 16, 3, model.device, model.dtype)
        want = model.forward(step, pages)
        static.fill([seq for seq, _ in scheduled])
        got = model.forward(static.step, pages)
        torch.testing.assert_close(got[:3], want, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(got[3:], want[:1].expand(size - 3, -1), atol=1e-9, rtol=1e-9)
        for seq, count in scheduled:
            seq.num_computed += count
        engine._append_tokens(want, finishing)
        scheduled = engine.scheduler.schedule()


def test_a_row_of_the_table_follows_its_request(make_engine):
    engine = make_engine()
    scheduled = decoding(engine, [list(range(5, 40)), list(range(50, 60))])
    static = StaticStep(2, pages=16, block_size=16, device=torch.device("cpu"))
    first, second = (seq for seq, _ in scheduled)
    static.fill([first, second])
    static.fill([second, first])
    assert static.table[0, : len(second.blocks)].tolist() == second.blocks
    assert static.table[1, : len(first.blocks)].tolist() == first.blocks


def test_no_graphs_on_a_cpu(make_engine):
    if not CUDA:
        assert make_engine().runner.graphs is None


def test_what_fits(make_engine, serving_model):
    engine = make_engine()
    graphs = DecodeGraphs(serving_model, engine.runner.kv["target"], 16, 256, most=4)
    assert graphs.sizes == [1, 2, 4]
    scheduled = decoding(engine, [[5, 6, 7]])
    assert graphs.fits(scheduled)
    serving_model.on_route(lambda *_: None)
    assert not graphs.fits(scheduled), "a graph would not call the watcher"
    serving_model.on_route(None)
    assert not graphs.fits(scheduled * 5), "more requests than the largest size"
    scheduled[0][0].num_computed -= 1
    assert not graphs.fits(scheduled), "a chunk of a prompt is no decode step"


@pytest.mark.skipif(not CUDA, reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_replayed_graphs_give_the_tokens_of_eager_steps(tokenizer, dtype):
    from models import random_model

    from minimoe.config import ModelConfig
    from minimoe.engine.engine import Engine
    from minimoe.model.serving import ServingModel

    def tokens(with_graphs: bool):
        model = ServingModel(random_model(ModelConfig.tiny(), dtype).to("cuda"))
        engine = Engine(
            model,
            tokenizer,
            max_model_len=256,
            max_num_seqs=8,
            max_num_batched_tokens=256,
            num_blocks=128,
            seed=0,
            enable_prefix_caching=False,
        )
        assert engine.runner.graphs is not None
        if not with_graphs:
            engine.runner.graphs = None
        for i, n in enumerate((3, 15, 16, 40, 100)):
            engine.add_request(str(i), list(range(5, 5 + n)), PARAMS)
        done = {}
        while engine.has_unfinished_requests():
            done |= {o.request_id: o.outputs[0].token_ids for o in engine.step() if o.finished}
        return done

    assert tokens(True) == tokens(False)
