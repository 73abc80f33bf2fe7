"""Time = overhead + slope x size, learned from measurements; the latest count most."""


class LineFit:
    """Least squares over (size, seconds) pairs, each weighing `decay` of the next one.

    `guess` (overhead, slope) stands in until two sizes have been seen.
    """

    def __init__(self, guess: tuple[float, float] | None = None, decay: float = 0.9):
        self.guess, self.decay = guess, decay
        self.n = self.x = self.y = self.xx = self.xy = 0.0

    def add(self, size: float, seconds: float) -> None:
        """One more observation; older ones fade by `decay`."""
        keep = self.decay
        self.n, self.x, self.y = keep * self.n + 1, keep * self.x + size, keep * self.y + seconds
        self.xx, self.xy = keep * self.xx + size * size, keep * self.xy + size * seconds

    def line(self) -> tuple[float, float] | None:
        """(overhead, slope), neither negative; None before anything is known."""
        if not self.n:
            return self.guess
        spread = self.n * self.xx - self.x * self.x
        if spread <= 1e-9 * self.n * self.xx:  # one size only: all of it may be slope
            return 0.0, self.y / self.x if self.x else 0.0
        slope = max(0.0, (self.n * self.xy - self.x * self.y) / spread)
        overhead = (self.y - slope * self.x) / self.n
        if overhead < 0:
            return 0.0, self.xy / self.xx
        return overhead, slope

    def seconds(self, size: float) -> float | None:
        """Predicted time for `size`, or None."""
        line = self.line()
        return None if line is None else line[0] + line[1] * size
