"""`GroupClock`: a decode step of V4.1-Flash when each GPU of the group checks its own number.

Label *derived*: `perf/step_cost.py`, for a number of checks that need not be whole per request, and
not the same on every GPU.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from minimoe.perf.roofline import Work
from minimoe.perf.step_cost import Decode, ep64
from minimoe.speculative.step_times import StepTimes

LOADS = (2, 4, 8, 16, 24, 32, 48, 60, 80, 96, 128, 192, 256)


@dataclass(frozen=True)
class Uneven(Decode):
    """A step as the GPU with most checks sees it: `drafts` are its own, `mean_drafts` the group's,
    by which the experts' part goes."""

    mean_drafts: float = 0.0

    def layer_works(self, requests: float) -> dict[str, Work]:
        """As of the base class, but for the experts."""
        group = replace(self, drafts=self.mean_drafts)
        own = Decode.layer_works(self, requests)
        return {**own, "experts": Decode.layer_works(group, requests)["experts"]}


class GroupClock:
    """Clock of an expert-parallel group, for `serving_sim.simulate`.

    The experts' part follows from all tokens of the group. In every other part a GPU works for its
    own tokens, and all wait for the one with most, layer by layer.

    Args:
        make: an instance of GPUs, such as `ep64` or `ep8`, as a function of `drafts` and `context`.
        length: drafts of each request, G; all are drafted, whatever is checked.
    """

    def __init__(self, make: Callable[..., Decode] = ep64, length: int = 5, **settings):
        self.decode: Decode = make(drafts=length, **settings)
        self.ranks, self.length = self.decode.ranks, length
        self.uneven = Uneven(**{name: getattr(self.decode, name) for name in vars(self.decode)})
        self._known: dict[tuple[int, int, float], float] = {}

    def plain_seconds(self, requests: int) -> float:
        """Seconds of a step without drafts."""
        return replace(self.decode, drafts=0).seconds(requests)

    def seconds(self, requests: int, checked: list[int]) -> float:
        """One step; `checked` has the checked drafts of each GPU, or of some that stand for all."""
        key = requests, max(checked), round(sum(checked) / len(checked), 1)
        if key not in self._known:
            own, mean = (max(n / requests, 1e-6) for n in key[1:])  # 0 would leave the drafter out
            parts = replace(self.uneven, drafts=own, mean_drafts=mean).parts(requests)
            parts["drafter"] = self.decode.parts(requests)["drafter"]
            self._known[key] = sum(parts.values())
        return self._known[key]

    def times(self, loads=LOADS) -> StepTimes:
        """What a GPU would measure if all had the same to do: its profile."""
        plain = {load: self.plain_seconds(load) for load in loads}
        drafted = {
            (load, load + checked): self.seconds(load, [checked])
            for load in loads
            for checked in sorted({load * tenths // 10 for tenths in range(0, 51, 5)})
        }
        return StepTimes(plain, drafted)
