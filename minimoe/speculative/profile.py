"""`profile`: an engine times its own rounds, plain and drafted, and makes them a `StepTimes`."""

from collections.abc import Callable, Sequence

from minimoe.speculative.step_times import StepTimes

UNEVEN = "uneven"


def profile(
    measure: Callable[[int, list[int] | None], float],
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
    kinds = (None, *sorted({0, 1, (length + 1) // 2, length}), UNEVEN)
    points = [(requests, kind) for requests in sizes for kind in kinds]
    points = [point for point in points if point != (1, UNEVEN)]  # one request is never uneven
    for point in points:
        measure(point[0], _checks(*point, length))
    rounds = [[measure(point[0], _checks(*point, length)) for point in points]
              for _ in range(repeats)]  # fmt: skip
    fastest = dict(zip(points, map(min, zip(*rounds, strict=True)), strict=True))
    plain = {requests: fastest[requests, None] for requests in sizes}
    drafted = {
        (requests, requests * (1 + kind)): seconds
        for (requests, kind), seconds in fastest.items()
        if kind not in (None, UNEVEN)
    }
    even, uneven = StepTimes(plain, drafted, stairs), {1: 0.0}
    for requests in (size for size in sizes if size > 1):
        count = sum(_checks(requests, UNEVEN, length))
        alike = float(even.drafted_seconds(requests, count)[-1])
        uneven[requests] = max(0.0, fastest[requests, UNEVEN] - alike)
    return StepTimes(plain, drafted, stairs, uneven)


def _checks(requests: int, kind: int | str | None, length: int) -> list[int] | None:
    """Checks of each request. Uneven: all of them, but few for every fourth request."""
    if kind is None:
        return None
    if kind != UNEVEN:
        return [kind] * requests
    few = length // 4
    return [few if i % 4 == min(3, requests - 1) else length for i in range(requests)]
