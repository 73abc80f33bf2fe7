"""Decode engines without a model: real confidences, real rules, and the clock of any machine.

What a drafter said and what was accepted is replayed from its validation passes; the rule under
test sees the confidences and decides; a clock says what the step would have taken.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from minimoe.speculative.calibrate import Passes
from minimoe.speculative.calibration import Weights
from minimoe.speculative.rules import Rule
from minimoe.speculative.step_times import StepTimes


class Recording:
    """Passes with their calibrated confidences, sorted by domain so that they can be replayed."""

    def __init__(self, passes: Passes, weights: Weights):
        order = np.argsort(passes.domain, kind="stable")
        self.confidence = passes.confidences(weights)[order]  # [n, G]
        self.accepted = passes.accepted[order]
        kinds, self.first, self.count = np.unique(
            passes.domain[order], return_index=True, return_counts=True
        )
        self.domains = len(kinds)


class Replay:
    """Requests that live through the passes of real ones.

    A request that checks less goes on with the next recorded pass all the same: passes are taken
    as samples of its domain, not of its exact place in the text.

    Args:
        mix: how many of the requests, in turn, come from each domain; equal parts by default.
    """

    def __init__(self, recording: Recording, requests: int, mix: Sequence[int] = (), seed: int = 0):
        rng = np.random.default_rng(seed)
        turns = np.repeat(np.arange(recording.domains), mix or [1] * recording.domains)
        kinds = turns[(rng.integers(len(turns)) + np.arange(requests)) % len(turns)]
        self.recording = recording
        self._first, self._count = recording.first[kinds], recording.count[kinds]  # [B]
        self._start = rng.integers(self._count)

    def step(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Confidences `[B, G]` and how many drafts would be accepted `[B]`, were all checked."""
        now = self._first + (self._start + number) % self._count
        return self.recording.confidence[now], self.recording.accepted[now]


class OneEngine:
    """The clock of an engine on its own: its profile of step times."""

    ranks = 1

    def __init__(self, times: StepTimes):
        self.times = StepTimes.from_dict(times.to_dict())  # no rule corrects this one

    def seconds(self, requests: int, checked: list[int]) -> float:
        """A drafted step in which so many drafts are checked in all, on each rank."""
        most = max(checked)
        if most == requests * self.times.length:
            return self.times.all_seconds(requests)
        return float(self.times.drafted_seconds(requests, most)[-1])

    def plain_seconds(self, requests: int) -> float:
        """Seconds of a step without drafts."""
        return self.times.plain_seconds(requests)


@dataclass
class Result:
    """What a number of steps made, summed over ranks; `seconds` passed once for all of them."""

    ranks: int = 1
    tokens: int = 0
    seconds: float = 0.0
    steps: int = 0
    checked: int = 0
    request_steps: int = 0
    drafted_steps: int = 0
    deciding: list[float] = field(default_factory=list)  # seconds of each rule's decision, here

    @property
    def tok_s(self) -> float:
        """Of one rank."""
        return self.tokens / self.seconds / self.ranks

    @property
    def tok_s_with_deciding(self) -> float:
        """As if each step waited for the decision, as it does in our engine."""
        return self.tokens / (self.seconds + self.steps * median(self.deciding)) / self.ranks

    @property
    def accepted_length(self) -> float:
        """Tokens a request gains in a step, bonus included, on average."""
        return self.tokens / self.request_steps

    @property
    def checked_per_request(self) -> float:
        """Drafts checked for a request in a step, on average."""
        return self.checked / self.request_steps


def simulate(
    rules: list[Rule], clock, replays: list[Replay], requests: int, steps: int, warm_up: int = 66
) -> Result:
    """Run one rule a rank for `steps` steps of `requests` requests each.

    `clock` has `seconds(requests, checked)`, as `OneEngine`. All ranks wait for the last.
    """
    result = Result(len(rules))
    for number in range(-warm_up, steps):
        if number == 0:
            result = Result(len(rules))
        _step(rules, clock, replays, requests, number + warm_up, result)
    return result


def _step(rules, clock, replays, requests: int, number: int, result: Result) -> None:
    checked, kept = [], []
    for rule, replay in zip(rules, replays, strict=True):
        confidence, accepted = replay.step(number)
        start = time.perf_counter()
        length = rule.plan(requests)
        checks = rule.choose(confidence, [length] * requests) if length else None
        result.deciding.append(time.perf_counter() - start)
        checked.append(checks)
        kept.append([] if checks is None else np.minimum(accepted, checks).tolist())
    totals = [sum(checks or ()) for checks in checked]
    drafted = any(checks is not None for checks in checked)
    seconds = clock.seconds(requests, totals) if drafted else clock.plain_seconds(requests)
    for rule, checks, good in zip(rules, checked, kept, strict=True):
        tokens = requests + sum(checks or ())
        rule.observe(checks is not None, requests, tokens, seconds, checks or (), good)
        result.tokens += requests + sum(good)
        result.request_steps += requests
    result.seconds += seconds
    result.steps += 1
    result.checked += sum(totals)
    result.drafted_steps += drafted
