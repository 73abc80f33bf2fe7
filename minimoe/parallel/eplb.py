"""EPLB on arrays: copy hot experts, pack the copies on ranks, then lower the busiest rank.

The greedy is DeepSeek's (github.com/deepseek-ai/EPLB): spare slots go one by one to the expert with
most load per copy; then, heaviest first, each copy goes to the least loaded rank with room. Ours
adds four things: no rank holds an expert twice while another could take it, loads may be weighed by
the ranks' measured speed, exchanges between the busiest rank and idle ones follow, and the copies
of an expert may get uneven shares of its tokens.

All layers are placed at once: arrays are `[L, ...]`, L layers.
"""

import numpy as np

SWAPS = 48  # exchanges per layer at most
PARTNERS = 6  # of the least loaded ranks: looking at all costs more and gains little
SWEEPS = 1  # over copied experts, each time slots were exchanged


def replicate(load: np.ndarray, slots: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """`load [L, E]` to the expert of each copy `[L, slots]` and copies per expert `[L, E]`.

    No expert gets more than `most` copies.
    """
    layers, experts = load.shape
    rows = np.arange(layers)
    expert = np.zeros((layers, slots), dtype=np.int64)
    expert[:, :experts] = np.arange(experts)
    copies = np.ones((layers, experts), dtype=np.int64)
    for slot in range(experts, slots):
        hottest = np.where(copies < most, load / copies, -1.0).argmax(1)  # [L]
        expert[:, slot] = hottest
        copies[rows, hottest] += 1
    return expert, copies


def pack(
    weight: np.ndarray, expert: np.ndarray, ranks: int, speed: np.ndarray | None = None
) -> np.ndarray:
    """Copies of `weight [L, Q]` and `expert [L, Q]` to `[L, P, Q/P]`: which copies each rank holds.

    Greedy, heaviest copy first, to the rank that would be done first. `speed [P]`: tokens per
    second of each rank, in any unit.
    """
    layers, slots = weight.shape
    rows, per_rank = np.arange(layers), slots // ranks
    speed = np.ones(ranks) if speed is None else speed
    held = np.zeros((layers, ranks, int(expert.max(initial=0)) + 1), dtype=bool)
    load, count = np.zeros((layers, ranks)), np.zeros((layers, ranks), dtype=np.int64)
    packed = np.zeros((layers, ranks, per_rank), dtype=np.int64)
    for copy in np.argsort(-weight, axis=1, kind="stable").T:  # [L]
        own, kind = weight[rows, copy], expert[rows, copy]
        time = (load + own[:, None]) / speed  # [L, P]
        twice = held[rows, :, kind]
        time = np.where(count == per_rank, np.inf, np.where(twice, 1e300, time))
        rank = time.argmin(1)
        packed[rows, rank, count[rows, rank]] = copy
        count[rows, rank] += 1
        load[rows, rank] += own
        held[rows, rank, kind] = True
    return packed


def separate(packed: np.ndarray, weight: np.ndarray, expert: np.ndarray) -> np.ndarray:
    """Exchange copies, layer by layer, until no rank holds an expert twice that need not.

    The greedy runs into this when only ranks that hold the expert already have room left. Changes
    `packed` in place and returns it.
    """
    kinds = np.sort(np.take_along_axis(expert[:, None], packed, 2), axis=2)  # [L, P, Q/P]
    for layer in np.flatnonzero((kinds[:, :, 1:] == kinds[:, :, :-1]).any((1, 2))):
        if not _separate_by_swaps(packed[layer], weight[layer], expert[layer]):
            packed[layer] = _dealt(expert[layer], packed.shape[1])
    return packed


def _separate_by_swaps(packed: np.ndarray, weight: np.ndarray, expert: np.ndarray) -> bool:
    """One layer, `packed [P, Q/P]`: True when swaps of about equal copies sufficed."""
    for rank, held in enumerate(packed):
        for place in range(len(held)):
            kinds = expert[held]
            if kinds[place] not in kinds[:place]:
                continue
            other = expert[packed]  # [P, Q/P]
            free = ~(other == kinds[place]).any(1, keepdims=True) & ~np.isin(other, kinds)
            if not free.any():
                return False
            gap = np.where(free, np.abs(weight[packed] - weight[held[place]]), np.inf)
            to, spot = np.unravel_index(gap.argmin(), gap.shape)
            packed[rank, place], packed[to, spot] = packed[to, spot], packed[rank, place]
    return True


def _dealt(expert: np.ndarray, ranks: int) -> np.ndarray:
    """Copies sorted by expert and dealt out like cards: never two on a rank, balanced or not."""
    return np.argsort(expert, kind="stable").reshape(-1, ranks).T.copy()


def swap(
    kind: np.ndarray, share: np.ndarray, load: np.ndarray, speed: np.ndarray, rounds: int = SWAPS
) -> None:
    """Lower the busiest rank of each layer by the best exchange with an idle one; repeat.

    Changes two in place: the expert `kind [L, P, n]` in each of a rank's n slots, and the slot's
    `share [L, P, n]` of that expert's tokens. `load [L, E]`, `speed [P]`.
    """
    weight = load[np.arange(len(kind))[:, None, None], kind] * share
    active = np.arange(len(kind))
    for _ in range(rounds if kind.shape[1] > 1 else 0):
        better, first, second = _best_exchange(kind[active], weight[active], speed)
        active = active[better]
        if not len(active):
            return
        for values in (kind, share, weight):
            kept = values[(active, *first)]
            values[(active, *first)] = values[(active, *second)]
            values[(active, *second)] = kept


def _best_exchange(kind: np.ndarray, weight: np.ndarray, speed: np.ndarray):
    """Layers where an exchange helps, and the (rank, place) and (rank, place) to exchange there."""
    layers, ranks, _ = kind.shape
    rows = np.arange(layers)[:, None]
    load = weight.sum(2)  # [L, P]
    order = (load / speed).argsort(1, kind="stable")
    busiest, partner = order[:, -1:], order[:, :-1][:, :PARTNERS]  # [L, 1], [L, p]
    given, taken = weight[rows, busiest], weight[rows, partner]  # [L, 1, n], [L, p, n]
    less = given[..., None] - taken[:, :, None]  # [L, p, n, n]: what the busiest gets rid of
    here = (load[rows, busiest][..., None, None] - less) / speed[busiest][..., None, None]
    there = (load[rows, partner][..., None, None] + less) / speed[partner][..., None, None]
    same = kind[rows, partner][:, :, None] == kind[rows, busiest][..., None]  # [L, p, n, n]
    twice = same.any(3, keepdims=True) | same.any(2, keepdims=True)  # one holds the other's expert
    peak = np.where(twice, np.inf, np.maximum(here, there)).reshape(layers, -1)
    best = peak.argmin(1)
    now = (load / speed)[rows, busiest][:, 0]
    at = np.flatnonzero(peak[rows[:, 0], best] < now * (1 - 1e-9))
    with_, place, spot = np.unravel_index(best[at], less.shape[1:])
    return at, (busiest[at, 0], place), (partner[at, with_], spot)


def fit_shares(
    kind: np.ndarray, share: np.ndarray, load: np.ndarray, speed: np.ndarray, sweeps: int = SWEEPS
) -> None:
    """Split the tokens of copied experts anew, so that ranks of this `speed [P]` end together.

    Changes `share [L, P, n]` in place. Expert by expert, tokens fill the ranks that hold it like
    water, the idlest first; sweeps over the experts approach the best split for these slots.
    """
    layers, ranks, n = kind.shape
    rows, experts = np.arange(layers)[:, None], load.shape[1]
    copied, at = copied_experts(kind.reshape(layers, -1), experts)  # [L, X], [L, X, most]
    on = at // n  # rank of each copy; `ranks` where there is no such copy
    flat = np.zeros((layers, ranks * n + 1))  # one slot more, for copies that do not exist
    flat[:, :-1] = share.reshape(layers, -1)
    busy = np.full((layers, ranks + 1), np.inf)
    busy[:, :-1] = (share * load[rows[..., None], kind]).sum(2)
    speed = np.append(speed, 1.0)
    for column in list(range(copied.shape[1])) * sweeps:
        tokens = load[rows, copied[:, column : column + 1]]  # [L, 1]
        here, slots = on[:, column], at[:, column]
        busy[rows, here] -= flat[rows, slots] * tokens
        filled = pour(tokens, busy[rows, here], speed[here])
        busy[rows, here] += filled
        part = np.divide(filled, tokens, out=flat[rows, slots], where=tokens > 0)
        flat[rows, slots] = part
        flat[:, -1], busy[:, -1] = 0.0, np.inf
    share[:] = flat[:, :-1].reshape(share.shape)


def copied_experts(slots: np.ndarray, experts: int) -> tuple[np.ndarray, np.ndarray]:
    """Experts by number of copies `[L, X]`, X as many as the layer with most has in copies; and
    their slots `[L, X, most]`, padded with Q."""
    copies = np.stack([np.bincount(row, minlength=experts) for row in slots])  # [L, E]
    first = np.cumsum(copies, axis=1) - copies
    order = np.argsort(slots, axis=1, kind="stable")  # copies of an expert side by side
    many = int((copies > 1).sum(1).max())
    copied = np.argsort(-copies, axis=1, kind="stable")[:, :many]
    number = np.arange(int(copies.max()))
    at = np.take_along_axis(first, copied, 1)[..., None] + number
    there = number < np.take_along_axis(copies, copied, 1)[..., None]
    found = order[np.arange(len(slots))[:, None, None], np.where(there, at, 0)]
    return copied, np.where(there, found, slots.shape[1])


def pour(tokens: np.ndarray, busy: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """`tokens [L, 1]` to m ranks each, so that those that get any end together: `[L, m]`.

    `busy [L, m]`: tokens they have already (infinite: takes none), `speed [L, m]`.
    """
    ends = busy / speed
    order = np.argsort(ends, axis=1)
    level = tokens + np.cumsum(np.take_along_axis(busy, order, 1), axis=1)
    level = level / np.cumsum(np.take_along_axis(speed, order, 1), axis=1)  # if the first m share
    ends = np.take_along_axis(ends, order, 1)
    sharing = (np.isfinite(level) & (level >= ends)).sum(1, keepdims=True)
    at = np.take_along_axis(level, np.maximum(sharing - 1, 0), 1)
    return np.maximum(0.0, at * speed - busy)


def hierarchical(load: np.ndarray, slots: int, groups: int, nodes: int, ranks: int) -> np.ndarray:
    """EPLB's form for few nodes: `load [L, E]` to the expert in each slot `[L, slots]`.

    Groups of experts are packed on nodes, and copies are made within a node, so that tokens routed
    to few groups go to few nodes. Prefill of V3 uses it; a model without groups uses the other.
    """
    layers, experts = load.shape
    if groups % nodes or experts % groups or slots % ranks or ranks % nodes:
        raise ValueError(
            f"{experts} experts in {groups} groups, {slots} slots, {ranks} ranks on {nodes} nodes: "
            "each node needs as many groups and ranks as the others, each rank as many slots"
        )
    size = experts // groups
    of_group = load.reshape(layers, groups, size).sum(2)
    number = np.tile(np.arange(groups), (layers, 1))
    group = pack(of_group, number, nodes)  # [L, nodes, groups/nodes]
    member = (group[..., None] * size + np.arange(size)).reshape(layers * nodes, -1)  # experts
    own = np.take_along_axis(np.repeat(load, nodes, axis=0), member, 1)  # [L * nodes, E/nodes]
    expert, copies = replicate(own, slots // nodes, most=ranks // nodes)
    weight = np.take_along_axis(own / copies, expert, 1)
    packed = separate(pack(weight, expert, ranks // nodes), weight, expert)
    held = np.take_along_axis(expert, packed.reshape(layers * nodes, -1), 1)
    return np.take_along_axis(member, held, 1).reshape(layers, slots)
