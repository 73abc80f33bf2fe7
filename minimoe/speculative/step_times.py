"""`StepTimes`: what a step costs, by requests and tokens, as the engine measured it on itself.

Whatever makes a token cheap or dear on this machine is inside: drafting, Python around the step,
experts that only one token hits, the padding of CUDA graphs.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy

import numpy as np

from minimoe.errors import MinimoeError
from minimoe.speculative.corrections import Correction

OTHERS_STEP = 16  # other tokens of a pass are rounded up to these, so that curves can be kept
MOST_CURVES = 512
UNCORRECTED = Correction()


class StepTimes:
    """Seconds of plain and of drafted steps.

    Args:
        plain: {requests: seconds} of decode steps without drafting.
        drafted: {(requests, tokens): seconds} of whole rounds: draft, then check, where the pass
            that checks holds `tokens` tokens, one a request and the checked drafts.
        stairs: captured graph sizes; a pass costs as much as the next size. Empty: no padding.
        uneven: {requests: seconds} that a round takes more where requests check different numbers
            of drafts than where they check as many in equal parts.

    Points are forced to rise with tokens and with requests, and joined by straight lines. Raises
    MinimoeError for an empty or impossible profile.
    """

    def __init__(
        self,
        plain: Mapping[int, float],
        drafted: Mapping[tuple[int, int], float],
        stairs: Sequence[int] = (),
        uneven: Mapping[int, float] | None = None,
    ):
        _require_points(plain, drafted)
        self.uneven = dict(uneven or {1: 0.0})
        self._extra = tuple(zip(*sorted(self.uneven.items()), strict=True))
        self.points = dict(plain), dict(drafted)
        self.stairs = np.array(sorted(stairs), dtype=np.int64)
        sizes = np.array(sorted(plain))
        self._plain = sizes, np.maximum.accumulate([plain[size] for size in sizes])
        self._sizes = np.array(sorted({requests for requests, _ in drafted}))
        self._lines = [self._line(size) for size in self._sizes]
        self.length = max(1, *(tokens // requests - 1 for requests, tokens in drafted))
        self._curves: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._corrections: dict[tuple[bool, int], Correction] = {}

    def plain_seconds(self, requests: int) -> float:
        """A decode step of `requests` tokens and no drafting."""
        profile = float(_on_line(requests, *self._plain))
        return float(self._correction(False, requests).seconds(profile, profile, 0.0))

    def drafted_seconds(self, requests: int, most: int, others: int = 0) -> np.ndarray:
        """Whole rounds with 0..most checked drafts in all, chosen among the requests' drafts,
        `[most + 1]`, never falling.

        `others` counts further tokens in the checking pass, such as a chunk of a prompt.
        """
        profile = self._known(requests, most, others)[0][: most + 1]
        share = np.arange(most + 1) / (requests * self.length)
        fix = self._correction(True, requests)
        choice = fix.choice_seconds(float(profile[0]), self._uneven(requests))
        return fix.seconds(profile[0], profile, share) + choice

    def all_seconds(self, requests: int) -> float:
        """A round that checks every draft: nothing is chosen, and no request's part is shorter than
        another's, which costs less than as many tokens in uneven parts."""
        most = requests * self.length
        profile = self._known(requests, most, 0)[0]
        return float(self._correction(True, requests).seconds(profile[0], profile[most], 1.0))

    def marginal(self, requests: int, most: int, others: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """After 0, 1, 2, ... checks: the seconds of one more, `[most]`, by `marginal_seconds`; and
        how many checks take no longer than these do, `[most + 1]`."""
        profile, marginal, full = self._known(requests, most, others)
        fix = self._correction(True, requests)
        ramp = fix.ramp * profile[0] / (requests * self.length)
        return fix.slope * marginal[:most] + ramp, np.minimum(full[: most + 1], most)

    def observe(self, drafted: bool, requests: int, tokens: int, seconds: float) -> None:
        """Correct the profile by what a step took, apart by kind and by number of requests."""
        choice = None
        if drafted:
            checks = max(0, tokens - requests)
            profile = self._known(requests, checks, 0)[0]
            base, expected = float(profile[0]), float(profile[checks])
            share = checks / (requests * self.length)
            choice = self._uneven(requests) if share < 1 else None
        else:
            base = expected = float(_on_line(requests, *self._plain))
            share = 0.0
        key = drafted, _bucket(requests)
        if key not in self._corrections:
            self._corrections[key] = deepcopy(self._correction(drafted, requests))
        self._corrections[key].observe(base, expected, share, seconds, choice)

    def _uneven(self, requests: int) -> float:
        """The profile's seconds for uneven parts."""
        return float(np.interp(requests, *self._extra))

    def to_dict(self) -> dict:
        """For JSON: the measured points, without the corrections."""
        plain, drafted = self.points
        return {
            "plain": [[requests, seconds] for requests, seconds in plain.items()],
            "drafted": [[*key, seconds] for key, seconds in drafted.items()],
            "stairs": self.stairs.tolist(),
            "uneven": [[requests, seconds] for requests, seconds in self.uneven.items()],
        }

    @classmethod
    def from_dict(cls, saved: dict) -> "StepTimes":
        """Read what `to_dict` gave."""
        drafted = {(requests, tokens): seconds for requests, tokens, seconds in saved["drafted"]}
        return cls(dict(saved["plain"]), drafted, saved["stairs"], dict(saved.get("uneven", ())))

    def _known(self, requests: int, most: int, others: int):
        """The profile's curve for these numbers, and what follows from it; made once."""
        most = max(most, requests * self.length)
        key = requests, most, -(-others // OTHERS_STEP) * OTHERS_STEP
        if key not in self._curves:
            if len(self._curves) >= MOST_CURVES:
                self._curves.clear()
            seconds = self._curve(requests, key[2] + np.arange(most + 1))
            full = np.arange(most + 1)
            if len(self.stairs):
                full = np.searchsorted(seconds, seconds, side="right") - 1
            self._curves[key] = seconds, marginal_seconds(seconds), full
        return self._curves[key]

    def _correction(self, drafted: bool, requests: int) -> Correction:
        """Of the same number of requests, to a power of two; else of the nearest seen."""
        bucket = _bucket(requests)
        if (drafted, bucket) in self._corrections:
            return self._corrections[drafted, bucket]
        seen = [b for kind, b in self._corrections if kind == drafted]
        if not seen:
            return UNCORRECTED
        return self._corrections[drafted, min(seen, key=lambda b: abs(b - bucket))]

    def _line(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Measured points of one number of requests: tokens paid for, and seconds."""
        tokens = np.array(sorted(t for requests, t in self.points[1] if requests == size))
        seconds = np.maximum.accumulate([self.points[1][size, t] for t in tokens.tolist()])
        paid, last = np.unique(self._paid(tokens)[::-1], return_index=True)
        return paid, seconds[::-1][last]

    def _curve(self, requests: int, extra: np.ndarray) -> np.ndarray:
        """Between two profiled numbers of requests, at the same tokens in the pass."""
        paid, sizes = self._paid(requests + extra), self._sizes
        above = min(int(np.searchsorted(sizes, requests)), len(sizes) - 1)
        below = max(0, above - 1) if sizes[above] != requests else above
        low, high = (_on_line(paid, *self._lines[i]) for i in (below, above))
        share = 0.0
        if above != below:
            share = max(0.0, (requests - sizes[below]) / (sizes[above] - sizes[below]))
        return np.maximum.accumulate(low + share * (np.maximum(high, low) - low))

    def _paid(self, tokens: np.ndarray) -> np.ndarray:
        """Tokens after padding to a captured size; beyond the largest there is none."""
        if not len(self.stairs):
            return tokens
        index = np.searchsorted(self.stairs, tokens)
        padded = self.stairs[np.minimum(index, len(self.stairs) - 1)]
        return np.where(index < len(self.stairs), padded, tokens)


def marginal_seconds(seconds: np.ndarray) -> np.ndarray:
    """Seconds of one more check after 0, 1, 2, ...: slopes of the largest convex curve below.

    On a staircase the first check of a stair costs all of it and the others nothing; the slope
    shares the cost out among those that can use it.
    """
    corners = [0]
    for m in range(1, len(seconds)):
        while len(corners) > 1 and _above(seconds, corners[-2], corners[-1], m):
            corners.pop()
        corners.append(m)
    return np.diff(np.interp(np.arange(len(seconds)), corners, seconds[corners]))


def _above(seconds: np.ndarray, left: int, middle: int, right: int) -> bool:
    """True when the middle point lies on or over the line from left to right."""
    rise = (seconds[right] - seconds[left]) * (middle - left)
    return (seconds[middle] - seconds[left]) * (right - left) >= rise


def _on_line(x, xs: np.ndarray, ys: np.ndarray):
    """Straight lines through the points, and on beyond both ends, but never below a tenth."""
    if len(xs) == 1:
        return ys[0] + 0.0 * np.asarray(x)
    y = np.interp(x, xs, ys)
    first, last = (ys[1] - ys[0]) / (xs[1] - xs[0]), (ys[-1] - ys[-2]) / (xs[-1] - xs[-2])
    y = y + np.minimum(x - xs[0], 0) * first + np.maximum(x - xs[-1], 0) * last
    return np.maximum(y, 0.1 * ys[0])


def _bucket(requests: int) -> int:
    return requests.bit_length()


def _require_points(plain: Mapping, drafted: Mapping) -> None:
    if not plain or not drafted:
        raise MinimoeError("the profile of step times is empty: measure plain and drafted steps")
    for key, seconds in [*plain.items(), *drafted.items()]:
        if not (0 < seconds < float("inf")):
            raise MinimoeError(f"a step of {key} took {seconds} s in the profile: measure it again")
