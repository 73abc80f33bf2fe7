"""What 06_acceptance_budget looks at: recorded confidences, the peeking trap, measured ways.

Recorded passes are those of the shipped drafter on held-out prompts (`data/tiny-moe-dspark/`), the
half that its calibration was not fitted to; so counts and tables are the same on every machine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import median

import numpy as np

from minimoe import SamplingParams
from minimoe.bench.prompts import domain_prompts, mixed_prompts
from minimoe.bench.serving_model import DRAFTER, drafter_passes
from minimoe.speculative.admission import by_survival, of_width, prefixes, survival
from minimoe.speculative.calibrate import Passes, load_passes
from minimoe.speculative.calibration import Weights
from minimoe.speculative.calibration_fit import (
    errors,
    fit_temperatures,
    plain,
    temperatures_only,
)
from minimoe.speculative.rules import Rule

G = 5
P, Q = (0.7, 0.3), (0.5, 0.5)  # the trap: target and draft, over tokens A and B


@cache
def recorded(temperature: int = 1) -> tuple[Passes, Weights]:
    """Held-out passes at one temperature, and the calibration's weights for it."""
    return drafter_passes(temperature)


@cache
def ways_to_calibrate(temperature: int) -> dict[str, Weights]:
    """Raw, by temperatures alone (fitted on the other half), and as shipped."""
    fitted = load_passes(DRAFTER / "validation.npz", temperature).halves()[0]
    scaled = temperatures_only(fit_temperatures(fitted.logits, fitted.accepted))
    return {"raw": plain(G), "temperatures": scaled, "weights": recorded(temperature)[1]}


def calibration_table() -> str:
    """Error of the product at each place, in percent, on prompts that were not fitted."""
    lines = [f"{'':<24}" + "".join(f"{f'place {j}':>9}" for j in range(1, G + 1))]
    for temperature in (0, 1):
        passes, _ = recorded(temperature)
        for name, weights in ways_to_calibrate(temperature).items():
            found = errors(passes.survivals(weights), passes.accepted)
            cells = "".join(f"{100 * error:9.1f}" for error in found)
            lines.append(f"{f'T = {temperature}, {name}':<24}" + cells)
    return "\n".join(lines)


@dataclass(frozen=True)
class Batch:
    """Requests in one step: calibrated confidences and what would be accepted."""

    domains: list[str]
    confidence: np.ndarray  # [B, G]
    accepted: np.ndarray  # [B]

    @property
    def survival(self) -> np.ndarray:
        """`[B, G]`."""
        return survival(self.confidence, [G] * len(self.domains))


def batch(requests: int = 8, temperature: int = 1, seed: int = 0) -> Batch:
    """Recorded passes, the domains in turn."""
    passes, weights = recorded(temperature)
    confidence = passes.confidences(weights)
    rng = np.random.default_rng(seed)
    kinds = [i % len(passes.domains) for i in range(requests)]
    rows = [rng.choice(np.flatnonzero(passes.domain == kind)) for kind in kinds]
    names = [passes.domains[kind] for kind in kinds]
    return Batch(names, confidence[rows], passes.accepted[rows])


def confidence_table(found: Batch) -> str:
    """Each request's confidences, survivals, and how many drafts were accepted."""
    lines = [f"{'':<7}{'confidence':<31}{'survival':<31}accepted"]
    for name, c, a, kept in zip(
        found.domains, found.confidence, found.survival, found.accepted, strict=True
    ):
        cells = ["".join(f"{x:6.2f}" for x in row) for row in (c, a)]
        lines.append(f"{name:<6}{cells[0]} {cells[1]} {kept:>8}")
    return "\n".join(lines)


def domain_survival(temperature: int) -> dict[str, tuple[list[float], list[float]]]:
    """By domain: the mean survival said at each place, and the share that did survive."""
    passes, weights = recorded(temperature)
    said, out = passes.survivals(weights), {}
    for kind, name in enumerate(passes.domains):
        own = passes.domain == kind
        true = [float((passes.accepted[own] > place).mean()) for place in range(G)]
        out[name] = said[own].mean(0).tolist(), true
    return out


def first_token(choose: Callable[[np.ndarray, list[int], int], list[int]]) -> dict[str, float]:
    """The peeking trap, enumerated: how often the output's next token is A and B under a rule.

    One request, two drafts from Q. The head says 0.8 for the first; for the second 0.9 if the first
    is A, else 0. A draft is kept with probability min(1, P / Q). Source: DSpark, arXiv 2607.05147.
    """
    share = {"A": 0.0, "B": 0.0}
    for token, name in enumerate(share):
        confidence = np.array([[0.8, (0.9, 0.0)[token]]])
        checks = int(choose(confidence, [2], 0)[0])
        keep = min(1.0, P[token] / Q[token]) if checks else 0.0
        left = np.maximum(np.subtract(P, Q), 0) if checks else np.array(P)
        after = (1 - keep) * left / left.sum()
        share[name] += Q[token] * keep
        share["A"] += Q[token] * float(after[0])
        share["B"] += Q[token] * float(after[1])
    return share


class LikeliestHalf(Rule):
    """Checks half of a step's guesses, those that survive most likely: the production form with a
    number of checks that no clock decides."""

    def choose(self, confidence, lengths, plain_tokens=0):
        a = of_width(self.survival(confidence, lengths), self.length)  # [B, G]
        order, slots = by_survival(a)
        return prefixes(order, slots, sum(lengths) // 2, a.shape)


def medians(turns: dict[str, list]) -> dict[str, float]:
    """Tokens per second of each way, from `Contest.run`."""
    return {way: median(turn.tok_s for turn in own) for way, own in turns.items()}


def speed_table(speeds: dict[int, dict[str, float]]) -> str:
    """Tokens per second by load and way, and the budget over the best of the others."""
    ratios = []
    for own in speeds.values():
        best = max(speed for way, speed in own.items() if way != "scheduled")
        ratios.append(f"{own['scheduled'] / best:9.2f}")
    return _beside(speeds, [f"{'to best':>9}", *ratios])


def saved_table(rows: dict[int, dict]) -> str:
    """The same of saved rows, whose turns were compared pair by pair: the median ratio of the
    budget to the best other way, and the lower end of its 95 % interval."""
    ratios = [f"{row['ratio_to_best']:9.2f}{row['lower_to_best']:10.2f}" for row in rows.values()]
    return _beside(saved_speeds(rows), [f"{'to best':>9}{'at least':>10}", *ratios])


def _beside(speeds: dict[int, dict[str, float]], ends: list[str]) -> str:
    """Load and tokens per second of each way, each line with its end."""
    ways = list(next(iter(speeds.values())))
    lines = [f"{'load':>5}" + "".join(f"{way:>11}" for way in ways)]
    for load, own in speeds.items():
        lines.append(f"{load:>5}" + "".join(f"{own[way]:11.0f}" for way in ways))
    return "\n".join(line + end for line, end in zip(lines, ends, strict=True))


def checked_by_domain(llm, new_tokens: int = 32) -> dict[str, tuple[float, float]]:
    """By domain: checked and accepted drafts a step, of 16 requests at temperature 1."""
    domains = list(domain_prompts())
    params = SamplingParams(max_tokens=new_tokens, temperature=1.0, ignore_eos=True)
    outs = llm.generate(mixed_prompts("tiny-moe", 16, 64), params)
    shares = {}
    for kind, name in enumerate(domains):
        own = [out.metrics for out in outs[kind :: len(domains)]]
        steps = sum(m.steps for m in own)
        shares[name] = sum(m.checked for m in own) / steps, sum(m.accepted for m in own) / steps
    return shares


def saved_speeds(rows: dict[int, dict]) -> dict[int, dict[str, float]]:
    """Tokens per second by load and way of rows of `bench speculative` (`saved_rows`)."""
    ways = {"none": "none", "fixed": "fixed 5", "threshold": "threshold", "scheduled": "scheduled"}
    return {
        load: {way: row[f"{key}_tok_s"] for key, way in ways.items()} for load, row in rows.items()
    }
