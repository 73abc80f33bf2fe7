"""What users plug in, and wrote wrongly: the same texts, or a clear error.

Drafters and rules of checks; the order of waiting requests; the choice of a free block.
"""

import pytest
import torch
from engine_runs import run_all
from speculation_toys import KnowingDrafter

from minimoe import LLM
from minimoe.engine.params import SamplingParams
from minimoe.errors import EngineError, MinimoeError
from minimoe.speculative.drafter import Draft, Drafter
from minimoe.speculative.prompt_lookup import PromptLookup
from minimoe.speculative.rules import FixedLength, Rule

G = 3
PROMPTS = [[5, 6, 7, 5, 6], [8] * 20, [9, 10] * 9]
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
NAN = float("nan")


class Proposes(Drafter):
    """Gives what a function of the number of requests gives."""

    length = block = G

    def __init__(self, make):
        self.make = make

    def propose(self, seqs, step):
        return self.make(len(seqs))


class Chooses(Rule):
    """Checks what a function of the lengths gives; plans what it is told."""

    def __init__(self, choose=list, plan=G):
        super().__init__(G)
        self.own, self.planned = choose, plan

    def plan(self, requests):
        return self.planned

    def choose(self, confidence, lengths, plain_tokens=0):
        return self.own(lengths)


def ids(count: int, wide: int = G) -> torch.Tensor:
    return torch.zeros(count, wide, dtype=torch.long)


@pytest.fixture
def fails(make_engine):
    """The message of an engine that is then empty and still serves."""

    def run(drafter, rule):
        engine = make_engine(drafter=drafter, make_budget=lambda profile: rule)
        with pytest.raises(EngineError) as error:
            run_all(engine, PROMPTS, GREEDY)
        assert not engine.has_unfinished_requests()
        engine.pool.check()
        assert engine.pool.num_free == engine.pool.num_blocks
        engine.speculation.budget = FixedLength(0)
        run_all(engine, PROMPTS, GREEDY)
        return str(error.value)

    return run


@pytest.mark.parametrize(
    "choose",
    [
        lambda lengths: [-1] * len(lengths),
        lambda lengths: [NAN] * len(lengths),
        lambda lengths: [1] * (len(lengths) + 1),
        lambda lengths: lengths[:-1],
        lambda lengths: ["all"] * len(lengths),
        lambda lengths: torch.zeros(len(lengths), 2),
        lambda lengths: None,
    ],
)
def test_a_rule_that_chooses_nonsense(fails, choose):
    assert "the budget chose" in fails(PromptLookup(G), Chooses(choose))


@pytest.mark.parametrize("plan", [-1, None, 1.5])
def test_a_rule_that_plans_nonsense(fails, plan):
    assert "the budget's plan is" in fails(PromptLookup(G), Chooses(plan=plan))


@pytest.mark.parametrize(
    "make",
    [
        lambda B: None,
        lambda B: Draft([[0] * G] * B, [G] * B),
        lambda B: Draft(ids(B).float(), [G] * B),
        lambda B: Draft(ids(B)[:-1], [G] * B),
        lambda B: Draft(ids(B), [G]),
        lambda B: Draft(ids(B), [G] * B, probs=torch.zeros(B, 1, 9)),
        lambda B: Draft(ids(B), [G] * B, confidence=torch.zeros(B, 1)),
        lambda B: Draft(ids(B), [G] * B, confidence=[[0.5] * G] * B),
    ],
)
def test_a_drafter_that_gives_nonsense(fails, make):
    assert "the drafter gave" in fails(Proposes(make), FixedLength(G))


ODD = {
    "more checks than drafts": (
        Proposes(lambda B: Draft(ids(B), [G] * B)),
        lambda n: [99] * len(n),
    ),
    "more lengths than ids": (Proposes(lambda B: Draft(ids(B, 1), [9] * B)), list),
    "negative lengths": (Proposes(lambda B: Draft(ids(B), [-2] * B)), list),
    "unknown tokens": (Proposes(lambda B: Draft(ids(B) + 10**6, [G] * B)), list),
    "negative tokens": (Proposes(lambda B: Draft(ids(B) - 1, [G] * B)), list),
    "fractions": (PromptLookup(G), lambda n: [count / 2 for count in n]),
    "a tensor": (PromptLookup(G), torch.tensor),
    "confidence with a gradient": (
        Proposes(lambda B: Draft(ids(B), [G] * B, None, torch.ones(B, G, requires_grad=True))),
        list,
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_what_is_odd_changes_no_text(make_engine, case):
    drafter, choose = ODD[case]
    plain = run_all(make_engine(), PROMPTS, GREEDY)
    engine = make_engine(drafter=drafter, make_budget=lambda profile: Chooses(choose))
    outputs = run_all(engine, PROMPTS, GREEDY)
    assert [o.outputs for o in outputs] == [o.outputs for o in plain]
    assert all(o.metrics.drafted >= 0 for o in outputs)


def test_a_negative_choice_checks_nothing_behind_the_models_last_position(make_engine):
    """It once took all guesses but the last, beyond the end of the context."""
    prompt = [5] * 253  # of 256
    answers = {tuple(prompt): [7] * 9}
    engine = make_engine(
        drafter=KnowingDrafter(answers, G),
        make_budget=lambda profile: Chooses(lambda lengths: [-1] * len(lengths)),
    )
    engine.add_request("a", prompt, SamplingParams(max_tokens=9, temperature=0.0, ignore_eos=True))
    with pytest.raises(EngineError, match=r"the budget chose \[-1\] for 1 requests"):
        while engine.has_unfinished_requests():
            engine.step()


def test_a_drafter_that_cannot_forget_keeps_no_request(make_engine):
    drafter = PromptLookup(G)
    engine = make_engine(drafter=drafter, make_budget=lambda profile: FixedLength(G))
    for i, prompt in enumerate(PROMPTS):
        engine.add_request(str(i), prompt, GREEDY)
    engine.step()
    drafter.forget = lambda seq: 1 / 0
    with pytest.raises(ZeroDivisionError):
        engine.abort_requests(map(str, range(3)))
    assert not engine.has_unfinished_requests()
    assert engine.pool.num_free == engine.pool.num_blocks


@pytest.mark.parametrize(
    ("config", "says"),
    [({"threshold": "x"}, "threshold is 'x'"), ({"model": 5}, "model is 5: it must be a drafter")],
)
def test_bad_settings(config, says):
    with pytest.raises(MinimoeError, match=says):
        LLM("tiny-moe", device="cpu", speculative_config={"method": "dspark", **config})


ORDERS = {
    "last come first": lambda seq: -seq.arrival,
    "shortest prompt first": lambda seq: len(seq.prompt_ids),
    "all alike": lambda seq: 0,
}
CHOICES = {
    "the last": lambda free: free[-1],
    "the middle": lambda free: free[len(free) // 2],
    "the largest number": max,
}


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_of_ones_own_changes_no_text(make_engine, name):
    """With so few blocks that requests are preempted and wait again."""
    plain = run_all(make_engine(), PROMPTS * 3, GREEDY)
    engine = make_engine(num_blocks=6, max_num_seqs=3)
    engine.scheduler.order = ORDERS[name]
    outputs = run_all(engine, PROMPTS * 3, GREEDY)
    assert [o.outputs for o in outputs] == [o.outputs for o in plain]


def test_the_lowest_goes_first(make_engine):
    engine = make_engine(max_num_seqs=1)
    engine.scheduler.order = lambda seq: len(seq.prompt_ids)
    for name, length in {"long": 9, "short": 3, "middle": 5, "short too": 3}.items():
        engine.add_request(name, [5] * length, SamplingParams(max_tokens=1, ignore_eos=True))
    ended = []
    while engine.has_unfinished_requests():
        ended += [out.request_id for out in engine.step()]
    assert ended == ["short", "short too", "middle", "long"]


def test_an_order_that_fails_loses_no_request(make_engine):
    engine = make_engine(num_blocks=3)
    for i, prompt in enumerate(([5] * 16, [6] * 16)):
        engine.add_request(str(i), prompt, SamplingParams(max_tokens=20, ignore_eos=True))
    engine.scheduler.order = lambda seq: 1 / 0
    with pytest.raises(ZeroDivisionError):
        engine.add_request("2", [7], GREEDY)
    with pytest.raises(ZeroDivisionError):  # when the pool is full and one has to wait again
        while engine.has_unfinished_requests():
            engine.step()
    engine.abort_requests(["0", "1"])
    assert not engine.has_unfinished_requests()
    assert engine.pool.num_free == engine.pool.num_blocks


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_of_free_blocks_changes_no_text(make_engine, name):
    plain = run_all(make_engine(), PROMPTS * 3, GREEDY)
    engine = make_engine(num_blocks=8)
    engine.pool.choose = CHOICES[name]
    outputs = [run_all(engine, PROMPTS * 3, GREEDY) for _ in range(2)]  # then with prefix hits
    assert all([o.outputs for o in one] == [o.outputs for o in plain] for one in outputs)


@pytest.mark.parametrize("given", [-1, 999, None, "a"])
def test_a_choice_that_is_no_free_block(make_engine, given):
    engine = make_engine()
    engine.pool.choose = lambda free: given
    engine.add_request("a", [5] * 20, GREEDY)
    with pytest.raises(EngineError, match="it must give one of the free blocks"):
        engine.step()
    engine.abort_request("a")
    engine.pool.check()
    assert engine.pool.num_free == engine.pool.num_blocks
