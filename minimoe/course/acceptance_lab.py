"""A tiny world in which any rule of accepting drafts can be tried thousands of times.

Three tokens, blocks of two drafts. Target and drafter are tables: what comes next, given the text
of the block so far. A rule gets B blocks at once and says what each pass produces; whether the text
is still the target's shows in how often each pair of first tokens comes out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from minimoe.ops.sampling import draw_by_sum, exponential_noise
from minimoe.speculative.acceptance import Block, check_block, one_hot

V, G = 3, 2
P_FIRST = [0.2, 0.3, 0.5]
Q_FIRST = [0.5, 0.3, 0.2]


@dataclass
class World:
    """`p[n]` and `q[n]` are `[V, ..., V]`: what follows n tokens, by those tokens."""

    p: list[torch.Tensor]
    q: list[torch.Tensor]

    def expected(self) -> torch.Tensor:
        """How likely each pair of first tokens is, `[V, V]`."""
        return self.p[0][:, None] * self.p[1]


def make_world(first=(P_FIRST, Q_FIRST), seed: int = 0) -> World:
    """The given first tokens; what follows them is random, and another for each text."""
    random = torch.Generator().manual_seed(seed)

    def tables(start):
        later = [torch.rand(*[V] * n, V, generator=random).double() + 0.1 for n in (1, 2)]
        start = torch.tensor(start, dtype=torch.float64)
        return [start, *(table / table.sum(-1, keepdim=True) for table in later)]

    return World(*(tables(start) for start in first))


def draw_drafts(world: World, blocks: int, uniform: torch.Tensor, greedy: bool = False):
    """Drafts `[B, G]` and the q that each was drawn from, `[B, G, V]`."""
    ids, q = [], []
    for place in range(G):
        row = world.q[place][tuple(ids)].expand(blocks, V)
        q.append(row)
        ids.append(row.argmax(-1) if greedy else draw_by_sum(row, uniform[:, place]))
    return torch.stack(ids, 1), torch.stack(q, 1)


def target_rows(world: World, ids: torch.Tensor) -> torch.Tensor:
    """What the checking pass computes, `[B * (G + 1), V]`: p after 0, 1 and 2 of the drafts."""
    blocks, columns = len(ids), ids.unbind(1)
    rows = [world.p[n][tuple(columns[:n])].expand(blocks, V) for n in range(G + 1)]
    return torch.stack(rows, 1).flatten(0, 1)


def run(world: World, rule: Callable, blocks: int = 20_000, seed: int = 0, greedy: bool = False):
    """How often each pair of first tokens came out, `[V, V]`.

    `rule(block, p, seeds, positions)` gives `accepted [B]` and `token [B]`, as `check_block` does.
    Texts of a single token get their second one from the target.
    """
    random = torch.Generator().manual_seed(seed)
    uniform = torch.rand(blocks, G + 1, generator=random, dtype=torch.float64)
    ids, q = draw_drafts(world, blocks, uniform, greedy)
    starts = torch.arange(blocks) * (G + 1)
    block = Block(starts, torch.full((blocks,), G), ids, q)
    seeds = torch.arange(blocks) + seed * blocks
    accepted, token = rule(block, target_rows(world, ids), seeds, torch.zeros_like(seeds))
    first = torch.where(accepted > 0, ids[:, 0], token)
    second = torch.where(accepted > 1, ids[:, 1], token)
    alone = draw_by_sum(world.p[1][first], uniform[:, G])
    second = torch.where(accepted > 0, second, alone)
    return torch.bincount(first * V + second, minlength=V * V).view(V, V)


def p_value(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """Pearson's chi-square test: how often counts as far off as these come by chance alone. Cells
    that expect fewer than 5 count as one; any count in a cell that expects 0 gives 0. One cell
    always holds what it should: 1."""
    expected, counts = (expected / expected.sum() * counts.sum()).flatten(), counts.flatten()
    if counts[expected <= 0].any():
        return 0.0
    rare = expected < 5
    expected, counts = (
        torch.cat([values[~rare], values[rare].sum()[None]]) for values in (expected, counts)
    )
    expected, counts = expected[expected > 0], counts[expected > 0]
    if len(expected) == 1:
        return 1.0
    gap = ((counts - expected) ** 2 / expected).sum().double()
    freedom = torch.tensor((len(expected) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, gap / 2))


def one_hot_rule(block: Block, p, seeds, positions):
    """Right for greedy drafts: they were chosen without chance, so q is 1 at the draft. Right for
    drawn ones too, though it keeps fewer: with probability p(x) in place of min(1, p(x) / q(x))."""
    sure = one_hot(block.ids, p.shape[1], p.dtype)
    return check_block(Block(block.starts, block.counts, block.ids, sure), p, seeds, positions)


def no_residual(block: Block, p, seeds, positions):
    """Wrong: after a rejection it draws from p again, which gives the rejected mass out twice."""
    accepted, _ = check_block(block, p, seeds, positions)
    noise = exponential_noise(seeds, positions + 7, p.shape[1], p.device)
    return accepted, (p[block.starts + accepted] / noise).argmax(-1)


def half_of_q(block: Block, p, seeds, positions):
    """Wrong: it accepts by q, but its residual only leaves the rejected token out."""
    accepted, _ = check_block(block, p, seeds, positions)
    sure = one_hot(block.ids, p.shape[1], p.dtype)
    weight = Block(block.starts, block.counts, block.ids, sure).last(p, accepted)
    noise = exponential_noise(seeds, positions + 7, p.shape[1], p.device)
    return accepted, (weight / noise).argmax(-1)


def likely_enough(block: Block, p, seeds, positions):
    """Wrong: it accepts whatever the target finds likely, without any chance."""
    accepted, token = check_block(block, p, seeds, positions)
    rows = block.starts[:, None] + torch.arange(G)
    stays = p[rows, block.ids] >= 0.3
    return stays.long().cumprod(1).sum(1), token


BROKEN = {"no residual": no_residual, "half of q": half_of_q, "likely enough": likely_enough}
