"""Compare a reader's result with the expected one, and show values in a line."""

import math
from numbers import Real

WIDTH = 100  # characters of a value that a hint shows


def difference(want, got, tolerance: float) -> str | None:
    """None when `got` equals `want`, else what differs, in words.

    Numbers may differ by `tolerance` relative to max(1, |want|). Lists, tuples, arrays and tensors
    are interchangeable, since the reader may have chosen either; dicts and sets are not.
    """
    want, got = plain(want), plain(got)
    if isinstance(want, bool) or isinstance(got, bool):
        return None if want is got else "the answer is the other way round"
    if isinstance(want, Real) and isinstance(got, Real):
        return _number_difference(want, got, tolerance)
    if isinstance(want, list) and isinstance(got, list):
        return _list_difference(want, got, tolerance)
    if isinstance(want, dict) and isinstance(got, dict):
        return _dict_difference(want, got, tolerance)
    if type(want) is not type(got):
        return f"a {_kind(want)} is expected, this is a {_kind(got)}"
    return None if want == got else "the values differ"


def plain(value):
    """Tensors, arrays and tuples as lists, array scalars as numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def _number_difference(want: Real, got: Real, tolerance: float) -> str | None:
    if math.isnan(want) or math.isnan(got):
        both = math.isnan(want) and math.isnan(got)
        return None if both else "one of the two is not a number"
    if want == got or abs(want - got) <= tolerance * max(1.0, abs(want)):
        return None
    return "the value is too large" if got > want else "the value is too small"


def _list_difference(want: list, got: list, tolerance: float) -> str | None:
    if len(want) != len(got):
        return f"{len(want)} items are expected, there are {len(got)}"
    for index, pair in enumerate(zip(want, got, strict=True)):
        inner = difference(*pair, tolerance)
        if inner:
            return f"at index {index}, {inner}"
    return None


def _dict_difference(want: dict, got: dict, tolerance: float) -> str | None:
    if want.keys() != got.keys():
        return f"the keys {shown(list(want))} are expected, these are {shown(list(got))}"
    for key in want:
        inner = difference(want[key], got[key], tolerance)
        if inner:
            return f"at key {key!r}, {inner}"
    return None


def _kind(value) -> str:
    return "number" if isinstance(value, Real) else type(value).__name__


def shown(value) -> str:
    """A value on one line, numbers to four digits, cut when long."""
    text = _text(plain(value))
    return text if len(text) <= WIDTH else text[: WIDTH - 4] + " ..."


def _text(value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(item)}" for key, item in value.items()) + "}"
    return " ".join(repr(value).split())
