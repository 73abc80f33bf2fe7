import numpy as np
import pytest
import torch

from minimoe.course.compare import WIDTH, difference, shown


@pytest.mark.parametrize(
    "want, got",
    [
        (1, 1.0),
        (1.0, 1.0 + 1e-7),
        (1e9, 1e9 + 1),
        ([1, 2], (1, 2)),
        ([1, 2], torch.tensor([1, 2])),
        ([[1.0], [2.0]], np.array([[1.0], [2.0]])),
        (3, torch.tensor(3)),
        (3, np.int64(3)),
        ({"a": [1]}, {"a": (1,)}),
        (True, True),
        (True, np.bool_(True)),
        ("a", "a"),
        ({1, 2}, {2, 1}),
        (float("inf"), float("inf")),
        (float("nan"), float("nan")),
        (None, None),
    ],
)
def test_equal(want, got):
    assert difference(want, got, 1e-5) is None


@pytest.mark.parametrize(
    "want, got, says",
    [
        (1.0, 1.1, "too large"),
        (1.0, -1.0, "too small"),
        (1.0, float("nan"), "not a number"),
        ([1, 2], [1, 2, 3], "2 items are expected, there are 3"),
        ([1, [2, 3]], [1, [2, 4]], "at index 1, at index 1, the value is too large"),
        (1, True, "the other way round"),
        (True, False, "the other way round"),
        ("a", 1, "a str is expected, this is a number"),
        ([1], {1}, "a list is expected, this is a set"),
        ({"a": 1}, {"b": 1}, "the keys ['a'] are expected, these are ['b']"),
        ({"a": 1}, {"a": 2}, "at key 'a'"),
        ({1}, {2}, "the values differ"),
    ],
)
def test_different(want, got, says):
    assert says in difference(want, got, 1e-5)


def test_shown_is_one_short_line():
    assert shown([0.123456789, 1, (2.0, True)]) == "[0.1235, 1, [2, True]]"
    assert shown(torch.tensor([1, 2])) == "[1, 2]"
    assert "\n" not in shown("a\nb") and "\n" not in shown(
        type("T", (), {"__repr__": lambda s: "a\nb"})()
    )
    assert len(shown(list(range(1000)))) <= WIDTH
