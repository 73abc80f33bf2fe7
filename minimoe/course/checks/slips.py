"""Known slips of an exercise, as a table from the slip, a wrong answer, to what the hint says."""

import contextlib
from collections.abc import Callable

from minimoe.course.check import Wrong
from minimoe.course.compare import difference

NOT_A_DICT = {
    (TypeError, "not subscriptable"): "config is no dict here: write config.hidden_size, with a dot"
}


def first_slip(slips: dict[Callable, str], got, *args) -> str | None:
    """What to say when the result is that of a slip; the first that fits decides."""
    for slip, text in slips.items():
        with contextlib.suppress(ArithmeticError, ValueError):
            if difference(slip(*args), got, 1e-6) is None:
                return text
    return None


def wrongs(slips: dict[Callable, str]) -> list[Wrong]:
    """Every slip as a known wrong answer, which must get its words."""
    return [Wrong(slip, text) for slip, text in slips.items()]


def told(answer: Callable, said: dict[tuple, str], *args):
    """The answer's result; or, where it raises an error that `said` knows, the words for that.

    said: (kind of error, part of its message) to words.
    """
    try:
        return answer(*args)
    except Exception as error:
        for (kind, part), words in said.items():
            if isinstance(error, kind) and part in str(error):
                return words
        raise
