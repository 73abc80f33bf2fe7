"""Which block to drop: LRU, FIFO, LFU, and time to live by class of traffic.

A policy holds the resident blocks of one cache in its own order. `touch` is called for each block
of a request, last to first, so that a chain's head is always newer than its tail and goes last.
Subclass `Policy` to try an order of your own; `replay` takes the class.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from minimoe.errors import MinimoeError

DAY = 86_400.0
RETENTION = {"chat": 7 * DAY, "agent": 3 * DAY}  # seconds; as reported for DeepInfer's store


class Policy:
    """Resident blocks in some order. Subclasses say what a touch does and who goes first.

    Blocks are any hashable ids. `now` is in seconds and never runs backwards within a replay.
    """

    name = "policy"

    def __contains__(self, block) -> bool:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def touch(self, block, now: float = 0.0, kind: str = "chat") -> None:
        """Note a use of `block`; it becomes resident if it was not."""
        raise NotImplementedError

    def evict(self):
        """Drop one resident block and return it."""
        raise NotImplementedError

    def expire(self, now: float) -> None:
        """Drop what is too old at `now`. Only policies with a time to live do anything."""


class LRU(Policy):
    """Least recently used goes first."""

    name = "lru"

    def __init__(self):
        self.order: OrderedDict = OrderedDict()

    def __contains__(self, block) -> bool:
        return block in self.order

    def __len__(self) -> int:
        return len(self.order)

    def touch(self, block, now=0.0, kind="chat") -> None:
        self.order[block] = None
        self.order.move_to_end(block)

    def evict(self):
        return self.order.popitem(last=False)[0]


class FIFO(LRU):
    """First in goes first: a hit changes nothing."""

    name = "fifo"

    def touch(self, block, now=0.0, kind="chat") -> None:
        self.order.setdefault(block)


class LFU(Policy):
    """Least often used goes first, the least recent of them on a tie; counts end with residence."""

    name = "lfu"

    def __init__(self):
        self.count: dict = {}
        self.groups: dict[int, OrderedDict] = {}
        self.least = 0

    def __contains__(self, block) -> bool:
        return block in self.count

    def __len__(self) -> int:
        return len(self.count)

    def touch(self, block, now=0.0, kind="chat") -> None:
        uses = self.count.get(block, 0)
        if uses:
            self._leave(uses, block)
        if not uses or (self.least == uses and uses not in self.groups):
            self.least = uses + 1
        self.count[block] = uses + 1
        self.groups.setdefault(uses + 1, OrderedDict())[block] = None

    def evict(self):
        block = next(iter(self.groups[self.least]))
        self._leave(self.count.pop(block), block)
        if self.least not in self.groups and self.groups:
            self.least = min(self.groups)
        return block

    def _leave(self, uses: int, block) -> None:
        group = self.groups[uses]
        del group[block]
        if not group:
            del self.groups[uses]


class TTL(Policy):
    """A block lives `seconds` after its last use; `seconds` may differ by class of traffic.

    A block used by several classes lives as long as the longest of them promised. When a capacity
    forces a choice, the block that would expire first goes first.
    """

    name = "ttl"

    def __init__(self, seconds: float | Mapping[str, float] = RETENTION):
        values = seconds.values() if isinstance(seconds, Mapping) else [seconds]
        if not all(value > 0 for value in values):
            raise MinimoeError(f"time to live {seconds} must be above 0 seconds: give a larger one")
        self.seconds = seconds
        self.expiry: dict = {}
        self.heap: list = []
        self.uses = 0  # orders equal expiries by use

    def __contains__(self, block) -> bool:
        return block in self.expiry

    def __len__(self) -> int:
        return len(self.expiry)

    def lifetime(self, kind: str) -> float:
        """Seconds that a block of this class lives after a use."""
        if not isinstance(self.seconds, Mapping):
            return self.seconds
        if kind not in self.seconds:
            known = ", ".join(self.seconds)
            raise MinimoeError(f"no time to live for class {kind!r}: known classes are {known}")
        return self.seconds[kind]

    def touch(self, block, now=0.0, kind="chat") -> None:
        end = now + self.lifetime(kind)
        self.uses += 1
        held, _ = self.expiry.get(block, (end, 0))
        self.expiry[block] = entry = (max(end, held), self.uses)
        heapq.heappush(self.heap, (*entry, block))

    def expire(self, now: float) -> None:
        while self._first_end() < now:
            self.evict()

    def evict(self):
        self._first_end()
        _, _, block = heapq.heappop(self.heap)
        del self.expiry[block]
        return block

    def _first_end(self) -> float:
        """Earliest expiry; drops heap entries that a later use has replaced."""
        while self.heap and self.expiry.get(self.heap[0][2]) != self.heap[0][:2]:
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else float("inf")


@dataclass(slots=True)
class Use:
    """What is known of a resident block when a victim is chosen. Larger `last` is more recent."""

    first: int  # number of the touch that brought it in
    last: int  # number of the latest touch
    count: int = 1  # touches since it came in


class Choice(Policy):
    """A policy given by one function: `choose(blocks)` names the block to drop.

    `blocks` maps each resident block to its `Use`. Simple to write and slow to run: it looks at all
    blocks for each victim. Raises MinimoeError when the choice is no resident block.
    """

    name = "choice"

    def __init__(self, choose: Callable[[dict], Hashable]):
        self.choose, self.blocks, self.touches = choose, {}, 0

    def __contains__(self, block) -> bool:
        return block in self.blocks

    def __len__(self) -> int:
        return len(self.blocks)

    def touch(self, block, now=0.0, kind="chat") -> None:
        self.touches += 1
        use = self.blocks.get(block)
        if use is None:
            self.blocks[block] = Use(self.touches, self.touches)
        else:
            use.last, use.count = self.touches, use.count + 1

    def evict(self):
        victim = self.choose(self.blocks)
        if not isinstance(victim, Hashable) or victim not in self.blocks:
            raise MinimoeError(
                f"the choice {victim!r} is no resident block: return one of the keys"
            )
        del self.blocks[victim]
        return victim


POLICIES = {policy.name: policy for policy in (LRU, FIFO, LFU, TTL)}


def make_policy(name: str, ttl_seconds: float | Mapping[str, float] | None = None) -> Policy:
    """A fresh policy by name. Raises MinimoeError for an unknown name or a missing lifetime."""
    if name not in POLICIES:
        raise MinimoeError(f"unknown policy {name!r}: choose one of {', '.join(POLICIES)}")
    if name != "ttl":
        return POLICIES[name]()
    if ttl_seconds is None:
        raise MinimoeError("policy ttl needs a lifetime: give --ttl-seconds")
    return TTL(ttl_seconds)
