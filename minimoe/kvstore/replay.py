"""Replay a trace against caches: `python -m minimoe replay TRACE.jsonl --policy lru ...`.

Conventions: requests are served in file order, each at once. A hit is a resident block at the
head of the prompt, with all blocks before it resident too. Then the request's blocks are touched
last to first, and after each touch the cache evicts while it holds more than its capacity.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from minimoe.errors import MinimoeError
from minimoe.kvstore.retention import POLICIES, Policy, make_policy
from minimoe.kvstore.trace import Request, read_trace

ROUTES = ("pool", "round_robin", "affine")


@dataclass
class Replay:
    """What a replay found: of request i, the blocks hit and asked for, and the node that served."""

    policy: str
    capacity_blocks: int | None
    seconds: float = 0.0
    hit_blocks: list[int] = field(default_factory=list)
    total_blocks: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)

    @property
    def hits(self) -> int:
        """Blocks found, over all requests."""
        return sum(self.hit_blocks)

    @property
    def blocks(self) -> int:
        """Blocks asked for, over all requests."""
        return sum(self.total_blocks)

    @property
    def hit_ratio(self) -> float:
        """Hits over all blocks asked for; 0 for an empty trace."""
        return self.hits / self.blocks if self.blocks else 0.0

    def ratio_between(self, first: int, last: int) -> float:
        """Hit ratio of requests `first` to `last - 1` alone."""
        asked = sum(self.total_blocks[first:last])
        return sum(self.hit_blocks[first:last]) / asked if asked else 0.0

    def as_dict(self) -> dict:
        """Counts, ratio, settings and seconds, for JSON."""
        return {
            "requests": len(self.hit_blocks),
            "blocks": self.blocks,
            "hits": self.hits,
            "hit_ratio": round(self.hit_ratio, 6),
            "policy": self.policy,
            "capacity_blocks": self.capacity_blocks,
            "seconds": round(self.seconds, 4),
        }


def replay(
    requests: Sequence[Request],
    policy: Callable[[], Policy],
    capacity_blocks: int | None = None,
    nodes: int = 1,
    route: str = "pool",
    lose: tuple[int, int] | None = None,
    affine_block: int = 1,
) -> Replay:
    """Serve `requests` from `nodes` caches of `capacity_blocks` each (None: without limit).

    `route` says which cache a request meets: "pool" is one cache of all the capacity,
    "round_robin" takes nodes in turn, "affine" goes by the id of block `affine_block`, so equal
    prefixes of that length meet the same cache.
    `lose=(node, index)` empties that node's cache just before request `index`.
    """
    _check_layout(capacity_blocks, nodes, route, lose)
    if route == "pool":
        nodes, capacity_blocks = 1, capacity_blocks and capacity_blocks * nodes
    caches = [policy() for _ in range(nodes)]
    result = Replay(caches[0].name, capacity_blocks)
    start, now = time.perf_counter(), 0.0
    for index, request in enumerate(requests):
        if lose and index == lose[1] and route != "pool":
            caches[lose[0]] = policy()
        now = max(now, request.timestamp / 1000)  # a clock that steps back stands still here
        node = pick_node(request, index, nodes, route, affine_block)
        result.nodes.append(node)
        cache = caches[node]
        result.hit_blocks.append(serve(cache, request, now, capacity_blocks))
        result.total_blocks.append(len(request.blocks))
    result.seconds = time.perf_counter() - start
    return result


def serve(cache: Policy, request: Request, now: float, capacity_blocks: int | None) -> int:
    """Hits of one request; afterwards its blocks are resident, as far as the capacity allows."""
    cache.expire(now)
    hits = 0
    for block in request.blocks:
        if block not in cache:
            break
        hits += 1
    kind, limit = request.kind, float("inf") if capacity_blocks is None else capacity_blocks
    for block in reversed(request.blocks):
        cache.touch(block, now, kind)
        while len(cache) > limit:
            cache.evict()
    return hits


def pick_node(request: Request, index: int, nodes: int, route: str, affine_block: int = 1) -> int:
    """Node of a request. Affine routing looks past the first block: a system prompt is shared."""
    if nodes == 1 or route == "round_robin" or not request.blocks:
        return index % nodes
    return request.blocks[min(affine_block, len(request.blocks) - 1)] % nodes


def reuse_gaps(requests: Sequence[Request], since: float = 0.0) -> list[float]:
    """Seconds since the last use of each block that a cache without limits would hit, from the
    requests of second `since` on.

    A chain's head was always used as recently as its tail, so with a time to live T exactly the
    hits with a gap of at most T remain.
    """
    last: dict[int, float] = {}
    gaps, now = [], 0.0
    for request in requests:
        now = max(now, request.timestamp / 1000)
        for block in request.blocks:
            if block not in last:
                break
            if now >= since:
                gaps.append(now - last[block])
        last.update(dict.fromkeys(request.blocks, now))
    return gaps


def replay_naive(requests: Sequence[Request], capacity_blocks: int, order: str = "lru") -> int:
    """The oracle: hits of LRU or FIFO on a plain list, slow and short."""
    cache: list = []
    hits = 0
    for request in requests:
        missing = [i for i, block in enumerate(request.blocks) if block not in cache]
        hits += missing[0] if missing else len(request.blocks)
        for block in reversed(request.blocks):
            if block not in cache:
                cache.append(block)
            elif order == "lru":
                cache.remove(block)
                cache.append(block)
            while len(cache) > capacity_blocks:
                cache.pop(0)
    return hits


def _check_layout(capacity: int | None, nodes: int, route: str, lose) -> None:
    if capacity is not None and capacity < 1:
        raise MinimoeError(f"capacity of {capacity} blocks holds nothing: give at least 1")
    if nodes < 1:
        raise MinimoeError(f"{nodes} nodes cannot serve: give at least 1")
    if route not in ROUTES:
        raise MinimoeError(f"unknown route {route!r}: choose one of {', '.join(ROUTES)}")
    if lose and not 0 <= lose[0] < nodes:
        raise MinimoeError(f"node {lose[0]} does not exist: nodes are 0 to {nodes - 1}")


def add_arguments(parser) -> None:
    parser.add_argument("trace", metavar="TRACE.jsonl", help="requests, one JSON object a line")
    parser.add_argument("--policy", choices=sorted(POLICIES), default="lru")
    parser.add_argument("--capacity-blocks", type=int, help="per node; without it, no limit")
    parser.add_argument("--ttl-seconds", type=float, help="lifetime after the last use (ttl)")
    parser.add_argument("--nodes", type=int, default=1, help="how many caches")
    parser.add_argument("--route", choices=ROUTES, default="pool", help="which cache serves whom")
    parser.add_argument("--affine-block", type=int, default=1, help="block that affine goes by")
    parser.add_argument("--lose-node", type=int, help="empty this node half-way")


def main(args) -> dict:
    requests = read_trace(args.trace)
    make_policy(args.policy, args.ttl_seconds)  # refuse bad settings before the work
    lose = None if args.lose_node is None else (args.lose_node, len(requests) // 2)
    result = replay(
        requests,
        lambda: make_policy(args.policy, args.ttl_seconds),
        args.capacity_blocks,
        args.nodes,
        args.route,
        lose,
        args.affine_block,
    )
    layout = {"nodes": args.nodes, "route": args.route} if args.nodes > 1 else {}
    return result.as_dict() | layout


def render(result: dict) -> str:
    capacity = result["capacity_blocks"] or "unlimited"
    return (
        f"{result['requests']:,} requests, {result['blocks']:,} blocks, policy "
        f"{result['policy']}, capacity {capacity}\n"
        f"{result['hits']:,} hits = {result['hit_ratio']:.6f} of the blocks, "
        f"replayed in {result['seconds']:.2f} s (measured here)"
    )
