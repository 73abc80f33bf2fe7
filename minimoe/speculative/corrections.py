"""`Correction`: a profile taken once, kept true by the steps that follow it.

A profile is a few rounds at start-up, perhaps while something else was running. Every later step is
a measurement too: a line through them says how much longer than profiled a step takes (its level),
how much dearer a check is (its slope), and what each check costs that the profile did not see.
Beside the line stands what a round costs more when it checks some of the drafts and not all.
"""

import numpy as np

MEMORY = 0.98  # of past steps, per step
PRIOR = np.array([1.0, 0.4, 0.3])  # steps' worth of belief in the profile itself, by part
LIMIT = 3.0  # times what was expected: more is a stall, which says nothing about the next step
SOLVE_EVERY = 8
CHOICE_PRIOR, CHOICE_RATE = 3.0, 0.1  # steps' worth of belief in the profile; slowest correction


class Correction:
    """Seconds = `level` x base + `slope` x (profile - base) + `ramp` x base x share of all drafts,
    where base is the profile of a step that checks nothing. Least squares, older steps less.

    A step that checks a part of the drafts takes `choice_seconds` more: requests' parts are uneven,
    and somebody had to choose. Both kinds of step share the line, so that a machine that slows down
    does not seem to favour the kind that was tried less lately.
    """

    def __init__(self):
        self.level, self.slope, self.ramp = 1.0, 1.0, 0.0
        self.choice = 0.0  # times level x base, beside what the profile saw
        self._inner = np.zeros((3, 3))
        self._outer = np.zeros(3)
        self._count = 0
        self._recent = {True: 0.0, False: 0.0}  # steps that checked a part, and others
        self._rare = 0  # steps of the rarer kind

    def seconds(self, base: float, profile, share):
        """What steps take, from the profile's seconds and the checked share of all drafts."""
        return self.level * base + self.slope * (profile - base) + self.ramp * base * share

    def choice_seconds(self, base: float, profile: float) -> float:
        """What checking a part takes more, where the profile saw so much."""
        return self.level * max(0.0, profile + self.choice * base)

    def observe(
        self, base: float, profile: float, share: float, seconds: float, choice: float | None = None
    ) -> None:
        """Learn from one step; `choice` is the profile's extra for a step that checks a part of the
        drafts, None for one that checks all or none there are."""
        extra = 0.0 if choice is None else self.choice_seconds(base, choice)
        expected = self.seconds(base, profile, share) + extra
        seconds = min(seconds, LIMIT * expected)
        self._learn_choice(choice is not None, (seconds - expected) / (self.level * base))
        seconds -= extra
        parts = np.array([1.0, profile / base - 1.0, share])
        self._inner = MEMORY * self._inner + parts[:, None] * parts
        self._outer = MEMORY * self._outer + parts * (seconds / base)
        self._count += 1
        if self._count <= SOLVE_EVERY or self._count % SOLVE_EVERY == 0:
            self._solve()

    def _learn_choice(self, part: bool, error: float) -> None:
        """The line follows the kind of step that is common now; where the rarer kind lies beside
        it, that is the difference between the two."""
        for kind in self._recent:
            self._recent[kind] = MEMORY * self._recent[kind] + (kind == part)
        if self._recent[part] <= self._recent[not part]:
            self._rare += 1
            rate = max(CHOICE_RATE, 1 / (self._rare + CHOICE_PRIOR))
            self.choice += rate * (error if part else -error)

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
