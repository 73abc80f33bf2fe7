"""Admission beside its naive oracles: Algorithm 1 slot by slot, and all prefix lengths tried."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minimoe.speculative import admission

CONFIDENCES = st.sampled_from([0.0, 0.1, 0.5, 0.5, 0.9, 1.0])


@st.composite
def batches(draw, most_requests=3, most_length=3):
    """Survivals with many ties, and seconds by number of checks: lines, stairs, jumps."""
    B, G = draw(st.integers(1, most_requests)), draw(st.integers(1, most_length))
    confidence = np.array(draw(st.lists(CONFIDENCES, min_size=B * G, max_size=B * G)))
    lengths = draw(st.lists(st.integers(0, G), min_size=B, max_size=B))
    rises = draw(st.lists(st.sampled_from([0, 0, 1, 2, 9]), min_size=B * G, max_size=B * G))
    seconds = draw(st.sampled_from([1.0, 5.0])) + np.cumsum([0, *rises])
    return confidence.reshape(B, G), lengths, seconds


def admit(a, count):
    return admission.prefixes(*admission.by_survival(a), count, a.shape)


def expected_tokens(a, checks):
    return len(a) + sum(row[:count].sum() for row, count in zip(a, checks, strict=True))


@given(batches())
def test_survival_is_a_running_product_that_ends_with_the_draft(batch):
    confidence, lengths, _ = batch
    a = admission.survival(confidence, lengths)
    for row, given_row, length in zip(a, confidence, lengths, strict=True):
        for j in range(len(row)):
            assert row[j] == pytest.approx(np.prod(given_row[: j + 1]) if j < length else 0)
    assert (np.diff(a, axis=1) <= 0).all()


def test_a_confidence_that_is_no_number_is_never_worth_a_check():
    a = admission.survival(np.array([[0.9, np.nan, 0.9], [2.0, -1.0, 0.5]]), [3, 3])
    assert a.tolist() == [[0.9, 0.0, 0.0], [1.0, 0.0, 0.0]]


@given(batches(most_requests=5, most_length=5))
def test_first_drop_is_algorithm_1(batch):
    confidence, lengths, seconds = batch
    a = admission.survival(confidence, lengths)
    order, slots = admission.by_survival(a)
    count = admission.first_drop(slots, seconds, len(a))
    naive = admission.first_drop_naive(a, seconds.__getitem__)
    assert admission.prefixes(order, slots, count, a.shape) == naive


@given(batches())
def test_the_best_count_of_the_likeliest_slots_is_the_best_of_all_prefix_lengths(batch):
    confidence, lengths, seconds = batch
    a = admission.survival(confidence, lengths)
    count = admission.best_count(admission.expected_accepted(a), seconds, len(a))
    checks = admit(a, count)
    rate = expected_tokens(a, checks) / seconds[sum(checks)]
    best, _ = admission.best_naive(a, seconds.__getitem__)
    assert rate == pytest.approx(best)


@given(batches(most_requests=5, most_length=5), st.integers(0, 30))
def test_admitted_slots_are_prefixes_within_the_draft_and_the_likeliest(batch, count):
    confidence, lengths, _ = batch
    a = admission.survival(confidence, lengths)
    checks = admit(a, count)
    assert all(0 <= c <= length for c, length in zip(checks, lengths, strict=True))
    assert sum(checks) == min(count, np.count_nonzero(a))
    best = admission.expected_accepted(a)[sum(checks)]
    assert expected_tokens(a, checks) == pytest.approx(len(a) + best)


def test_ties_go_to_the_earlier_request_and_stay_prefixes():
    a = np.full((3, 2), 0.5)
    assert [admit(a, count) for count in range(4)] == [[0, 0, 0], [1, 0, 0], [2, 0, 0], [2, 1, 0]]


def test_first_too_dear():
    slots = np.array([0.9, 0.5, 0.4])
    assert admission.first_too_dear(slots, np.array([0.1, 0.1, 0.1])) == 3
    assert admission.first_too_dear(slots, np.array([0.1, 0.6, 0.1])) == 1
    assert admission.first_too_dear(slots, np.array([0.9, 0.5, 0.5])) == 2
    assert admission.first_too_dear(slots, np.array([2.0, 0.0, 0.0])) == 0
