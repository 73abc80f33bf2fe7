"""What a cache costs to hold and to read, and what batching makes of it; label *derived*.

`cache_size.py` has the bytes per token of the common kinds of attention. Here are the models of
the course, pages against contiguous reservations, and the steps that a set of requests takes.
Sizes in bytes, lengths in tokens, times in seconds.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from minimoe.perf.cache_size import Compressed, blocks_for, grouped_query, latent


def per_head(layers: int, heads: int, key_dim: int, value_dim: int, itemsize: float) -> float:
    """Bytes per token where each of `heads` keeps its key and its value, of different widths."""
    return layers * heads * (key_dim + value_dim) * itemsize


def v4_flash_per_token() -> float:
    """DeepSeek-V4-Flash (arXiv 2606.19348): 3,514 B, as reported.

    21 layers hold an entry per 4 tokens, with a key for the indexer; 20 an entry per 128 tokens,
    without. An entry: 448 values in FP8, 64 rotary values in bfloat16, 8 bytes of scales. An
    indexer key: 128 FP4 values and a scale byte per 32. The first two layers keep a window only.
    """
    entry = 448 + 64 * 2 + 8
    index = 128 / 2 + 128 / 32
    return 21 * (entry + index) / 4 + 20 * entry / 128


BYTES_PER_TOKEN = {
    # 95 layers, 8 groups of heads of 128 (arXiv 2401.02954), bfloat16
    "DeepSeek 67B (GQA)": grouped_query(95, 8, 128, 2),
    # V3's 61 layers of 128 heads, keys 128 + 64 and values 128 wide (arXiv 2412.19437), bfloat16
    "V3, were it multi-head": per_head(61, 128, 192, 128, 2),
    "V3 (MLA)": latent(61, 512, 64, 2),
    "V4-Flash": v4_flash_per_token(),
    "V4.1-Flash": Compressed().per_token,
}
REPORTED = {"V4-Flash": 3514, "V4.1-Flash": 890}  # DeepSeek's own figures (arXiv 2609.19969)


@dataclass(frozen=True)
class SparseReads:
    """Bytes that one request's decode step of V4.1-Flash reads of its cache: far from all of it.

    Layout as reported (arXiv 2609.19969): 8 layers choose entries by scoring the indexer's keys, 38
    layers read the 512 chosen, all 40 read a window. Three of the 8 score one key per 2 tokens, one
    scores a key per token, and four score only the 16,384 candidates it left. Assumed: that one
    reads all its keys, and a window's entry has the 584 bytes of V4's.
    """

    entry: int = 288
    key: int = 68
    chosen: int = 512
    candidates: int = 16_384
    window: int = 128

    def scored_keys(self, context: int) -> float:
        """Indexer keys read."""
        return 3 * context / 2 + context + 4 * min(context, self.candidates)

    def per_step(self, context: int, tokens: int = 1) -> float:
        """Bytes at `context` cached tokens. Of several new tokens (drafts to check) each chooses
        its own entries: the most it can be, since their choices overlap."""
        chosen = 38 * tokens * min(self.chosen, context) * self.entry
        window = 40 * min(self.window, context) * 584
        return self.scored_keys(context) * self.key + chosen + window


def expert_slice(E: int, ranks: int, D: int, F: int, layers: int, itemsize: float) -> float:
    """Bytes of the routed experts that one of `ranks` GPUs holds: three matrices of D x F each."""
    return E / ranks * 3 * D * F * itemsize * layers


FP4_WITH_SCALES = 0.5 + 1 / 32  # a scale byte per 32 values: an expert of V4.1 has 18.80 MB
V41_EP64 = expert_slice(384, 64, 5120, 2304, 40, FP4_WITH_SCALES)
V41_EP8 = expert_slice(384, 8, 5120, 2304, 40, FP4_WITH_SCALES)
V3_EP64 = expert_slice(256, 64, 7168, 2048, 58, 1)  # FP8; its scales are left out


def step_seconds(
    weights: float, requests: int, cache: float, bandwidth: float, overhead: float = 0.0
) -> float:
    """A decode step that reads `weights` bytes once and `cache` bytes of each request."""
    return overhead + (weights + requests * cache) / bandwidth


def crossing_context(weights: float, requests: int, per_token: float) -> float:
    """Context at which a step reads as much cache as weights, all cached tokens being read."""
    return weights / (requests * per_token)


def paged(lengths: Sequence[int], block_size: int) -> int:
    """Positions taken by requests of these lengths, in whole blocks."""
    return sum(blocks_for(length, block_size) * block_size for length in lengths)


def static_steps(lengths: Sequence[int], slots: int) -> int:
    """Steps when each batch of `slots` waits for its longest request before the next begins.

    `lengths` are new tokens by request, in order of arrival; a request takes a step for each.
    """
    return sum(max(lengths[i : i + slots]) for i in range(0, len(lengths), slots))


def continuous_steps(lengths: Sequence[int], slots: int) -> int:
    """Steps when the next request starts as soon as a slot is free (Orca, OSDI'22)."""
    return max((end for _, _, end in continuous_plan(lengths, slots)), default=0)


Plan = list[tuple[int, int, int]]  # slot, first step, the step after the last; by request


def static_plan(lengths: Sequence[int], slots: int) -> Plan:
    """Where and when each request runs in static batching."""
    plan, start = [], 0
    for first in range(0, len(lengths), slots):
        batch = lengths[first : first + slots]
        plan += [(slot, start, start + length) for slot, length in enumerate(batch)]
        start += max(batch)
    return plan


def continuous_plan(lengths: Sequence[int], slots: int) -> Plan:
    """The same for continuous batching: of free slots, the one that has been free the longest."""
    free = [(0, slot) for slot in range(slots)]  # when it is free, and which; a heap
    plan = []
    for length in lengths:
        start, slot = heapq.heappop(free)
        plan.append((slot, start, start + length))
        heapq.heappush(free, (start + length, slot))
    return plan
