"""Questions that 08_kv_store asks of traces: hits by the minute, gaps, how often old KV is read."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from minimoe.config import REPO
from minimoe.course.check import is_blank
from minimoe.kvstore.replay import Replay, replay, reuse_gaps
from minimoe.kvstore.retention import DAY, FIFO, LFU, LRU, Choice
from minimoe.kvstore.trace import Request
from minimoe.kvstore.traffic import CHAT, make_traffic

TRACES = REPO / "data" / "traces"
WEEK = 7 * DAY


def lost_by_minute(
    calm: Replay, fault: Replay, requests: Sequence[Request], start: int, minutes: float = 2.5
) -> tuple[list[float], list[float]]:
    """Windows after request `start`, and in each the share of blocks, in percent, that hit without
    the fault and not with it."""
    origin = requests[start].timestamp / 60_000
    windows: dict[int, list[int]] = {}
    for i in range(start, len(requests)):
        place = int((requests[i].timestamp / 60_000 - origin) / minutes)
        window = windows.setdefault(place, [0, 0])
        window[0] += calm.hit_blocks[i] - fault.hit_blocks[i]
        window[1] += calm.total_blocks[i]
    order = sorted(windows)
    return (
        [(place + 0.5) * minutes for place in order],
        [100 * windows[place][0] / max(1, windows[place][1]) for place in order],
    )


def index_at(requests: Sequence[Request], minute: float) -> int:
    """The first request from `minute` on."""
    return next(i for i, r in enumerate(requests) if r.timestamp >= minute * 60_000)


def of_kind(requests: Sequence[Request], kind: str) -> list[Request]:
    """The requests of one kind, `chat` or `agent`, in their order."""
    return [request for request in requests if request.kind == kind]


def second_week_gaps(requests: Sequence[Request]) -> list[float]:
    """Sorted gaps in seconds of all hits from day 7 on; the first week fills the cache."""
    return sorted(reuse_gaps(requests, since=WEEK))


def lost(gaps: Sequence[float], days: float) -> float:
    """Share of the hits that a retention of `days` loses."""
    return 1 - bisect_right(gaps, days * DAY) / len(gaps)


def lost_between(gaps: Sequence[float], short: float = 3.0, long: float = 7.0) -> float:
    """Share of the hits of `long` days of retention that are lost when it is cut to `short`."""
    kept = bisect_right(gaps, long * DAY)
    return 1 - bisect_right(gaps, short * DAY) / kept


def loss_by_tail(tails: Sequence[float], return_share: float = CHAT.return_share) -> list[float]:
    """Hits lost by cutting 7 days to 3, for chats whose absences have these Pareto exponents."""
    losses = []
    for tail in tails:
        chat = replace(CHAT, return_tail=tail, return_share=return_share)
        losses.append(lost_between(second_week_gaps(make_traffic(14, (chat,)))))
    return losses


def share_away(days: float, tail: float) -> float:
    """Share of a chat user's absences that last longer than `days`."""
    low, high = CHAT.return_after, CHAT.return_limit
    cut = (low / high) ** tail
    return ((low / (days * DAY)) ** tail - cut) / (1 - cut)


def reads_per_idle_day(requests: Sequence[Request], short: float = 3.0, long: float = 7.0) -> float:
    """How often a block that nobody used for `short` days is read, per day, up to day `long`.

    Counts uses in the first week of the trace, so that each can be followed for a week.
    """
    last: dict[int, float] = {}
    idle = reads = 0
    for request in requests:
        now = request.timestamp / 1000
        for block in request.blocks:
            before = last.get(block)
            if before is not None and before < WEEK and now - before > short * DAY:
                idle += 1
                reads += now - before <= long * DAY
        last.update(dict.fromkeys(request.blocks, now))
    idle += sum(time < WEEK for time in last.values())  # never used again
    return reads / idle / (long - short)


def policies_table(requests: Sequence[Request], victim, capacity: int) -> str:
    """Hit ratio of the reader's policy, given by its choice of a victim, beside known ones."""
    lines = [f"yours  {_ratio_of(requests, victim, capacity)}"]
    known = [(p.name, replay(requests, p, capacity).hit_ratio) for p in (LRU, FIFO, LFU)]
    return "\n".join(lines + [f"{name:<6} {ratio:.3f}" for name, ratio in known])


def _ratio_of(requests: Sequence[Request], victim, capacity: int) -> str:
    if is_blank(victim):
        return "not done yet"
    try:
        return f"{replay(requests, lambda: Choice(victim), capacity).hit_ratio:.3f}"
    except Exception as error:  # whatever the reader's code raises becomes one line
        return f"it raised {type(error).__name__}: {error}"
