"""Which kernel and tiles suit a number of rows per expert on CUDA. Measured, so only here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """What one program computes at a time, and how deep it prefetches."""

    rows: int  # routed rows
    cols: int  # output columns (for gate-up: this many of each)
    depth: int  # along the summed dimension
    warps: int
    stages: int
    extra: int = 0  # decode: this many more rows, for row counts between powers of two


# Chosen by a sweep on an H200 at hidden 5120, expert hidden 2304. On the left the rows that most
# experts stay within; then the tiles for gate-up and for down.
DECODE = {
    16: (Tile(16, 64, 128, 4, 3), Tile(16, 128, 128, 4, 4)),
    32: (Tile(32, 64, 64, 4, 4), Tile(32, 128, 64, 8, 4)),
    48: (Tile(32, 64, 64, 4, 4, extra=16), Tile(32, 128, 64, 8, 4, extra=16)),
    64: (Tile(64, 64, 64, 4, 4), Tile(64, 128, 64, 8, 3)),
    96: (Tile(64, 64, 64, 4, 4, extra=32), Tile(64, 128, 64, 8, 4, extra=32)),
}
PREFILL = {
    320: (Tile(64, 128, 64, 4, 4), Tile(128, 256, 64, 8, 3)),
    1 << 30: (Tile(128, 128, 64, 8, 3), Tile(128, 256, 64, 8, 3)),
}
HOPPER_ROWS = 320  # from here on the kernel in `grouped_experts_hopper.py` is faster, where it runs


def choose(rows_per_expert: float, hopper: bool = False) -> tuple[str, tuple]:
    """Shape of the work and its tiles, by the mean number of rows per expert."""
    likely = rows_per_expert + 2.5 * rows_per_expert**0.5  # most experts have fewer
    if hopper and likely > HOPPER_ROWS:
        return "hopper", (None, None)  # it has its own tiles
    for name, table in (("decode", DECODE), ("prefill", PREFILL)):
        for limit, tiles in table.items():
            if likely <= limit:
                return name, tiles
    raise AssertionError("the last row of PREFILL takes any number")
