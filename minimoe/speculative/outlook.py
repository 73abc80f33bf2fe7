"""What drafting is expected to bring at some load, from survivals of earlier steps: `Outlook`."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from minimoe.speculative.admission import expected_accepted
from minimoe.speculative.step_times import StepTimes

ROWS = 64  # requests' worth of survivals that are looked back upon
PRIOR_RATE, PRIOR_ROWS = 0.7, 4  # what is believed before any was seen
CLEARLY = 0.01  # the best of many choices looks better than it is: it must be better by this share


@dataclass(frozen=True)
class Outlook:
    """At some number of requests: tokens per second of a plain and of the best drafted step.

    `count` is how many checks pay once drafts are there, and `lost` how many plain steps such a
    drafted step costs, where drafting does not pay. `prices[m]` is what the survival of the next
    slot must reach when m are admitted: the tokens per second that the engine makes anyway, times
    the seconds that one more check takes. `full[m]` is how many slots cost no more than m do.
    """

    plain_rate: float
    drafted_rate: float
    count: int
    lost: float
    prices: np.ndarray
    full: np.ndarray
    dearest: float  # the highest of the prices
    all_pay: bool  # no choice among the drafts is clearly better than checking all of them

    @property
    def gain(self) -> float:
        """Above 1 where drafting pays."""
        return self.drafted_rate / self.plain_rate


class History:
    """Survivals `[B, G]` of past steps, the newest kept apart until they are `delay` steps old."""

    def __init__(self, length: int, delay: int):
        self.delay = delay
        self.fresh: deque[np.ndarray] = deque()
        prior = PRIOR_RATE ** np.arange(1, length + 1)
        self.old: deque[np.ndarray] = deque([np.tile(prior, (PRIOR_ROWS, 1))])

    def add(self, a: np.ndarray) -> None:
        """Note the survivals of the step that is being decided. Call it once a drafted step."""
        self.fresh.append(a)
        while len(self.fresh) >= self.delay:
            self.old.append(self.fresh.popleft())
        rows = sum(map(len, self.old))
        while rows - len(self.old[0]) >= ROWS:
            rows -= len(self.old.popleft())

    def accepted(self, requests: int) -> np.ndarray:
        """Expected accepted drafts by number of checks, `[requests * G + 1]`, if `requests` others
        drafted as these did."""
        pool = np.concatenate(self.old)  # [rows, G]
        by_count = expected_accepted(pool)
        if len(pool) == requests:
            return by_count
        scale = len(pool) / requests
        wanted = np.arange(requests * pool.shape[1] + 1) * scale
        return np.interp(wanted, np.arange(len(by_count)), by_count) / scale


def outlook(times: StepTimes, accepted: np.ndarray, requests: int, others: int = 0) -> Outlook:
    """Weigh what `accepted` promises, by number of checks, against what the steps take.

    `others` is the number of further tokens in this very pass.
    """
    most = len(accepted) - 1
    rates = (requests + accepted) / times.drafted_seconds(requests, most)
    plain_rate = requests / times.plain_seconds(requests)
    all_rate = (requests + float(accepted[-1])) / times.all_seconds(requests)
    best = max(float(rates[:-1].max()), all_rate)
    rate = max(best, plain_rate)
    seconds = times.drafted_seconds(requests, most, others)
    marginal, full = times.marginal(requests, most, others)
    count = int(np.argmax(accepted - rate * seconds))
    tokens = seconds[count] * plain_rate  # that plain steps would make meanwhile
    return Outlook(
        plain_rate=plain_rate,
        drafted_rate=best,
        count=count,
        lost=max(0.0, (tokens - accepted[count]) / requests - 1),
        prices=rate * marginal,
        full=full,
        dearest=rate * float(marginal.max(initial=0.0)),
        all_pay=all_rate * (1 + CLEARLY) >= best,
    )
