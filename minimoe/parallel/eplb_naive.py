"""Oracles of `eplb.py`: one layer, plain lists, as DeepSeek's published greedy does it."""


def replicate_naive(load: list[float], slots: int) -> tuple[list[int], list[int]]:
    """The expert of each copy, and copies per expert."""
    expert, copies = list(range(len(load))), [1] * len(load)
    while len(expert) < slots:
        hottest = max(range(len(load)), key=lambda e: load[e] / copies[e])
        expert.append(hottest)
        copies[hottest] += 1
    return expert, copies


def pack_naive(weight: list[float], ranks: int) -> list[list[int]]:
    """Which items each rank holds: heaviest first, to the lightest rank that has room."""
    room = len(weight) // ranks
    held: list[list[int]] = [[] for _ in range(ranks)]
    for item in sorted(range(len(weight)), key=lambda i: -weight[i]):
        open_ranks = [rank for rank in range(ranks) if len(held[rank]) < room]
        lightest = min(open_ranks, key=lambda rank: sum(weight[i] for i in held[rank]))
        held[lightest].append(item)
    return held


def greedy_naive(load: list[float], slots: int, ranks: int) -> list[list[int]]:
    """Experts by rank."""
    expert, copies = replicate_naive(load, slots)
    held = pack_naive([load[e] / copies[e] for e in expert], ranks)
    return [[expert[item] for item in items] for items in held]


def peak_naive(load: list[float], held: list[list[int]]) -> float:
    """The busiest rank over the mean, when copies share their expert's tokens evenly."""
    copies = [sum(rank.count(e) for rank in held) for e in range(len(load))]
    busy = [sum(load[e] / copies[e] for e in rank) for rank in held]
    return max(busy) / (sum(busy) / len(held)) if sum(busy) else 1.0
