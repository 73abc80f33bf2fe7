"""Made-up traffic over days, with every assumption a parameter: chats and agent sessions.

No public trace spans days, so what happens between day 3 and day 7 can only be studied on a model
of users. This one is synthetic and labelled so wherever it is shown. Two kinds of session:
*chat*: a few turns minutes apart; after a turn the user may leave and come back much later, after a
time with a heavy (Pareto) tail. *agent*: many turns seconds apart, inside one session, then gone.
Both start with one of a few shared system prompts, chosen by Zipf's law.

`python -m minimoe.kvstore.traffic --out data/traces` writes the files that ship.
"""

import argparse
import math
import random
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist

from minimoe.errors import MinimoeError
from minimoe.kvstore.retention import DAY
from minimoe.kvstore.trace import TRACE_BLOCK, Request, write_trace

HOUR, MINUTE = 3600.0, 60.0
NORMAL = NormalDist()


@dataclass(frozen=True)
class Traffic:
    """One class of sessions. Times in seconds, sizes in tokens; medians of log-normal spreads."""

    kind: str
    sessions_per_day: float
    turns: float  # mean number of turns before the user leaves
    gap: float  # median time between turns
    gap_spread: float  # sigma of its logarithm
    prompt: float  # median tokens a turn adds
    answer: float
    size_spread: float
    system_prompts: int  # how many shared ones there are
    system_tokens: int  # length of each
    return_share: float  # chance that a user who leaves comes back at all
    return_after: float  # shortest such absence
    return_tail: float  # Pareto exponent: smaller means a heavier tail
    return_limit: float  # longest absence
    daily_swing: float  # 0: flat arrivals; 1: nobody at night
    context: int  # sessions end at this many tokens

    def __post_init__(self):
        for name, value in vars(self).items():
            if isinstance(value, (int, float)) and value < 0:
                raise MinimoeError(f"{self.kind} traffic: {name} is {value}, give 0 or more")


CHAT = Traffic(
    kind="chat", sessions_per_day=150, turns=3.5, gap=70, gap_spread=1.1, prompt=250, answer=450,
    size_spread=0.8, system_prompts=30, system_tokens=512, return_share=0.35, return_after=HOUR,
    return_tail=0.35, return_limit=30 * DAY, daily_swing=0.7, context=65_536,
)  # fmt: skip
AGENT = Traffic(
    kind="agent", sessions_per_day=8, turns=40, gap=9, gap_spread=1.0, prompt=900, answer=350,
    size_spread=0.8, system_prompts=4, system_tokens=8192, return_share=0.02, return_after=HOUR,
    return_tail=2.0, return_limit=3 * DAY, daily_swing=0.4, context=131_072,
)  # fmt: skip


def make_traffic(days: float, classes=(CHAT, AGENT), seed: int = 0) -> list[Request]:
    """Requests of all classes over `days`, in order of time. Same arguments, same requests.

    A request's blocks are the full blocks of its prompt: system prompt, then the session so far.
    """
    requests, first_id, session = [], 0, 0
    for traffic in classes:
        rng = random.Random(f"{seed}-{traffic.kind}")
        shared = traffic.system_prompts * (traffic.system_tokens // TRACE_BLOCK)
        next_id = first_id + shared
        for _ in range(round(traffic.sessions_per_day * days)):
            rows, used = _session(traffic, rng, days * DAY, first_id, next_id, session)
            requests += rows
            next_id, session = next_id + used, session + 1
        first_id = next_id
    return sorted(requests, key=lambda request: (request.timestamp, request.session))


def _session(traffic, rng, end, system_id, own_id, session) -> tuple[list[Request], int]:
    """Requests of one session before `end`, and how many block ids of its own it used."""
    system_blocks = traffic.system_tokens // TRACE_BLOCK
    prompt = _zipf(rng, traffic.system_prompts)
    system = range(system_id + prompt * system_blocks, system_id + (prompt + 1) * system_blocks)
    now, tokens, rows, own = _arrival(traffic, rng, end), traffic.system_tokens, [], 0
    while now < end:
        tokens += round(_spread(rng, traffic.prompt, traffic.size_spread))
        if tokens > traffic.context:
            break
        answer = round(_spread(rng, traffic.answer, traffic.size_spread))
        own = tokens // TRACE_BLOCK - system_blocks
        blocks = [*system, *range(own_id, own_id + own)]
        rows.append(Request(round(now * 1000), tokens, answer, blocks, traffic.kind, session))
        tokens += answer
        pause = _pause(traffic, rng)
        if pause is None:
            break
        now += pause
    return rows, own


def _pause(traffic: Traffic, rng: random.Random) -> float | None:
    """Time to the next turn: short while the user stays, heavy-tailed after leaving, or None."""
    if rng.random() < 1 - 1 / traffic.turns:
        return _spread(rng, traffic.gap, traffic.gap_spread)
    if rng.random() < traffic.return_share:
        return _pareto(rng, traffic.return_after, traffic.return_limit, traffic.return_tail)
    return None


def _arrival(traffic: Traffic, rng: random.Random, end: float) -> float:
    """A start in [0, end), more likely in the middle of the day than at midnight."""
    while True:
        start = rng.random() * end
        busy = 1 - traffic.daily_swing * math.cos(2 * math.pi * start / DAY)
        if rng.random() * (1 + traffic.daily_swing) < busy:
            return start


def _spread(rng: random.Random, median: float, sigma: float) -> float:
    """Log-normal."""
    return median * math.exp(sigma * NORMAL.inv_cdf(min(max(rng.random(), 1e-12), 1 - 1e-12)))


def _pareto(rng: random.Random, low: float, high: float, tail: float) -> float:
    """Pareto with exponent `tail`, cut to [low, high]."""
    share = 1 - (low / high) ** tail
    return low * (1 - rng.random() * share) ** (-1 / tail)


def _zipf(rng: random.Random, count: int) -> int:
    """0 to count - 1, number i with weight 1 / (i + 1)."""
    return rng.choices(range(count), [1 / (i + 1) for i in range(count)])[0]


SHIPPED = {
    "chat_agent_14d.jsonl": (14, (CHAT, AGENT)),
    "chat_2h.jsonl": (2 / 24, (replace(CHAT, sessions_per_day=8000, daily_swing=0),)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="write the synthetic traces that ship")
    parser.add_argument("--out", default="data/traces")
    folder = Path(parser.parse_args().out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, (days, classes) in SHIPPED.items():
        requests = make_traffic(days, classes)
        write_trace(folder / name, requests)
        print(f"{name}: {len(requests):,} requests over {days:.3g} days")


if __name__ == "__main__":
    main()
