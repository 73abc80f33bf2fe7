"""Prompt look-up finds what a search of the whole text finds, and grows with the text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from minimoe.speculative.prompt_lookup import Matches, PromptLookup, find_naive

texts = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@settings(max_examples=150)
@given(texts, st.lists(st.integers(1, 5), max_size=6), st.integers(1, 3), st.integers(0, 2))
def test_equals_a_full_search_as_the_text_grows(text, pieces, shortest, more):
    longest = shortest + more
    matches, end = Matches(shortest, longest), 1
    for piece in [*pieces, 40]:
        tokens = text[:end]
        guess, size = matches.find(tokens, 5)
        assert guess == find_naive(tokens, 5, shortest, longest)
        assert (size > 0) == bool(guess)
        end += piece


class Text:
    """All that prompt look-up reads of a request."""

    def __init__(self, tokens):
        self.tokens = tokens


def test_the_latest_and_longest_match_counts_and_a_period_goes_on():
    lookup = PromptLookup(length=4, longest=3)
    a = Text([1, 2, 3, 9, 9, 7, 2, 3, 8, 1, 2, 3])
    b = Text([4, 5, 4, 5])
    new = Text([1, 2, 3])
    draft = lookup.propose([a, b, new])
    assert draft.ids.tolist()[:2] == [[9, 9, 7, 2], [4, 5, 4, 5]]
    assert draft.lengths == [4, 4, 0] and draft.probs is None


def test_confidence_is_experience():
    lookup = PromptLookup(length=3, longest=2)
    seq = Text([1, 2, 1, 2])
    before = lookup.propose([seq]).confidence[0]
    assert before.tolist() == [0.5] * 3
    for _ in range(20):
        lookup.learn(seq, checked=3, accepted=1)
    after = lookup.propose([seq]).confidence[0]
    assert after[0] > 0.9 and after[1] < 0.1 and after[2] == 0.5
    lookup.forget(seq)
    lookup.forget(seq)
    assert not lookup._matches


def test_ids_and_confidence_stay_as_long_as_each_other():
    """The bench shortens a drafter between its turns."""
    drafter, text = PromptLookup(5), Text([1, 2, 1])
    drafter.propose([text])
    drafter.length = 2
    draft = drafter.propose([text])
    assert draft.ids.shape == draft.confidence.shape == (1, 2)
