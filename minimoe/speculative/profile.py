"""`profile`: an engine times its own rounds, plain and drafted, and makes them a `StepTimes`."""

from collections.abc import Callable, Sequence
from statistics import median

from minimoe.speculative.step_times import StepTimes


def profile(
    measure: Callable[[int, int | None], float],
    sizes: Sequence[int],
    length: int,
    stairs: Sequence[int] = (),
    repeats: int = 5,
) -> StepTimes:
    """Time rounds of an engine and make them a `StepTimes`: medians, after a first that is dropped.

    Args:
        measure: gives the seconds of one round of so many requests; its second argument is None for
            a plain step, else how many drafts of each request are checked.
        sizes: numbers of requests; the last should be the most the engine runs at once.
        length: drafts of each request, G.
    """
    plain, drafted = {}, {}
    for requests in sizes:
        for checks in (None, *sorted({0, 1, (length + 1) // 2, length})):
            times = [measure(requests, checks) for _ in range(repeats + 1)]
            seconds = median(times[1:])
            if checks is None:
                plain[requests] = seconds
            else:
                drafted[requests, requests * (1 + checks)] = seconds
    return StepTimes(plain, drafted, stairs)
