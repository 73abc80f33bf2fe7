"""Fit a drafter's calibration on one half of its validation passes and report on the other half.

    python -m minimoe.speculative.calibrate data/tiny-moe-dspark/validation.npz

writes `calibration.json` beside it. The halves share no prompt: the even ones are fitted, the odd
ones reported.
"""

import argparse
import json
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from minimoe.errors import MinimoeError
from minimoe.speculative.calibration import Calibration, Weights
from minimoe.speculative.calibration_fit import (
    confidences,
    errors,
    fit,
    fit_temperatures,
    plain,
    survivals,
    temperatures_only,
)


@dataclass(frozen=True)
class Passes:
    """Draft-and-verify passes in which every draft was checked, n of them.

    `logits [n, G]` are of the confidence head, `odds [n, G]` of the draft's likeliest token,
    `accepted [n]` counts; `prompt [n]` and `turn [n]` say in which request and where; `domain [n]`
    indexes `domains`.
    """

    logits: np.ndarray
    odds: np.ndarray
    accepted: np.ndarray
    domain: np.ndarray
    prompt: np.ndarray
    turn: np.ndarray
    domains: tuple[str, ...]

    def where(self, kept: np.ndarray) -> "Passes":
        """The passes marked in `kept [n]`."""
        columns = [getattr(self, field.name) for field in fields(self)]
        return Passes(*(column[kept] for column in columns[:-1]), self.domains)

    def halves(self) -> tuple["Passes", "Passes"]:
        """Of even and of odd prompts."""
        odd = self.prompt % 2 == 1
        return self.where(~odd), self.where(odd)

    def confidences(self, weights: Weights) -> np.ndarray:
        """Of each draft, given those before it, as these weights have it: `[n, G]`."""
        return confidences(weights, self.logits, self.odds)

    def survivals(self, weights: Weights) -> np.ndarray:
        """Of each draft, as these weights have it: `[n, G]`."""
        return survivals(weights, self.logits, self.odds)


def load_passes(path: str | Path, temperature: int) -> Passes:
    """The passes at one temperature, 0 or 1, of a `validation.npz`."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            kept = saved["temperature"] == temperature
            logits, odds = (saved[name][kept].astype(np.float64) for name in ("confidence", "odds"))
            names = ("accepted", "domain", "prompt", "turn")
            rest = [saved[name][kept].astype(np.int64) for name in names]
            domains = tuple(saved["domains"].tolist())
    except (OSError, ValueError, KeyError) as error:
        raise MinimoeError(f"no validation passes in {path}: {error}") from error
    if not kept.any():
        raise MinimoeError(f"{path} has no passes at temperature {temperature}")
    return Passes(logits, odds, *rest, domains)


def calibrate(path: str | Path) -> tuple[Calibration, dict]:
    """The calibration, and its report: by temperature, the error of the product at each place on
    prompts that were not fitted: raw, by temperatures alone, and by all weights."""
    found, report = [], {}
    for temperature in (0, 1):
        fitted, held_out = load_passes(path, temperature).halves()
        odds = fitted.odds if temperature == 0 else None
        found.append(fit(fitted.logits, fitted.accepted, odds))
        scaled = temperatures_only(fit_temperatures(fitted.logits, fitted.accepted))
        ways = {"raw": plain(len(scaled)), "temperatures": scaled, "weights": found[-1]}
        report[str(temperature)] = {
            "passes_fitted": len(fitted.logits),
            "passes_held_out": len(held_out.logits),
            "error": {
                name: [round(e, 4) for e in errors(held_out.survivals(way), held_out.accepted)]
                for name, way in ways.items()
            },
        }
    return Calibration(*found), report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m minimoe.speculative.calibrate")
    parser.add_argument("passes", type=Path, help="validation.npz of a drafter")
    parser.add_argument("--out", type=Path, help="default: calibration.json beside it")
    args = parser.parse_args()
    calibration, report = calibrate(args.passes)
    out = args.out or args.passes.parent / "calibration.json"
    where = "/".join(args.passes.resolve().parts[-3:])  # no folder of this machine
    command = f"python -m minimoe.speculative.calibrate {where}"
    calibration.save(out, {"held_out": report, "command": command})
    print(json.dumps({"weights": [calibration.greedy, calibration.drawn], "held_out": report}))


if __name__ == "__main__":
    main()
