"""Greedy and seeded texts with speculation are those of the plain engine, wherever they end."""

import random

import pytest
import torch
from engine_runs import run_all
from models import random_model, small_config
from speculation_toys import KnowingDrafter, step_times

from minimoe import LLM
from minimoe.engine.params import SamplingParams
from minimoe.errors import MinimoeError
from minimoe.speculative.budget import Budget
from minimoe.speculative.dspark import DSpark
from minimoe.speculative.dspark_config import DSparkConfig
from minimoe.speculative.dspark_drafter import DSparkDrafter
from minimoe.speculative.prompt_lookup import PromptLookup
from minimoe.speculative.rules import FixedLength, Rule
from minimoe.speculative.serving_dspark import ServingDSpark

G = 5
GREEDY = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)


class Jumping(Rule):
    """Any number of checks, now and then no drafting at all."""

    def __init__(self, length=G):
        super().__init__(length)
        self.random = random.Random(1)

    def plan(self, requests):
        return self.random.choice([0, 1, self.length, self.length])

    def choose(self, confidence, lengths, plain_tokens=0):
        return [self.random.randint(0, n) for n in lengths]


RULES = {
    "fixed": lambda: FixedLength(G),
    "jumping": Jumping,
    "scheduled": lambda: Budget(step_times(), G),
}


def prompts_of(lengths: list[int]) -> list[list[int]]:
    numbers = random.Random(4)
    return [[numbers.randrange(5, 2048) for _ in range(n)] for n in lengths]


PROMPTS = prompts_of([1, 15, 16, 17, 40, 64, 3])


@pytest.fixture(scope="module")
def dspark(serving_model):
    """A drafter with random weights: most guesses are wrong, all of its machinery runs."""
    model = serving_model.textbook
    config = DSparkConfig.of(model, layers=2, taps=(0, 2), markov_rank=6, length=G)
    made = DSpark(config, model.config).init_weights(std=0.3, seed=1).double()
    return made.eval().requires_grad_(False)


@pytest.fixture
def plain(make_engine):
    return lambda prompts, params, **limits: run_all(make_engine(**limits), prompts, params)


@pytest.fixture
def speculating(make_engine, serving_model, dspark, plain):
    """An engine with a drafter; "knowing" knows the plain texts of `prompts`."""

    def make(drafter, rule="fixed", prompts=(), params=GREEDY, wrong=0.3, **limits):
        if drafter == "knowing":
            outputs = plain(prompts, params)
            answers = {
                tuple(prompt): out.outputs[0].token_ids
                for prompt, out in zip(prompts, outputs, strict=True)
            }
            drafter = KnowingDrafter(answers, G, wrong, ragged=rule == "jumping")
        elif drafter == "dspark":
            drafter = DSparkDrafter(ServingDSpark(dspark, serving_model), G)
        elif drafter == "prompt_lookup":
            drafter = PromptLookup(G)
        rules = RULES[rule]() if isinstance(rule, str) else rule
        return make_engine(drafter=drafter, make_budget=lambda profile: rules, **limits)

    return make


def ids_of(outputs) -> list:
    return [(out.outputs[0].token_ids, out.outputs[0].finish_reason) for out in outputs]


def params_of(kind: str, count: int, **more) -> list[SamplingParams]:
    """Greedy, seeded, or all different."""
    made = []
    for i in range(count):
        seeded = {
            "temperature": 0.5 + i / 5,
            "seed": i,
            "top_p": 1 - i % 3 / 10,
            "top_k": i % 2 * 9,
        }
        greedy = kind == "greedy" or (kind == "mixed" and i % 3 == 0)
        own = {"temperature": 0.0} if greedy else seeded
        made.append(SamplingParams(**{"max_tokens": 16, "ignore_eos": True, **own, **more}))
    return made


LIMITS = [
    {},
    {"max_num_batched_tokens": 7},
    {"num_blocks": 9},
    {"max_num_batched_tokens": 3, "num_blocks": 9},
    {"max_num_batched_tokens": 1},
    {"max_num_seqs": 1},
]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("drafter", ["knowing", "dspark"])
def test_texts_do_not_change_however_steps_are_cut(speculating, plain, drafter, limits):
    params = params_of("mixed", len(PROMPTS))
    expected = ids_of(plain(PROMPTS, params))
    engine = speculating(drafter, "jumping", PROMPTS, params, **limits)
    outputs = run_all(engine, PROMPTS, params)
    assert ids_of(outputs) == expected
    if limits == {"num_blocks": 9}:
        assert sum(out.metrics.preemptions for out in outputs) > 0
    if limits.get("max_num_batched_tokens") != 1:
        assert sum(out.metrics.checked for out in outputs) > 0


@pytest.mark.parametrize("rule", ["fixed", "scheduled"])
def test_steps_too_small_for_all_checks(speculating, plain, rule):
    """Seven requests and 21 tokens a step: two checks each, and five once fewer run."""
    params = params_of("mixed", len(PROMPTS), max_tokens=24)
    outputs = run_all(speculating("dspark", rule, max_num_batched_tokens=21), PROMPTS, params)
    assert ids_of(outputs) == ids_of(plain(PROMPTS, params))
    if rule == "fixed":
        assert all(out.metrics.checked > 0 for out in outputs)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("drafter", ["knowing", "dspark", "prompt_lookup"])
def test_texts_do_not_change_whoever_drafts_and_decides(speculating, plain, drafter, rule):
    params = params_of("mixed", len(PROMPTS), logprobs=2)
    expected = plain(PROMPTS, params)
    outputs = run_all(speculating(drafter, rule, PROMPTS, params), PROMPTS, params)
    assert ids_of(outputs) == ids_of(expected)
    for got, want in zip(outputs, expected, strict=True):
        got, want = got.outputs[0].logprobs, want.outputs[0].logprobs
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert list(a) == list(b)
            assert all(abs(a[token] - b[token]) < 1e-5 for token in a)


def test_right_guesses_save_steps_and_are_counted(speculating):
    engine = speculating("knowing", "fixed", PROMPTS[:1], wrong=0.0)
    (out,) = run_all(engine, PROMPTS[:1], GREEDY)
    metrics = out.metrics
    assert metrics.steps == 5  # the prompt and a token, then 6 + 6 + 6 + 1
    assert (metrics.accepted, metrics.checked) == (15, 15)
    assert metrics.accepted_by_position == metrics.checked_by_position == [3] * 5
    assert metrics.drafted == 15, "with one token to go there is nothing to guess"
    assert engine.speculation.drafter.learned == [(5, 5)] * 3


@pytest.mark.parametrize("draws", [{"temperature": 0.0}, {"temperature": 1.0}])
def test_a_rule_that_wants_fewer_gets_fewer(speculating, draws):
    """No places are drawn that nobody asked for; another rule may take over between requests."""
    engine, seen = speculating("dspark", FixedLength(2)), []
    propose = engine.speculation.drafter.propose
    engine.speculation.drafter.propose = lambda *args: seen.append(propose(*args)) or seen[-1]
    params = SamplingParams(12, ignore_eos=True, **draws)
    outputs = run_all(engine, PROMPTS[:3], params)
    assert {draft.ids.shape[1] for draft in seen} == {2}
    assert all(len(out.metrics.checked_by_position) <= 2 for out in outputs)
    engine.speculation.budget = FixedLength(G)
    run_all(engine, PROMPTS[:3], params)
    assert seen[-1].ids.shape[1] == G


def test_counts_by_position(speculating):
    outputs = run_all(speculating("knowing", "jumping", PROMPTS), PROMPTS, GREEDY)
    for metrics in (out.metrics for out in outputs):
        assert sum(metrics.checked_by_position) == metrics.checked <= metrics.drafted
        assert sum(metrics.accepted_by_position) == metrics.accepted <= metrics.checked
        for counts in (metrics.checked_by_position, metrics.accepted_by_position):
            assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("kind", ["eos", "stop_token_ids"])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6, 7])
def test_an_end_inside_a_block(speculating, plain, kind, at):
    """The text ends at greedy token `at`, wherever that falls in a block of right guesses."""
    prompts = PROMPTS[4:5]
    full = plain(prompts, GREEDY)[0].outputs[0].token_ids
    cut = full.index(full[at]) + 1
    engine = speculating("knowing", "fixed", prompts, wrong=0.0)
    stops = [full[at]] if kind == "stop_token_ids" else []
    if kind == "eos":
        engine.eos_ids = {full[at]}
    params = SamplingParams(max_tokens=20, temperature=0.0, stop_token_ids=stops)
    (out,) = run_all(engine, prompts, params)
    assert (out.outputs[0].token_ids, out.outputs[0].finish_reason) == (full[:cut], "stop")
    assert out.metrics.accepted <= cut


@pytest.mark.parametrize("first", ["stop string", "eos"])
def test_a_stop_string_and_an_end_token_in_one_block(speculating, plain, tokenizer, first):
    prompts = PROMPTS[4:5]
    full = plain(prompts, GREEDY)[0].outputs[0]
    early, late = (2, 4) if first == "stop string" else (4, 2)
    text = tokenizer.decode(full.token_ids[: early + 1])
    stop = text[-3:]
    engine = speculating("knowing", "fixed", prompts, wrong=0.0)
    engine.eos_ids = {full.token_ids[late]}
    params = SamplingParams(max_tokens=20, temperature=0.0, stop=[stop], logprobs=0)
    reference = speculating("prompt_lookup")
    reference.speculation = reference.runner.drafter = None
    reference.eos_ids = engine.eos_ids
    (want,), (got,) = run_all(reference, prompts, params), run_all(engine, prompts, params)
    assert got.outputs[0].text == want.outputs[0].text
    assert got.outputs[0].token_ids == want.outputs[0].token_ids
    assert got.outputs[0].finish_reason == "stop"
    assert len(got.outputs[0].logprobs) == len(got.outputs[0].token_ids)


@pytest.mark.parametrize("drafter", ["knowing", "dspark", "prompt_lookup"])
def test_the_context_limit_inside_a_block(speculating, plain, drafter):
    prompts = prompts_of([255, 254, 256 - G, 255 - G, 250])
    params = SamplingParams(None, temperature=0.0, ignore_eos=True)
    engine = speculating(drafter, "fixed", prompts, params, wrong=0.0)
    assert ids_of(run_all(engine, prompts, params)) == ids_of(plain(prompts, params))


@pytest.mark.parametrize("new", [1, 2, G, G + 1, G + 2])
def test_max_tokens_inside_a_block(speculating, plain, new):
    params = SamplingParams(max_tokens=new, temperature=0.0, ignore_eos=True)
    engine = speculating("knowing", "fixed", PROMPTS[:3], wrong=0.0)
    assert ids_of(run_all(engine, PROMPTS[:3], params)) == ids_of(plain(PROMPTS[:3], params))


def test_a_request_alone_in_a_pool_that_just_holds_it(speculating, plain):
    """Its last blocks leave no room to look ahead: fewer drafts, the same text."""
    prompts, params = prompts_of([20]), SamplingParams(max_tokens=13, **{"temperature": 0.0})
    for drafter in ("dspark", "knowing"):
        engine = speculating(drafter, "fixed", prompts, params, num_blocks=2)
        assert ids_of(run_all(engine, prompts, params)) == ids_of(plain(prompts, params))


def test_requests_join_and_leave_between_steps(speculating, plain):
    expected = dict(zip(map(str, range(7)), ids_of(plain(PROMPTS, GREEDY)), strict=True))
    engine = speculating("knowing", "jumping", PROMPTS)
    done, added = {}, 0
    while added < len(PROMPTS) or engine.has_unfinished_requests():
        if added < len(PROMPTS):
            engine.add_request(str(added), PROMPTS[added], GREEDY)
            added += 1
        for out in engine.step():
            done[out.request_id] = (out.outputs[0].token_ids, out.outputs[0].finish_reason)
        if len(done) == 4 and "5" in engine._requests:
            engine.abort_request("5")
    del expected["5"], done["5"]
    assert done == expected
    assert engine.pool.num_free == engine.pool.num_blocks


@pytest.mark.parametrize("length", [15, 16, 17, 32, 33, 80])
def test_prefix_hits_with_a_drafter(speculating, length):
    """The drafter's context comes with the blocks: the same guesses, and at least as many hits."""
    prompts = prompts_of([length])
    engine = speculating("dspark", "fixed")
    (cold,), (warm,) = run_all(engine, prompts, GREEDY), run_all(engine, prompts, GREEDY)
    assert warm.num_cached_tokens == (length - 1) // 16 * 16
    assert cold.outputs[0].token_ids == warm.outputs[0].token_ids
    counts = [out.metrics.accepted_by_position for out in (cold, warm)]
    assert counts[0] == counts[1], "the drafter guessed otherwise after a hit"


def test_accepted_tokens_are_reused_by_the_next_turn(speculating, plain):
    """Blocks that drafts filled are found, and hold what the plain run computes."""
    prompts, params = prompts_of([30]), SamplingParams(35, temperature=0.0, ignore_eos=True)
    engine = speculating("knowing", "fixed", prompts, params, wrong=0.2)
    (out,) = run_all(engine, prompts, params)
    turn = [prompts[0] + out.outputs[0].token_ids + [7, 8, 9]]
    engine.speculation.drafter.answers[tuple(turn[0])] = []
    (again,) = run_all(engine, turn, GREEDY)
    assert again.num_cached_tokens == 64
    assert ids_of([again]) == ids_of(plain(turn, GREEDY))


def test_the_drafter_sees_the_same_context_in_chunks_and_whole(speculating):
    """KV injection covers prompts that are computed in pieces, and rejected rows are written again:
    the same drafts, so the same acceptance."""
    counts = []
    for limits in ({}, {"max_num_batched_tokens": 9}, {"max_num_seqs": 1}):
        engine = speculating("dspark", "fixed", **{"max_num_batched_tokens": 512, **limits})
        kept = {}
        learn = engine.speculation.drafter.learn
        assert learn(None, 0, 0) is None
        engine.speculation.drafter.learn = lambda seq, checked, accepted, kept=kept: (
            kept.setdefault((seq.request_id, len(seq.tokens)), []).append(tuple(seq.draft))
        )
        run_all(engine, PROMPTS, GREEDY)
        counts.append({k: v[0] for k, v in kept.items() if len(v[0]) == G})
    shared = counts[0].keys() & counts[1].keys() & counts[2].keys()
    assert len(shared) > 20
    for key in shared:
        assert counts[0][key] == counts[1][key] == counts[2][key], key


@pytest.fixture
def broken_token(serving_model):
    row = serving_model.embed[777].clone()
    serving_model.embed[777] = torch.nan
    yield
    serving_model.embed[777] = row


def test_a_wrong_guess_that_breaks_its_rows_does_no_harm(speculating, plain, broken_token):
    """Token 777 gives logits that are no numbers. Guessing it costs the rows behind it, no more."""
    prompts = PROMPTS[:4]
    expected = ids_of(plain(prompts, GREEDY))
    engine = speculating("knowing", "fixed", prompts, wrong=0.0)
    answers = engine.speculation.drafter.answers
    for answer in answers.values():
        answer[4::6] = [777] * len(answer[4::6])
    assert ids_of(run_all(engine, prompts, GREEDY)) == expected


def test_a_broken_prompt_ends_alone(speculating, plain, broken_token):
    prompts = [[777] * 20, *PROMPTS[:2]]
    engine = speculating("dspark", "fixed")
    outputs = run_all(engine, prompts, GREEDY)
    assert outputs[0].outputs[0].finish_reason == "error"
    assert ids_of(outputs[1:]) == ids_of(plain(prompts[1:], GREEDY))


def test_a_failing_drafter_leaves_a_usable_engine(speculating):
    engine = speculating("knowing", "fixed", PROMPTS[:1])
    engine.add_request("a", PROMPTS[0], GREEDY)
    propose = engine.speculation.drafter.propose
    engine.speculation.drafter.propose = lambda *args: 1 / 0
    with pytest.raises(ZeroDivisionError):
        for _ in range(5):
            engine.step()
    assert not engine.has_unfinished_requests()
    engine.speculation.drafter.propose = propose
    run_all(engine, PROMPTS[:1], GREEDY)


def test_the_profile_leaves_no_trace(make_engine, plain):
    made = []
    engine = make_engine(
        drafter=PromptLookup(G),
        make_budget=lambda profile: lambda: made.append(profile()) or Budget(made[0], G),
        max_num_seqs=5,
    )
    outputs = run_all(engine, PROMPTS, GREEDY)
    assert ids_of(outputs) == ids_of(plain(PROMPTS, GREEDY))
    assert len(made) == 1 and made[0].plain_seconds(5) > 0
    assert not engine.speculation.drafter._matches


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random checkpoint and the drafter of another one."""
    import shutil

    from minimoe.checkpoint import save_checkpoint
    from minimoe.config import SHIPPED
    from minimoe.speculative.dspark_checkpoint import save_dspark

    base = tmp_path_factory.mktemp("models")
    for name, seed in (("one", 0), ("two", 1)):
        model = random_model(small_config(), torch.float32, seed)
        save_checkpoint(model, base / name)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(SHIPPED / "tiny-moe" / file, base / name)
        loaded = LLM(base / name, device="cpu").model.textbook
        config = DSparkConfig.of(loaded, layers=2, taps=(0, 2), markov_rank=6)
        save_dspark(DSpark(config, loaded.config).init_weights(seed=1), base / f"{name}-dspark")
    return base


def test_llm_with_a_drafter_beside_its_model(folder):
    texts = []
    for config in (None, {"method": "dspark", "scheduled": False}, {"method": "dspark"}):
        llm = LLM(folder / "one", device="cpu", dtype="float64", speculative_config=config,
                  max_num_seqs=2)  # fmt: skip
        outputs = llm.generate([[5, 6, 7], [8] * 20], GREEDY)
        texts.append(ids_of(outputs))
    assert texts[0] == texts[1] == texts[2]
    assert set(llm.engine.runner.kv) == {"target", "draft"}


def test_a_drafter_says_how_many_it_guesses(folder):
    """Nobody has to repeat it; without a drafter of one's own it is five."""
    for config, length in (
        ({"drafter": KnowingDrafter({}, 3)}, 3),
        ({"drafter": KnowingDrafter({}, 9)}, 5),
        ({"method": "prompt_lookup"}, 5),
        ({"method": "prompt_lookup", "num_speculative_tokens": 7}, 7),
    ):
        config["scheduled"] = False
        llm = LLM(folder / "one", device="cpu", speculative_config=config)
        assert llm.engine.speculation.budget.length == length


BAD = [
    ({"method": "eagle"}, "method is 'eagle': it must be one of dspark, prompt_lookup"),
    ({}, "method is None"),
    ("dspark", "speculative_config is a str: give a dict"),
    ({"method": "dspark", "k": 3}, "speculative_config has 'k'"),
    ({"method": "dspark", "num_speculative_tokens": 0}, "num_speculative_tokens is 0"),
    ({"method": "dspark", "num_speculative_tokens": 6}, "is 6 and the block .* is 5 tokens: use 5"),
    ({"method": "prompt_lookup", "num_speculative_tokens": 65}, "is 65 .* 64 tokens"),
    ({"method": "prompt_lookup", "prompt_lookup_min": 4}, "prompt_lookup_min 4 exceeds"),
    ({"method": "prompt_lookup", "budget": 3}, "budget is a int: give an object with a method"),
    ({"method": "prompt_lookup", "threshold": 2}, "survival limit is 2"),
    (
        {"method": "prompt_lookup", "scheduled": "guess"},
        "scheduled is 'guess': it must be True, False or",
    ),
    ({"drafter": object()}, "drafter is a object: give a subclass"),
    ({"method": "dspark", "model": "nowhere"}, "no drafter 'nowhere'"),
]


@pytest.mark.parametrize(("config", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_configurations(folder, config, message):
    with pytest.raises(MinimoeError, match=message):
        LLM(folder / "one", device="cpu", speculative_config=config)


def test_drafters_of_another_model_are_refused(folder, tmp_path):
    from minimoe.speculative.dspark_checkpoint import save_dspark

    config = {"method": "dspark", "model": folder / "two-dspark"}
    with pytest.raises(MinimoeError, match="was trained for .* with weights"):
        LLM(folder / "one", device="cpu", speculative_config=config)
    other = random_model(small_config(vocab_size=99), torch.float32)
    foreign = DSparkConfig.of(other, layers=2, taps=(0, 2))
    save_dspark(DSpark(foreign, other.config).init_weights(), tmp_path)
    with pytest.raises(MinimoeError, match="a model of 99 tokens .* this one has 2048"):
        config = {"method": "dspark", "model": tmp_path}
        LLM(folder / "one", device="cpu", speculative_config=config)
