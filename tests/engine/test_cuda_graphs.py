"""The static decode step equals the one built afresh, with padding, as requests come and go."""

from dataclasses import replace

import pytest
import torch
from models import random_model

from minimoe import LLM
from minimoe.config import ModelConfig
from minimoe.engine.cuda_graphs import CheckGraphs, DraftGraphs, StepGraphs
from minimoe.engine.engine import Engine
from minimoe.engine.params import SamplingParams
from minimoe.engine.static_step import BlockTables
from minimoe.engine.step_builder import build_step
from minimoe.model.serving import ServingModel
from minimoe.speculative.chances import kind_of
from minimoe.speculative.dspark import DSpark
from minimoe.speculative.dspark_config import DSparkConfig
from minimoe.speculative.dspark_drafter import DSparkDrafter
from minimoe.speculative.rules import FixedLength
from minimoe.speculative.serving_dspark import ServingDSpark

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


def record(run):
    """In place of a capture: nothing is recorded, each replay is a fresh call."""
    result = run()

    def replay():
        for old, new in zip(leaves(result), leaves(run()), strict=True):
            old.copy_(new)

    return replay, result


def leaves(result) -> list:
    parts = result if isinstance(result, tuple) else (result,)
    return [part for part in parts if part is not None]


@pytest.fixture
def tables():
    return BlockTables(8, 17, 16, torch.device("cpu"))


def draft_of(seq, count):
    return [(5 * seq.tokens[-1] + i) % 2000 for i in range(count)]


@pytest.mark.parametrize("drafts", [0, 3])
def test_static_steps_equal_fresh_ones(make_engine, tables, drafts):
    engine = make_engine()
    prompts = [list(range(5, 5 + n)) for n in (15, 16, 33)]  # at and around block edges
    scheduled = decoding(engine, prompts)
    model, pages = engine.runner.model, engine.runner.pages
    graphs = StepGraphs(model, pages, tables, most=40, capture=record)
    for _ in range(20):  # over a block boundary
        for i, (seq, _) in enumerate(scheduled):
            seq.draft = draft_of(seq, drafts * (i != 1))
            engine.scheduler.look_ahead(seq, seq.num_computed + 9)
        scheduled = [(seq, 1 + len(seq.draft)) for seq, _ in scheduled]
        step, finishing = build_step(scheduled, 16, 3, model.device, model.dtype)
        want = model.forward(step, pages)
        got = graphs.run(scheduled)
        torch.testing.assert_close(got, want, atol=1e-9, rtol=1e-9)
        rows = [1 + len(seq.draft) for seq, _ in scheduled]
        starts = [sum(rows[:i]) for i in range(len(rows))]
        for seq, _ in scheduled:
            seq.num_computed += 1
            seq.draft = []
        engine._append_tokens(want[starts], finishing)
        scheduled = engine.scheduler.schedule()


def test_a_row_of_the_table_follows_its_request(make_engine, tables):
    engine = make_engine()
    scheduled = decoding(engine, [list(range(5, 40)), list(range(50, 60))])
    first, second = (seq for seq, _ in scheduled)
    tables.fill([first, second])
    tables.fill([second, first])
    assert tables.device[0, : len(second.blocks)].tolist() == second.blocks
    assert tables.device[1, : len(first.blocks)].tolist() == first.blocks


def test_no_graphs_on_a_cpu(make_engine):
    if not CUDA:
        assert make_engine().runner.graphs is None


def test_what_fits(make_engine, serving_model, tables):
    engine = make_engine()
    graphs = StepGraphs(serving_model, engine.runner.pages, tables, most=4, capture=record)
    assert graphs.sizes == [1, 2, 4]
    scheduled = decoding(engine, [[5, 6, 7]])
    assert graphs.fits(scheduled)
    serving_model.on_route(lambda *_: None)
    assert not graphs.fits(scheduled), "a graph would not call the watcher"
    serving_model.on_route(None)
    assert not graphs.fits(scheduled * 5), "more requests than the largest size"
    assert not graphs.fits([(scheduled[0][0], 6)]), "more drafts than the largest size"
    scheduled[0][0].num_computed -= 1
    assert not graphs.fits(scheduled), "a chunk of a prompt is no decode step"


DRAWS = {
    "greedy": [{"temperature": 0.0}] * 3,
    "drawn": [{"temperature": 0.0}, {"temperature": 0.7, "seed": 3}, {"temperature": 1.3}],
    "seeded": [{"temperature": 1.0, "seed": i} for i in range(3)],
    "filtered": [{"top_p": 0.8}, {"top_k": 9, "seed": 4}, {"temperature": 0.0}],
}


@pytest.mark.parametrize("kind", DRAWS)
def test_static_drafts_equal_fresh_ones(make_engine, serving_model, tables, kind):
    model = serving_model.textbook
    config = DSparkConfig.of(model, layers=2, taps=(0, 2), markov_rank=6, length=5)
    dspark = DSpark(config, model.config).init_weights(std=0.3, seed=1).double()
    drafter = DSparkDrafter(ServingDSpark(dspark.eval(), serving_model), 4)
    engine = make_engine(drafter=drafter, make_budget=lambda profile: FixedLength(4))
    prompts = [list(range(5, 5 + n)) for n in (15, 16, 33)]
    params = [SamplingParams(max_tokens=40, ignore_eos=True, **draw) for draw in DRAWS[kind]]
    seqs = [
        engine.add_request(str(i), prompt, one).seq
        for i, (prompt, one) in enumerate(zip(prompts, params, strict=True))
    ]
    graphs = DraftGraphs(drafter, tables, most=8, capture=record)
    for _ in range(12):
        engine.step()
        for seq in seqs:
            engine.scheduler.look_ahead(seq, seq.num_computed + 6)
        want, got = engine.runner.draft(seqs), graphs.propose(seqs)
        assert torch.equal(want.ids, got.ids)
        torch.testing.assert_close(want.confidence, got.confidence, atol=1e-5, rtol=0)
        assert (want.probs is None) == (got.probs is None)
        for i, one in enumerate(params):
            if not one.greedy and want.probs is not None:
                torch.testing.assert_close(want.probs[i], got.probs[i], atol=1e-6, rtol=0)
    assert list(graphs._captured) == [(4, kind_of(seqs), 4)]
    check_static_checks(engine, seqs)


def check_static_checks(engine, seqs):
    """Both rules as graphs give what they give step by step."""
    speculation, runner = engine.speculation, engine.runner
    graphs = CheckGraphs(4, 2048, 8, torch.device("cpu"), capture=record)
    for steps in range(6):
        speculation.draft()
        scheduled = engine.scheduler.schedule()
        for i, (seq, _) in enumerate(scheduled):
            seq.draft = seq.draft[: (i + steps) % 5]
        scheduled = [(seq, 1 + len(seq.draft)) for seq in seqs]
        speculation.start_step(scheduled)
        logits, finishing = runner.run(scheduled)
        rows = [speculation.round.rows[seq] for seq in finishing]
        got = graphs.run(logits, finishing, speculation.round.draft.probs, rows)
        assert got == speculation.tokens(logits, finishing)
        for seq in seqs:
            seq.num_computed += 1
        engine._append_tokens(logits, finishing)
        speculation.end_step()


@pytest.mark.parametrize("kind", DRAWS)
def test_static_draws_of_a_plain_step(make_engine, kind):
    """Without drafts the graph draws what the sampler draws."""
    engine, graphs = make_engine(), CheckGraphs(0, 2048, 8, torch.device("cpu"), capture=record)
    for i, draw in enumerate(DRAWS[kind]):
        params = SamplingParams(max_tokens=9, ignore_eos=True, **draw)
        engine.add_request(str(i), list(range(5, 20 + i)), params)
    draw, calls = engine._draw, []

    def both(logits, seqs):
        calls.append(draw(logits, seqs))
        assert graphs.run(logits, seqs) == calls[-1]
        return calls[-1]

    engine._draw = both
    while engine.has_unfinished_requests():
        engine.step()
    assert len(calls) == 9


def cuda_tokens(tokenizer, dtype, graphs: bool, speculate: bool):
    """Texts of greedy and seeded requests, and what was accepted."""
    model = ServingModel(random_model(ModelConfig.tiny(), dtype).to("cuda"))
    more = {}
    if speculate:
        config = DSparkConfig.of(model.textbook)
        dspark = DSpark(config, model.config).init_weights(std=0.3, seed=1)
        drafter = DSparkDrafter(ServingDSpark(dspark.to("cuda", dtype).eval(), model), 5)
        more = {"drafter": drafter, "make_budget": lambda profile: FixedLength(5)}
    engine = Engine(
        model,
        tokenizer,
        max_model_len=256,
        max_num_seqs=8,
        max_num_batched_tokens=256,
        num_blocks=160,
        seed=0,
        enable_prefix_caching=False,
        **more,
    )
    assert engine.runner.graphs is not None
    assert (engine.runner.draft_graphs is not None) == speculate
    if not graphs:
        engine.runner.graphs = engine.runner.draft_graphs = engine.runner.check_graphs = None
    for i, n in enumerate((3, 15, 16, 40, 100)):
        params = replace(PARAMS, temperature=i % 3 / 2, seed=i if i != 4 else None)
        engine.add_request(str(i), list(range(5, 5 + n)), params)
    done = {}
    while engine.has_unfinished_requests():
        done |= {o.request_id: o for o in engine.step() if o.finished}
    return {i: (o.outputs[0].token_ids, o.metrics.checked) for i, o in done.items()}


@pytest.mark.skipif(not CUDA, reason="needs a CUDA GPU")
@pytest.mark.parametrize("speculate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_replayed_graphs_give_the_tokens_of_eager_steps(tokenizer, dtype, speculate):
    replayed, eager = (cuda_tokens(tokenizer, dtype, graphs, speculate) for graphs in (True, False))
    assert replayed == eager
    if speculate and dtype == torch.float32:
        plain = cuda_tokens(tokenizer, dtype, True, False)
        for i in "0123":  # greedy or seeded: what the plain engine says
            assert replayed[i][0] == plain[i][0]


@pytest.mark.skipif(not CUDA, reason="needs a CUDA GPU")
def test_the_shipped_drafter_on_a_gpu():
    texts = []
    for config in (None, {"method": "dspark", "scheduled": False}, {"method": "dspark"}):
        llm = LLM("tiny-moe", device="cuda", max_num_seqs=4, speculative_config=config)
        params = [SamplingParams(40, temperature=t, seed=7) for t in (0, 0, 0.8, 1.0)]
        prompts = ["def fib(n):", "Once upon a time", "import os", '{"name": "']
        texts.append([out.outputs[0].token_ids for out in llm.generate(prompts, params)])
    assert texts[0] == texts[1] == texts[2]
