"""The numbers of the training recipe, and the schedules they define."""

from dataclasses import dataclass, field

from minimoe.errors import MinimoeError

MIX = {"code": 0.56, "story": 0.08, "chat": 0.24, "json": 0.12}


@dataclass(frozen=True)
class Recipe:
    """How to train. Exactly one of `steps` and `minutes` says how long."""

    steps: int | None = None
    minutes: float | None = None
    rows: int = 32  # sequences in a batch
    length: int = 2048  # tokens in a sequence
    lr: float = 4e-3  # for both optimizers
    warmup: float = 0.01  # share of training over which the learning rate rises
    hold: float = 0.40  # share of training after which it starts to fall, linearly to zero
    weight_decay: float = 0.1
    dropout: float = 0.1
    clip: float = 1.0
    sequence_weight: float = 1e-4  # of the sequence-wise balance loss
    eval_every: int = 200  # steps between measurements on held-out text
    seed: int = 0
    mix: dict[str, float] = field(default_factory=lambda: dict(MIX))

    def __post_init__(self):
        if (self.steps is None) == (self.minutes is None):
            raise MinimoeError("say how long to train: either steps or minutes, and not both")
        for name in ("steps", "minutes", "rows", "length", "eval_every"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise MinimoeError(f"{name} is {value}: it must be above 0")

    def lr_at(self, progress: float) -> float:
        """The learning rate when this share (0 to 1) of training is done."""
        if progress < self.warmup:
            return self.lr * max(progress, self.warmup / 10) / self.warmup
        if progress < self.hold:
            return self.lr
        return self.lr * max(0.0, (1 - progress) / (1 - self.hold))

    def bias_rate_at(self, progress: float) -> float:
        """The step of the balance bias: coarse at first, fine once the router has settled."""
        if progress < self.hold:
            return 0.01
        return 0.003 if progress < 0.75 else 0.001

    def row_counts(self) -> dict[str, int]:
        """Rows of a batch for each domain: the mix, rounded so that every domain gets a row."""
        return share_out(self.rows, self.mix)


def share_out(rows: int, mix: dict[str, float]) -> dict[str, int]:
    """Divide `rows` by the weights of `mix`, largest remainder first, at least one row each.

    Raises MinimoeError when there are fewer rows than domains.
    """
    if rows < len(mix):
        raise MinimoeError(f"{rows} rows cannot hold {len(mix)} domains: use at least {len(mix)}")
    total, spare = sum(mix.values()), rows - len(mix)
    exact = {name: spare * weight / total for name, weight in mix.items()}
    counts = {name: 1 + int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: int(exact[name]) - exact[name])
    for name in by_remainder[: rows - sum(counts.values())]:
        counts[name] += 1
    return counts
