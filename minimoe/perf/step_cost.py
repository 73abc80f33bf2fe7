"""Time of one decode step by expert-parallel size, batch, context and drafts. Label: *derived*.

A GPU of a group of P runs attention for its own n requests and the experts in its own slots for
everybody. With G drafts to check, a step has T = n (1 + G) tokens per GPU. A layer then costs

    dense       projections, shared expert and router: weights read once a step, work for T tokens
    cache       the index and the entries that T tokens read of their requests' caches
    experts     the distinct experts hit in this GPU's slots, and the busiest GPU's tokens
    exchange    dispatch and combine of T K rows, latency and bytes (`exchange.py`)

Kernels are as good as ours were on an H200 (`calibration.py`), on whatever chip. What the public
record does not give is a field with a comment that says *assumed*.
"""

from dataclasses import dataclass, field

from minimoe.perf.calibration import Calibration, calibrate
from minimoe.perf.chips import CHIPS, Chip
from minimoe.perf.exchange import Fabric, scale_up
from minimoe.perf.kv_cost import BYTES_PER_TOKEN, FP4_WITH_SCALES, SparseReads
from minimoe.perf.roofline import Work, distinct_uniform, expert_activations, matmul

CHART_CONTEXT, CHART_DRAFTS, CHART_ACCEPTANCE = 131_072, 3, 0.75  # the post's chart, reported


@dataclass(frozen=True)
class Served:
    """A model as decode sees it. Defaults: V4.1-Flash, as reported (arXiv 2609.19969)."""

    layers: int = 40
    D: int = 5120
    F: int = 2304
    E: int = 384
    K: int = 6
    # Values of a layer's projections: queries through 1,280; 64 heads of 512; output in 8 groups
    # through 1,024 each. *Derived*; with K + 1 experts a layer and the head it makes 16 B active.
    projections: int = 5120 * 1280 + 1280 * 32_768 + 32_768 * 1024 + 8192 * 5120
    vocabulary: int = 129_280
    heads: int = 64
    head_dim: int = 512
    index_heads: int = 64  # *assumed*: V3.2's
    index_dim: int = 128
    expert_itemsize: float = FP4_WITH_SCALES
    dense_itemsize: float = 1.0
    compute: str = "float8"
    cache_per_token: float = BYTES_PER_TOKEN["V4.1-Flash"]
    reads: SparseReads = field(default_factory=SparseReads)

    def expert_bytes(self, experts: float) -> float:
        """Weights of so many experts of one layer."""
        return experts * 3 * self.D * self.F * self.expert_itemsize

    def dense_values(self) -> int:
        """Weights of a layer that every token uses: projections, shared expert, router."""
        return self.projections + 3 * self.D * self.F + self.D * self.E

    def held_bytes(self, slots: float) -> float:
        """All weights of a GPU with so many expert slots a layer."""
        dense = self.layers * self.dense_values() + self.vocabulary * self.D
        return self.layers * self.expert_bytes(slots) + dense * self.dense_itemsize


@dataclass(frozen=True)
class Decode:
    """A decode instance of P GPUs. `seconds`, `tokens_per_gpu` and so on take requests per GPU."""

    ranks: int
    slots: float  # expert slots per GPU, spares included
    chip: Chip = CHIPS["B200"]
    fabric: Fabric = field(default_factory=scale_up)
    model: Served = field(default_factory=Served)
    context: int = CHART_CONTEXT
    drafts: int = CHART_DRAFTS
    acceptance: float = CHART_ACCEPTANCE
    imbalance: float = 1.09  # busiest GPU's tokens over the mean: reported in the post, for 64
    draft_layers: int = 3  # a drafter of so many layers like the model's runs once a step
    kernels: Calibration = field(default_factory=calibrate)

    @property
    def tokens_per_step(self) -> float:
        """Tokens a request gains per step: one, and each draft that is accepted with all before."""
        return sum(self.acceptance**i for i in range(self.drafts + 1))

    def layer_works(self, requests: float) -> dict[str, Work]:
        """What one GPU does in an average layer."""
        m, T = self.model, requests * (1 + self.drafts)
        hit = self.slots * distinct_uniform(1, m.K / (self.slots * self.ranks), T * self.ranks)
        rows = T * m.K * self.imbalance
        moved = m.expert_bytes(hit) + expert_activations(rows, m.D, m.F, 2)
        return {
            "dense": matmul(T, 1, m.dense_values(), m.dense_itemsize),
            "cache": self._cache_work(requests),
            "experts": Work(2 * 3 * m.D * m.F * rows, moved),
        }

    def _cache_work(self, requests: float) -> Work:
        """Index keys scored, entries chosen and windows read, averaged over the layers."""
        m, S, T = self.model, self.context, requests * (1 + self.drafts)
        read = requests * m.reads.per_step(S, 1 + self.drafts)
        scored = 2 * m.reads.scored_keys(S) * m.index_heads * m.index_dim
        attended = m.reads.chosen + m.reads.window
        attention = 4 * m.layers * attended * m.heads * m.head_dim
        return Work(T * (scored + attention) / m.layers, read / m.layers)

    def parts(self, requests: float) -> dict[str, float]:
        """Seconds of a step by part, on the GPU that is done last.

        Of two ways the faster: all requests at once; or in two halves, one of which computes while
        the other exchanges, at the price of reading weights twice. "exchange" is what it adds.
        """
        whole = self._parts_in_turn(requests)
        halves = {name: 2 * took for name, took in self._parts_in_turn(requests / 2).items()}
        computing = sum(halves.values()) - halves["exchange"]
        first = min(computing, halves["exchange"]) / (2 * self.model.layers)  # has no partner yet
        halves["exchange"] = max(0.0, halves["exchange"] - computing) + first
        return min(whole, halves, key=lambda parts: sum(parts.values()))

    def _parts_in_turn(self, requests: float) -> dict[str, float]:
        roofs, m = self.kernels.roofs(self.chip, self.model.compute), self.model
        kernel = {"cache": self.kernels.attention}
        T = requests * (1 + self.drafts)
        out = {
            name: m.layers * kernel.get(name, self.kernels.experts).seconds(work, *roofs)
            for name, work in self.layer_works(requests).items()
        }
        if self.drafts:
            out["drafter"] = sum(out.values()) * self.draft_layers / m.layers
        head = matmul(T, m.D, m.vocabulary, m.dense_itemsize)
        out["head"] = self.kernels.experts.seconds(head, *roofs)
        layers = m.layers + (self.draft_layers if self.drafts else 0)
        out["exchange"] = layers * self.fabric.layer_seconds(self.ranks, T, m.D, m.K)
        return out

    def seconds(self, requests: float) -> float:
        """One step."""
        return sum(self.parts(requests).values())

    def tokens_per_gpu(self, requests: float) -> float:
        """Tokens a second of one GPU."""
        return requests * self.tokens_per_step / self.seconds(requests)

    def tokens_per_user(self, requests: float) -> float:
        """Tokens a second that each user sees."""
        return self.tokens_per_step / self.seconds(requests)

    def most_requests(self, usable: float = 0.9) -> int:
        """Requests per GPU whose caches fit beside the weights in `usable` of the memory."""
        free = usable * self.chip.memory - self.model.held_bytes(self.slots)
        return max(0, int(free / (self.model.cache_per_token * self.context)))

    def requests_at(self, speed: float) -> float:
        """Requests per GPU at which each user still sees `speed` tokens/s; 0 if none can."""
        low, high = 1.0, float(max(1, self.most_requests()))
        if self.tokens_per_user(low) < speed:
            return 0.0
        if self.tokens_per_user(high) >= speed:
            return high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.tokens_per_user(middle) >= speed else (low, middle)
        return low


def ep8(**changes) -> Decode:
    """Eight GPUs, 52 slots each: 48 experts and the spares of the post."""
    return Decode(**{"ranks": 8, "slots": 52, **changes})


def ep64(**changes) -> Decode:
    """Sixty-four GPUs, 7 slots each."""
    return Decode(**{"ranks": 64, "slots": 7, **changes})


def ratio(narrow: Decode, wide: Decode, requests: float) -> float:
    """Throughput per GPU of the first over the second, with equal requests per GPU."""
    return narrow.tokens_per_gpu(requests) / wide.tokens_per_gpu(requests)


def best(instance: Decode) -> float:
    """Tokens a second per GPU with as many requests as fit: nobody waits for an answer."""
    return instance.tokens_per_gpu(instance.most_requests())


def price(instance: Decode, speed: float, batch: float) -> float:
    """What a token costs at `speed` tokens/s per user, over one made at `batch` tokens/s per GPU.

    Infinite where the instance cannot be that fast.
    """
    requests = instance.requests_at(speed)
    return batch / instance.tokens_per_gpu(requests) if requests else float("inf")


def frontier(instance: Decode, points: int = 40) -> list[tuple[float, float, float]]:
    """(requests per GPU, tokens/s per user, tokens/s per GPU) from one request to all that fit."""
    most = instance.most_requests()
    if most < 1:
        return []
    requests = [most ** (i / (points - 1)) for i in range(points)]
    return [(n, instance.tokens_per_user(n), instance.tokens_per_gpu(n)) for n in requests]
