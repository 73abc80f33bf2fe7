"""Fit a drafter's calibration on one half of its validation passes and report on the other half.

    python -m minimoe.speculative.calibrate data/tiny-moe-dspark/validation.npz

writes `calibration.json` beside it. The halves share no prompt: the even ones are fitted, the odd
ones reported.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minimoe.errors import MinimoeError
from minimoe.speculative.calibration import Calibration, ece, fit, survivals


@dataclass(frozen=True)
class Passes:
    """Draft-and-verify passes in which every draft was checked, n of them.

    `logits [n, G]` are raw confidences, `accepted [n]` counts; `prompt [n]` and `turn [n]` say in
    which request and where; `domain [n]` indexes `domains`.
    """

    logits: np.ndarray
    accepted: np.ndarray
    domain: np.ndarray
    prompt: np.ndarray
    turn: np.ndarray
    domains: tuple[str, ...]

    def where(self, kept: np.ndarray) -> "Passes":
        """The passes marked in `kept [n]`."""
        fields = (self.logits, self.accepted, self.domain, self.prompt, self.turn)
        return Passes(*(field[kept] for field in fields), self.domains)

    def halves(self) -> tuple["Passes", "Passes"]:
        """Of even and of odd prompts."""
        odd = self.prompt % 2 == 1
        return self.where(~odd), self.where(odd)


def load_passes(path: str | Path, temperature: int) -> Passes:
    """The passes at one temperature, 0 or 1, of a `validation.npz`."""
    try:
        with np.load(path, allow_pickle=False) as saved:
            kept = saved["temperature"] == temperature
            names = ("confidence", "accepted", "domain", "prompt", "turn")
            columns = [saved[name][kept] for name in names]
            domains = tuple(saved["domains"].tolist())
    except (OSError, ValueError, KeyError) as error:
        raise MinimoeError(f"no validation passes in {path}: {error}") from error
    if not kept.any():
        raise MinimoeError(f"{path} has no passes at temperature {temperature}")
    return Passes(columns[0].astype(np.float64), *map(np.int64, columns[1:]), domains)


def calibrate(path: str | Path) -> tuple[Calibration, dict]:
    """The calibration, and its report: by temperature, the error of the product at each position
    before and after, on prompts that were not fitted."""
    rows, report = [], {}
    for temperature in (0, 1):
        fitted, held_out = load_passes(path, temperature).halves()
        rows.append(fit(fitted.logits, fitted.accepted))
        report[str(temperature)] = {
            "passes_fitted": len(fitted.logits),
            "passes_held_out": len(held_out.logits),
            "ece_raw": errors(held_out, (1.0,) * len(rows[-1])),
            "ece_calibrated": errors(held_out, rows[-1]),
        }
    return Calibration(tuple(rows)), report


def errors(passes: Passes, temperatures: tuple[float, ...]) -> list[float]:
    """Calibration error of the product up to each position."""
    said = survivals(passes.logits, temperatures)
    return [ece(said[:, j], passes.accepted > j) for j in range(said.shape[1])]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m minimoe.speculative.calibrate")
    parser.add_argument("passes", type=Path, help="validation.npz of a drafter")
    parser.add_argument("--out", type=Path, help="default: calibration.json beside it")
    args = parser.parse_args()
    calibration, report = calibrate(args.passes)
    out = args.out or args.passes.parent / "calibration.json"
    command = f"python -m minimoe.speculative.calibrate {args.passes.name}"
    calibration.save(out, {"held_out": report, "command": command})
    print(json.dumps({"temperatures": calibration.temperatures, "held_out": report}))


if __name__ == "__main__":
    main()
