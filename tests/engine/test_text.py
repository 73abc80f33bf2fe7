"""Text as it grows: stop strings, held back starts of them, whole characters only."""

from hypothesis import given
from hypothesis import strategies as st

from minimoe.engine.text import TextOutput

texts = st.text(alphabet="abc é", max_size=12)


def letter_by_letter(text: str, stops: list[str]) -> str:
    """The oracle: the text before the stop string that is complete first, the longest of equals."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))]
    return text


@given(texts, st.lists(st.text(alphabet="abc é", min_size=1, max_size=3), max_size=3))
def test_shown_text_is_the_text_before_the_first_stop(tokenizer, text, stops):
    out = TextOutput(tokenizer, stops)
    shown = ""
    for token in tokenizer.backend.encode(text).ids:
        stopped = out.push(token)
        shown += out.take()
        if stopped:
            break
    out.finish()
    shown += out.take(final=True)
    assert shown == out.text
    assert shown == letter_by_letter(text, stops)


def test_the_start_of_a_stop_string_is_held_back(tokenizer):
    out = TextOutput(tokenizer, ["xyz"])
    for letter in "axy":
        out.push(tokenizer.encode(letter)[0])
    assert out.take() == "a"
    out.push(tokenizer.encode("b")[0])
    assert out.take() == "xyb"


def test_half_a_character_is_not_shown(tokenizer):
    out = TextOutput(tokenizer, [])
    ids = tokenizer.encode("\U0001f600")
    assert len(ids) > 1
    for token in ids[:-1]:
        out.push(token)
        assert out.take() == ""
    out.push(ids[-1])
    assert out.take() == "\U0001f600"
    out.push(ids[0])
    out.finish()
    assert out.take(final=True) == "\ufffd"
