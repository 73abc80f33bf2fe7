"""`Correction`: a profile taken once, kept true by the steps that follow it.

A profile is a few rounds at start-up, perhaps while something else was running. Every later step is
a measurement too: a line through them says how much longer than profiled a step takes (its level),
how much dearer a check is (its slope), and what each check costs that the profile did not see.
"""

import numpy as np

MEMORY = 0.98  # of past steps, per step
PRIOR = np.array([1.0, 0.4, 0.3])  # steps' worth of belief in the profile itself, by part
LIMIT = 3.0  # times what was expected: more is a stall, which says nothing about the next step
SOLVE_EVERY = 8


class Correction:
    """Seconds = `level` x base + `slope` x (profile - base) + `ramp` x base x share of all drafts,
    where base is the profile of a step that checks nothing. Least squares, older steps less."""

    def __init__(self):
        self.level, self.slope, self.ramp = 1.0, 1.0, 0.0
        self._inner = np.zeros((3, 3))
        self._outer = np.zeros(3)
        self._count = 0

    def seconds(self, base: float, profile, share):
        """What steps take, from the profile's seconds and the checked share of all drafts."""
        return self.level * base + self.slope * (profile - base) + self.ramp * base * share

    def observe(self, base: float, profile: float, share: float, seconds: float) -> None:
        """Learn from one step."""
        seconds = min(seconds, LIMIT * self.seconds(base, profile, share))
        parts = np.array([1.0, profile / base - 1.0, share])
        self._inner = MEMORY * self._inner + parts[:, None] * parts
        self._outer = MEMORY * self._outer + parts * (seconds / base)
        self._count += 1
        if self._count <= SOLVE_EVERY or self._count % SOLVE_EVERY == 0:
            self._solve()

    def _solve(self) -> None:
        """Least squares near the profile itself; a part that would be negative is left out."""
        inner, outer = self._inner + np.diag(PRIOR), self._outer + PRIOR * (1.0, 1.0, 0.0)
        found, used = np.linalg.solve(inner, outer), [0, 1, 2]
        while min(found) < 0 and len(used) > 1:
            used = [part for part, value in zip(used, found, strict=True) if value >= 0] or [0]
            found = np.linalg.solve(inner[np.ix_(used, used)], outer[used])
        parts = dict(zip(used, found.tolist(), strict=True))
        self.level = max(0.05, parts.get(0, 0.0))
        self.slope, self.ramp = parts.get(1, 0.0), parts.get(2, 0.0)
