"""What a rank counts: seconds by what they went into, bytes by kind, and the bytes by formula."""

from collections import defaultdict
from dataclasses import dataclass, fields


@dataclass
class Times:
    """What one rank spent its time on since the last reset, in seconds."""

    steps: int = 0
    seconds: float = 0.0  # whole steps, by the clock
    experts: float = 0.0  # computing expert rows
    exchange: float = 0.0  # rows under way; where waiting is not measured apart, that too
    waiting: float = 0.0  # for slower ranks
    rows: int = 0  # expert rows computed

    @property
    def own(self) -> float:
        """Seconds apart from waiting and exchange: what a slow rank cannot hide."""
        return self.seconds - self.exchange - self.waiting

    def reset(self) -> None:
        """Begin again at zero."""
        for field in fields(self):
            setattr(self, field.name, field.default)


class Bytes(defaultdict):
    """Bytes by kind of message, `{"dispatch": [sent, received], ...}`; a rank's own part excluded.

    Kinds: "counts" (who gets how many rows), "dispatch", "combine", "move" (expert weights),
    "gather" (anything else).
    """

    def __init__(self):
        super().__init__(lambda: [0, 0])

    def add(self, kind: str, sent: int, received: int) -> None:
        """One message of this kind."""
        self[kind][0] += sent
        self[kind][1] += received

    @property
    def sent(self) -> int:
        """Bytes of all kinds."""
        return sum(sent for sent, _ in self.values())

    @property
    def received(self) -> int:
        """Bytes of all kinds."""
        return sum(received for _, received in self.values())


def exchange_bytes(
    pairs: list[list[int]], per_rank: int, D: int, itemsize: int, layers: int = 1, ends: int = 0
) -> list[dict[str, tuple[int, int]]]:
    """What the exchanges of `layers` layers and `ends` ends of steps carry, by formula, per rank.

    pairs: `[P][P]`, (token, expert) pairs of rank r's tokens that rank q computes, all layers
    together. Rows go there and come back; own ones stay. Before them every rank tells every other
    a header and a count for each of its Q / P slots, 8 bytes each. Exact for `Bytes`, kind by kind.
    """
    P, row = len(pairs), D * itemsize
    told = (layers + ends) * (P - 1) * (per_rank + 1) * 8
    found = []
    for r in range(P):
        out = sum(pairs[r]) - pairs[r][r]
        came = sum(pairs[q][r] for q in range(P)) - pairs[r][r]
        rows = {"dispatch": (out * row, came * row), "combine": (came * row, out * row)}
        found.append({"counts": (told, told), **rows})
    return found
