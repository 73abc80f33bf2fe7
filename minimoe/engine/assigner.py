"""`Assigner`: which rank serves which request, and what each rank must still be told."""

from dataclasses import replace

from minimoe.engine.rank_engine import Job
from minimoe.engine.sequence import Sequence


class Assigner:
    """Stands where the scheduler stands in `Engine`: gives each request to the least busy rank."""

    def __init__(self, size: int):
        self.rank_of: dict[Sequence, int] = {}
        self.clear(size)

    def clear(self, size: int) -> None:
        """No request is on any rank."""
        self.rank_of.clear()
        self.jobs: list[list[Job]] = [[] for _ in range(size)]
        self.aborted: list[list[str]] = [[] for _ in range(size)]

    def add(self, seq: Sequence) -> None:
        """Give a request, with what it has so far, to the rank that has the fewest."""
        busy = [0] * len(self.jobs)
        for rank in self.rank_of.values():
            busy[rank] += 1
        rank = self.rank_of[seq] = busy.index(min(busy))
        params = replace(seq.params, seed=seq.seed)
        so_far = (seq.output_ids, list(seq.logprobs), replace(seq.metrics))
        self.jobs[rank].append(Job(seq.request_id, seq.prompt_ids, params, *so_far))

    @property
    def has_unfinished(self) -> bool:
        """True while any rank has a request."""
        return bool(self.rank_of)

    def finish(self, seq: Sequence, reason: str) -> None:
        """Forget a request; its rank is told unless it ended it itself."""
        rank = self.rank_of.pop(seq)
        if seq.finish_reason is None:
            self.aborted[rank].append(seq.request_id)
            self.jobs[rank] = [j for j in self.jobs[rank] if j.request_id != seq.request_id]
        seq.finish_reason = reason

    def take(self) -> list[tuple[list[Job], list[str]]]:
        """New requests and aborted ones for each rank, once."""
        orders = list(zip(self.jobs, self.aborted, strict=True))
        self.jobs, self.aborted = [[] for _ in orders], [[] for _ in orders]
        return orders
