"""`profile`: an engine times its own rounds, plain and drafted, and makes them a `StepTimes`."""

from collections.abc import Callable, Sequence

from minimoe.speculative.step_times import StepTimes


def profile(
    measure: Callable[[int, int | None], float],
    sizes: Sequence[int],
    length: int,
    stairs: Sequence[int] = (),
    repeats: int = 5,
) -> StepTimes:
    """Time rounds of an engine and make them a `StepTimes`.

    All rounds once, `repeats` times over, so that a disturbance spreads; of each the fastest
    counts, which was disturbed least. A first time over is dropped: kernels are compiled.

    Args:
        measure: gives the seconds of one round of so many requests; its second argument is None for
            a plain step, else how many drafts of each request are checked.
        sizes: numbers of requests; the last should be the most the engine runs at once.
        length: drafts of each request, G.
    """
    kinds = (None, *sorted({0, 1, (length + 1) // 2, length}))
    points = [(requests, checks) for requests in sizes for checks in kinds]
    for point in points:
        measure(*point)
    rounds = [[measure(*point) for point in points] for _ in range(repeats)]
    fastest = dict(zip(points, map(min, zip(*rounds, strict=True)), strict=True))
    plain = {requests: fastest[requests, None] for requests in sizes}
    drafted = {
        (requests, requests * (1 + checks)): seconds
        for (requests, checks), seconds in fastest.items()
        if checks is not None
    }
    return StepTimes(plain, drafted, stairs)
