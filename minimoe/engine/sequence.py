"""`Sequence`: one request on its way through the engine."""

import time
from dataclasses import dataclass, field

from minimoe.engine.params import SamplingParams


@dataclass
class Metrics:
    """What one request cost. Times are seconds of `time.perf_counter`."""

    arrival: float = field(default_factory=time.perf_counter)
    first_token: float | None = None
    finished: float | None = None
    steps: int = 0  # forward passes this request took part in
    preemptions: int = 0
    drafted: int = 0  # tokens guessed
    checked: int = 0  # guesses that a forward pass checked
    accepted: int = 0  # guesses that became part of the text
    checked_by_position: list[int] = field(default_factory=list)  # place in the draft, first is 0
    accepted_by_position: list[int] = field(default_factory=list)

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds from arrival to the first token; None before it."""
        return None if self.first_token is None else self.first_token - self.arrival

    def count_draft(self, checked: int, accepted: int) -> None:
        """One check of `checked` guesses, of which the first `accepted` stayed."""
        self.checked += checked
        self.accepted += accepted
        for counts, more in (
            (self.checked_by_position, checked),
            (self.accepted_by_position, accepted),
        ):
            counts += [0] * (checked - len(counts))
            for place in range(more):
                counts[place] += 1


@dataclass(eq=False)
class Sequence:
    """A request's tokens, its KV blocks, and how far it has been computed.

    `tokens` is prompt and output together; the KV rows of the first `num_computed` are in `blocks`.
    """

    request_id: str
    prompt_ids: list[int]
    params: SamplingParams
    seed: int
    max_total: int  # prompt and output together end here
    arrival: int = 0  # order of arrival: lower is served first
    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0
    draft: list[int] = field(default_factory=list)  # guesses that the next step checks
    num_cached: int = 0  # prompt tokens found in the prefix cache
    block_keys: list = field(default_factory=list)  # of its full blocks, made by prefix reuse
    num_named: int = 0  # leading blocks that others can find
    finish_reason: str | None = None  # "stop", "length", "abort" or "error"
    logprobs: list[dict[int, float]] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self):
        self.tokens = list(self.prompt_ids)

    @property
    def num_remaining(self) -> int:
        """Tokens whose KV rows are not computed yet: 1 in decode, more in prefill."""
        return len(self.tokens) - self.num_computed

    @property
    def output_ids(self) -> list[int]:
        """The tokens made so far, without the prompt."""
        return self.tokens[len(self.prompt_ids) :]

    @property
    def finished(self) -> bool:
        """Has the request ended, for whatever reason?"""
        return self.finish_reason is not None
