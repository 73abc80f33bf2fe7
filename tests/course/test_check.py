import pytest

from minimoe.course import check as public_check
from minimoe.course.check import (
    CHECKS,
    HINT,
    NOT_DONE,
    RIGHT,
    Check,
    Wrong,
    check,
    grade,
    is_blank,
    register,
)


@pytest.fixture
def registered():
    """A check known only for the length of one test."""

    @register
    class Double(Check):
        name = "99-double"
        wrong = [Wrong(lambda x: x, "nothing was added")]

        def cases(self, rng):
            yield ([],)
            yield from (([rng.randrange(1, 9)] * 2,) for _ in range(5))

        def expected(self, x):
            return x + x

        def hint(self, got, x):
            return "nothing was added" if got == x else None

    yield Double
    del CHECKS[Double.name]


def test_right(registered, capsys):
    check("99-double", lambda x: x + x)
    assert capsys.readouterr().out == "99-double: right (6 cases)\n"


def test_the_public_name_is_the_function():
    assert public_check is check


def _ellipsis(x): ...


def _docstring(x):
    """Only words."""


def _docstring_and_ellipsis(x):
    """Words."""
    ...


def _passes(x):
    pass


def _returns_ellipsis(x):
    return ...


@pytest.mark.parametrize(
    "blank", [_returns_ellipsis, _ellipsis, _docstring, _docstring_and_ellipsis, _passes]
)
def test_not_done_yet(registered, blank, capsys):
    check("99-double", blank)
    assert capsys.readouterr().out == "99-double: not done yet\n"
    assert grade("99-double", blank).status == NOT_DONE


@pytest.mark.parametrize("busy", [lambda x: 7, lambda x: x, lambda x: False, print, type])
def test_not_blank(busy):
    assert not is_blank(busy)


def test_hint_with_expected_and_got(registered):
    verdict = grade("99-double", lambda x: x)
    assert verdict.status == HINT
    lines = verdict.text.splitlines()
    assert "nothing was added" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["for", "expected", "got"]


def _forgets_return(x):
    x + x


def _raises(x):
    raise KeyError("lost\nline two")


def _spoils_its_argument(x):
    x += x
    return x


def _recurses(x):
    return _recurses(x)


@pytest.mark.parametrize(
    "answer, says",
    [
        (_forgets_return, "is a `return` missing?"),
        (_raises, "it raised KeyError"),
        (_recurses, "it raised RecursionError"),
        (lambda: 1, "it raised TypeError"),
        (lambda x: {"a": 1}, "a list is expected, this is a dict"),
        (lambda x: 7, "a list is expected, this is a number"),
        (3, "give the function itself, not 3"),
        (None, "give the function itself, not None"),
    ],
)
def test_never_raises(registered, answer, says, capsys):
    assert check("99-double", answer) is None
    printed = capsys.readouterr().out
    assert says in printed and len(printed.splitlines()) <= 4


def test_an_answer_may_change_its_argument(registered):
    assert grade("99-double", _spoils_its_argument).status == RIGHT


def test_unknown_name_lists_the_names(registered, capsys):
    check("99-dubble", lambda x: x)
    assert "no check has this name" in capsys.readouterr().out


def test_a_name_is_registered_once(registered):
    with pytest.raises(ValueError, match="registered twice"):
        register(registered)


def test_a_hint_that_stumbles_gives_the_plain_difference(registered, monkeypatch):
    monkeypatch.setattr(registered, "hint", lambda self, got, x: got["missing"])
    assert "items are expected" in grade("99-double", lambda x: [1]).text
