"""Rules must not change what comes out: exact enumeration of small blocks, one and two requests.

Drafts of two tokens from q, a context of one token; confidences are any function of the tokens
before. After the block, tokens are drawn from p. The joint distribution of the first two tokens of
all requests must be that of p, whatever a rule checks; a rule that peeks must be caught.
"""

import copy
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minimoe.speculative.admission import best_count, by_survival, expected_accepted, prefixes
from minimoe.speculative.budget import FORMS, Budget
from minimoe.speculative.rules import FixedLength, Rule, Threshold
from minimoe.speculative.step_times import StepTimes

V, G = 2, 2
WORDS = list(product(range(V), repeat=2))  # two tokens


class Peeking(Rule):
    """The broken rule: the best number of checks by the confidences of this very step."""

    def __init__(self, times):
        super().__init__(G)
        self.times = times

    def choose(self, confidence, lengths, plain_tokens=0):
        a = self.survival(confidence, lengths)
        seconds = self.times.drafted_seconds(len(a), a.size)
        count = best_count(expected_accepted(a), seconds, len(a))
        return prefixes(*by_survival(a), count, a.shape)


def one_request(p, q, drafts, checks):
    """P of the first two tokens `[V, V]`, given the drafts and how many of them are checked.

    p, q: `[1 + V, V]`, row 0 for the first token, row 1 + x after token x.
    """
    out, kept, row = np.zeros((V, V)), 1.0, 0
    words = []
    for j in range(checks):
        accept = min(1.0, p[row, drafts[j]] / q[row, drafts[j]])
        residual = np.maximum(p[row] - q[row], 0)
        if accept < 1:
            add(out, p, words, kept * (1 - accept) * residual / residual.sum())
        kept, row = kept * accept, 1 + drafts[j]
        words = [*words, drafts[j]]
    add(out, p, words, kept * p[row])
    return out


def add(out, p, words, following):
    """Give the weight of `words` and one more token to the first two tokens they begin with."""
    for token, weight in enumerate(following):
        told = [*words, token][:2]
        if len(told) == 2:
            out[tuple(told)] += weight
        else:
            out[told[0]] += weight * p[1 + told[0]]


def outcome(rule, models, confidence):
    """Joint P of the first two tokens of every request, summed over all drafts."""
    joint = 0.0
    for drafts in product(WORDS, repeat=len(models)):
        chance, table = 1.0, []
        for (_, q), told, head in zip(models, drafts, confidence, strict=True):
            chance *= q[0, told[0]] * q[1 + told[0], told[1]]
            table.append([head[0, 0], head[1, told[0]]])
        checks = copy.deepcopy(rule).choose(np.array(table), [G] * len(models))
        outs = [
            one_request(p, q, told, count)
            for (p, q), told, count in zip(models, drafts, checks, strict=True)
        ]
        both = outs[0].ravel()
        for other in outs[1:]:
            both = np.outer(both, other.ravel()).ravel()
        joint = joint + chance * both
    return joint


def wanted(models):
    both = np.ones(1)
    for p, _ in models:
        both = np.outer(both, np.concatenate([p[0, x] * p[1 + x] for x in range(V)])).ravel()
    return both


def table(*rows):
    return np.array(rows)


PEEK_TIMES = StepTimes({1: 1.0}, {(1, 1): 1.0, (1, 2): 1 / 0.5, (1, 3): 1 / 0.45})
PEEK_MODEL = table(*[(0.7, 0.3)] * 3), table(*[(0.5, 0.5)] * 3)
PEEK_HEAD = table(
    (0.8, 0.8), (0.9, 0.0)
)  # after token 0 the next is nearly sure, after 1 it is not


def primed(times, form, steps=()):
    """A budget that has seen some steps."""
    budget = Budget(times, G, form)
    for confidence in steps:
        budget.plan(len(confidence))
        budget.choose(confidence, [G] * len(confidence))
    return budget


@pytest.mark.parametrize("form", FORMS)
def test_the_peeking_trap_stays_at_70_to_30(form):
    for seen in ([], [np.array([[0.9, 0.9]])] * 9, [np.array([[0.1, 0.1]])] * 9):
        joint = outcome(primed(PEEK_TIMES, form, seen), [PEEK_MODEL], [PEEK_HEAD])
        assert joint.reshape(V, V).sum(1) == pytest.approx([0.7, 0.3])
        assert joint == pytest.approx(wanted([PEEK_MODEL]))


def test_a_rule_that_peeks_makes_it_85_to_15():
    joint = outcome(Peeking(PEEK_TIMES), [PEEK_MODEL], [PEEK_HEAD])
    assert joint.reshape(V, V).sum(1) == pytest.approx([0.85, 0.15])


def test_algorithm_1_checks_nothing_in_the_trap():
    assert primed(PEEK_TIMES, "lossless").choose(np.array([[0.8, 0.9]]), [2]) == [0]


SHARES = st.sampled_from([0.05, 0.3, 0.5, 0.7, 0.95])
SURE = st.sampled_from([0.0, 0.2, 0.5, 0.8, 0.95, 1.0])


@st.composite
def worlds(draw):
    """One or two requests with their p, q and confidence heads; step times; a past."""
    B = draw(st.integers(1, 2))
    rows = st.lists(SHARES, min_size=3, max_size=3)
    spread = lambda shares: np.array([[x, 1 - x] for x in shares])  # noqa: E731
    models = [(spread(draw(rows)), spread(draw(rows))) for _ in range(B)]
    heads = [np.array(draw(st.lists(SURE, min_size=4, max_size=4))).reshape(2, 2) for _ in models]
    rises = draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=5, max_size=5))
    seconds = np.cumsum([1.0, *rises])
    uneven = {1: 0.0, 2: draw(st.sampled_from([0.0, 0.3]))}
    points = {(B, B + m): seconds[m] for m in range(2 * B + 1)}
    times = StepTimes({1: 0.6, 2: 0.8}, points, uneven=uneven)
    past = draw(st.lists(st.lists(SURE, min_size=2 * B, max_size=2 * B), max_size=4))
    return models, heads, times, [np.array(step).reshape(B, 2) for step in past]


@settings(max_examples=60, deadline=None)
@given(worlds(), st.sampled_from(FORMS))
def test_no_form_of_the_budget_changes_the_output(world, form):
    models, heads, times, past = world
    joint = outcome(primed(times, form, past), models, heads)
    assert joint == pytest.approx(wanted(models), abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(worlds(), st.sampled_from([FixedLength(0), FixedLength(1), FixedLength(2)]), SURE)
def test_static_rules_do_not_either(world, fixed, limit):
    models, heads, _, _ = world
    for rule in (fixed, Threshold(G, limit)):
        assert outcome(rule, models, heads) == pytest.approx(wanted(models), abs=1e-9)
