"""The numbers of the recipe for drafters, and its schedule."""

from dataclasses import dataclass, field

from minimoe.errors import MinimoeError
from minimoe.training.recipe import share_out

CODE_FIRST = {"code": 0.8, "story": 0.05, "chat": 0.1, "json": 0.05}  # code is the hard domain


@dataclass(frozen=True)
class DrafterRecipe:
    """How to train drafters. `minutes` counts training alone, not the writing of text."""

    minutes: float = 2.0
    rows: int = 24  # sequences in a batch
    length: int = 1024  # tokens in a sequence
    anchors: int = 128  # blocks in a sequence
    written: int = 8192  # rows that the target writes; as many come from the corpus
    lr: float = 3e-3
    warmup: float = 0.02
    hold: float = 0.40
    weight_decay: float = 0.05
    clip: float = 1.0
    gamma: float = 4.0  # of the weights by position
    seed: int = 0
    mix: dict[str, float] = field(default_factory=lambda: dict(CODE_FIRST))

    def __post_init__(self):
        for name in ("minutes", "rows", "length", "anchors", "written", "gamma"):
            value = getattr(self, name)
            if value <= 0:
                raise MinimoeError(f"{name} is {value}: it must be above 0")

    def lr_at(self, progress: float) -> float:
        """The learning rate when this share (0 to 1) of training is done."""
        if progress < self.warmup:
            return self.lr * max(progress / self.warmup, 0.02)
        return self.lr * min(1.0, max(0.0, (1 - progress) / (1 - self.hold)))

    def row_counts(self) -> dict[str, int]:
        """Rows of a batch for each domain."""
        return share_out(self.rows, self.mix)

    def text_counts(self) -> dict[str, int]:
        """Rows of text for each domain, once from the corpus and once from the target."""
        return share_out(self.written, self.mix)
