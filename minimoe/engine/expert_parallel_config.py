"""The settings of expert parallelism that `LLM` takes beside its size."""

from collections.abc import Mapping
from dataclasses import dataclass

from minimoe.errors import MinimoeError

LONGEST = 86_400.0  # seconds of `timeout`; torch cannot take every number


@dataclass
class ExpertParallelConfig:
    """`LLM(expert_parallel_config={...})`.

    Args:
        spare_slots: per rank and layer, for second copies of busy experts.
        timeout: seconds after which a message between ranks that did not come counts as lost.
        window: steps over which the load of experts is counted.
        rebalance_every: steps between two rebalances by that load; 0 for never.
        threads: torch threads per rank.
    """

    spare_slots: int = 0
    timeout: float = 30.0
    window: int = 1000
    rebalance_every: int = 0
    threads: int = 1

    def __post_init__(self):
        for name, least in {
            "spare_slots": 0,
            "window": 1,
            "rebalance_every": 0,
            "threads": 1,
        }.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise MinimoeError(f"{name} is {value!r}: it must be a whole number >= {least}")
        number = isinstance(self.timeout, int | float)
        if not (number and 0 < self.timeout <= LONGEST):
            raise MinimoeError(
                f"timeout is {self.timeout!r}: it must be seconds, above 0 and at most {LONGEST}"
            )

    @classmethod
    def of(cls, settings: dict | None) -> "ExpertParallelConfig":
        """From what the user gave. Raises MinimoeError for a name or value that cannot be."""
        if not (settings is None or isinstance(settings, Mapping)):
            raise MinimoeError(
                f"expert_parallel_config is a {type(settings).__name__}: give a dict such as "
                '{"spare_slots": 1}'
            )
        known = set(cls.__dataclass_fields__)
        unknown = sorted(set(settings or {}) - known)
        if unknown:
            names = ", ".join(sorted(known))
            raise MinimoeError(f"expert_parallel_config has {unknown[0]!r}: it may have {names}")
        return cls(**(settings or {}))
