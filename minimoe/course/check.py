"""`check("NN-name", fn)`: grade a reader's function and say in a line what to do next.

It prints *not done yet*, *right*, or a hint with what was expected and what came, and it never
raises. The checks themselves stand in `minimoe/course/checks/`; each file says of which exercises.
"""

import copy
import dis
import importlib
import pkgutil
import random
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from minimoe.course.compare import difference, shown

NOT_DONE, RIGHT, HINT = "not done yet", "right", "hint"
QUIET = {"RESUME", "NOP", "RETURN_VALUE"}  # the bytecode of an empty body, by name, 3.11 to 3.13
LOADS = {"LOAD_CONST", "RETURN_CONST"}


@dataclass(frozen=True)
class Verdict:
    """What a check found: `status` is NOT_DONE, RIGHT or HINT; `text` is what the reader sees."""

    status: str
    text: str


@dataclass(frozen=True)
class Wrong:
    """A known wrong answer, and a part of the hint that it must get. Tests run it."""

    answer: Callable
    says: str


class Check:
    """One exercise's check. A subclass gives `cases` and `expected`, and where it can, `hint`.

    `name` is "NN-name"; `wrong` lists at least two known wrong answers.
    """

    name: str
    wrong: list[Wrong] = []
    tolerance: float = 1e-5

    def cases(self, rng: random.Random) -> Iterable[tuple]:
        """Arguments to try, easy ones first. `rng` is seeded by the check's name."""
        raise NotImplementedError

    def expected(self, *args):
        """The right result for one case."""
        raise NotImplementedError

    def call(self, answer: Callable, *args):
        """Use the reader's answer on one case; override it when the answer is not a function."""
        return answer(*args)

    def describe(self, *args) -> str:
        """One case in words or values, for the hint."""
        return ", ".join(shown(arg) for arg in args)

    def hint(self, got, *args) -> str | None:
        """What a wrong result suggests, or None. The expected value stands beside it already."""
        return None


CHECKS: dict[str, Check] = {}


def register(cls: type[Check]) -> type[Check]:
    """Class decorator that makes a check known under its name."""
    if cls.name in CHECKS:
        raise ValueError(f"check {cls.name!r} is registered twice: choose another name")
    CHECKS[cls.name] = cls()
    return cls


def load_checks() -> dict[str, Check]:
    """Import every file in `minimoe/course/checks/` and give all checks by name."""
    package = importlib.import_module("minimoe.course.checks")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return CHECKS


def check(name: str, answer: Callable) -> None:
    """Grade `answer` and print the verdict. Never raises."""
    print(f"{name}: {grade(name, answer).text}")


def solved(name: str, answer: Callable) -> bool:
    """Is `answer` right? For cells that then put it into the engine. Never raises."""
    return grade(name, answer).status == RIGHT


def grade(name: str, answer: Callable) -> Verdict:
    """The verdict on `answer`: the first case that goes wrong decides."""
    found = load_checks().get(name)
    if found is None:
        known = ", ".join(sorted(CHECKS))
        return Verdict(HINT, f"no check has this name; the names are {known}")
    if not callable(answer):
        return Verdict(HINT, f"give the function itself, not {shown(answer)}")
    if is_blank(answer):
        return Verdict(NOT_DONE, NOT_DONE)
    count = 0
    for args in found.cases(random.Random(name)):
        count += 1
        verdict = _try(found, answer, args)
        if verdict:
            return verdict
    return Verdict(RIGHT, f"{RIGHT} ({count} cases)")


def _try(found: Check, answer: Callable, args: tuple) -> Verdict | None:
    """One case: None when it is right. The answer gets copies, so it cannot spoil the case."""
    want = found.expected(*copy.deepcopy(args))
    try:
        got = found.call(answer, *copy.deepcopy(args))
    except Exception as error:  # whatever the reader's code raises becomes one line
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        return _hint(f"it raised {message}", found, args)
    if got is ... or (got is None and want is not None):
        return _hint("it returned nothing: is a `return` missing?", found, args)
    wrong = difference(want, got, found.tolerance)
    if wrong is None:
        return None
    advice = _advice(found, got, args) or wrong
    said = isinstance(got, str) and advice == got  # a verdict in words says it once
    values = () if said else (want, got)
    return _hint(advice, found, args, *values)


def _advice(found: Check, got, args: tuple) -> str | None:
    """The check's own hint. It sees whatever the reader returned, so it may stumble over it."""
    try:
        return found.hint(got, *copy.deepcopy(args))
    except Exception:  # a result of an unforeseen kind: the plain difference says enough
        return None


def _hint(message: str, found: Check, args: tuple, *values) -> Verdict:
    lines = [f"not right yet: {message}", f"  for      {found.describe(*args)}"]
    if values:
        want, got = values
        lines += [f"  expected {shown(want)}", f"  got      {shown(got)}"]
    return Verdict(HINT, "\n".join(lines))


def is_blank(answer: Callable) -> bool:
    """True for a function that does nothing but give back None or `...`."""
    if not isinstance(answer, types.FunctionType):
        return False
    loads = [step for step in dis.get_instructions(answer) if step.opname not in QUIET]
    return all(step.opname in LOADS and step.argval in (None, ...) for step in loads)
