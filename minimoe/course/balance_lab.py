"""What 04_expert_load_balance runs on real ranks, and its tables."""

import time
from dataclasses import dataclass

import numpy as np

from minimoe.bench.prompts import domain_prompts
from minimoe.course.expert_traffic import MIXES, Traffic, count
from minimoe.engine.llm import LLM
from minimoe.engine.params import SamplingParams
from minimoe.parallel import layer, stragglers
from minimoe.parallel.placement import (
    Placement,
    adjust,
    balance,
    in_order,
    moves,
    peak_to_mean,
    slots_for,
    with_even_shares,
)
from minimoe.parallel.supervisor import Ranks


def mixes_table(traffic: Traffic, tokens: int, ranks: int) -> str:
    """Per mix, mean over layers: busiest expert and, experts in order, busiest rank, x the mean."""
    lines = [f"{'x the mean':<10}{'busiest expert':>16}{'busiest rank':>14}"]
    for name, mix in MIXES.items():
        load = count(traffic.take(mix, tokens), traffic.experts)
        rank = peak_to_mean(in_order(len(load), traffic.experts, ranks), load).mean()
        lines.append(f"{name:<10}{(load.max(1) / load.mean(1)).mean():>16.2f}{rank:>14.2f}")
    return "\n".join(lines)


def spares_table(
    past: Traffic, future: Traffic, tokens: int, ranks: int, spares=(0, 1, 2, 4)
) -> str:
    """Busiest rank over the mean with so many spare slots a rank: on the tokens that the layout was
    made from, and on as many later ones."""
    head = "".join(f"{f'{spare} spare' + 's' * (spare != 1):>16}" for spare in spares)
    lines = [f"{'mix':<10}{'in order':>10}{head}", f"{'':<20}" + "     made  later" * len(spares)]
    for name, mix in MIXES.items():
        before, after = (count(half.take(mix, tokens), half.experts) for half in (past, future))
        cells = [peak_to_mean(in_order(len(after), past.experts, ranks), after).mean()]
        for spare in spares:
            placement = balance(before, ranks, slots_for(past.experts, ranks, spare))
            cells += [peak_to_mean(placement, load).mean() for load in (before, after)]
        rest = "".join(
            f"{made:>9.2f}{later:>7.2f}"
            for made, later in zip(cells[1::2], cells[2::2], strict=True)
        )
        lines.append(f"{name:<10}{cells[0]:>10.2f}{rest}")
    return "\n".join(lines)


def start_group(size: int, running: LLM | None = None) -> LLM:
    """The tiny model on so many ranks, two spare slots each: the one that runs, if it is whole."""
    if running is not None and running.engine.ranks.size == size:
        return running
    if running is not None:
        running.close()
    config = {"spare_slots": 2}
    options = {"device": "cpu", "enable_prefix_caching": False}
    return LLM("tiny-moe", expert_parallel_size=size, expert_parallel_config=config, **options)


@dataclass(frozen=True)
class Served:
    """A run of the engine on several ranks: tokens of each request, expert rows that each rank
    computed, and load per layer and expert `[L, E]`, counted by the engine."""

    tokens: list[list[int]]
    rows: list[int]
    load: np.ndarray

    def peak(self, placement: Placement) -> float:
        """Busiest rank over the mean that this load gives under a placement, mean over layers."""
        return float(peak_to_mean(placement, self.load).mean())


def serve(llm: LLM, prompts: list[list[int]], new_tokens: int) -> Served:
    """Generate greedily and count what the ranks did."""
    llm.engine.step_times(reset=True)
    llm.engine.expert_load(reset=True)
    tokens = plain(llm, prompts, new_tokens)
    rows = [one["rows"] for one in llm.engine.step_times(reset=True)]
    return Served(tokens, rows, llm.engine.expert_load(reset=True))


def plain(llm: LLM, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
    """Greedy tokens of each prompt."""
    params = SamplingParams(max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
    return [out.outputs[0].token_ids for out in llm.generate(prompts, params)]


def evening_prompts(tokenizer, count: int, tokens: int) -> list[list[int]]:
    """The beginnings of stories and chats in turn, each cut to so many tokens."""
    texts = domain_prompts()
    both = [text for pair in zip(texts["story"], texts["chat"], strict=True) for text in pair]
    ids = [[tokenizer.bos_id, *tokenizer.encode(text)][:tokens] for text in both]
    return [one for one in ids if len(one) == tokens][:count]


def changed_tokens(one: list[list[int]], other: list[list[int]]) -> int:
    """Places where two sets of answers differ."""
    pairs = zip(one, other, strict=True)
    return sum(a != b for x, y in pairs for a, b in zip(x, y, strict=True))


def place_by(answer, load: np.ndarray, ranks: int, slots: int) -> Placement:
    """A reader's `answer(load, ranks, slots)` for each layer of `load [L, E]`, as a Placement.

    As long as it gives nothing, `balance` stands in.
    """
    rows = [answer(row.tolist(), ranks, slots) for row in load]
    if any(row is None or row is ... for row in rows):
        return balance(load, ranks, slots)
    return with_even_shares(np.array(rows), ranks, load.shape[1])


@dataclass(frozen=True)
class SlowRank:
    """One expert layer on two real ranks: alike, then one slowed, then weighed by speed.

    `reports`: three runs, a report of `layer.run` per rank each. `speed [2]`: as found.
    """

    reports: list[list[dict]]
    speed: np.ndarray

    @property
    def steps(self) -> stragglers.WonBack:
        """Seconds of a step in the three runs."""
        return stragglers.WonBack(*(max(r["seconds"] for r in run) for run in self.reports))

    @property
    def difference(self) -> float:
        """Largest difference between outputs of the runs, as a part of the largest output."""
        first, *rest = [[report["output"] for report in run] for run in self.reports]
        gaps = [(a - b).abs().max() for run in rest for a, b in zip(first, run, strict=True)]
        return float(max(gaps) / max(out.abs().max() for out in first))

    @property
    def clear(self) -> bool:
        """Whether times are in the order that they must have; other work can hide it."""
        quick, slow = self.reports[1]
        times = self.steps
        return quick["waiting"] > slow["waiting"] and times.even < times.aware < times.blind

    def table(self) -> str:
        """Rows and milliseconds per rank and run."""
        lines = [
            f"{'':<22}{'rank':>5}{'rows':>7}{'own work, ms':>14}{'waiting, ms':>13}{'step':>8}"
        ]
        names = ("alike", "rank 1 slowed 2 times", "weighed by speed")
        for name, run in zip(names, self.reports, strict=True):
            for rank, one in enumerate(run):
                cells = [one[key] * 1e3 for key in ("own", "waiting", "seconds")]
                lines.append(
                    f"{name if rank == 0 else '':<22}{rank:>5}{one['rows']:>7}{cells[0]:>14.1f}"
                    f"{cells[1]:>13.1f}{cells[2]:>8.1f}"
                )
        return "\n".join(lines)


def slow_rank(tries: int = 2, **size) -> SlowRank:
    """12 experts in 2 x 8 slots on two processes of one thread; rank 1 is slowed to a half.

    Other work on the same cores can hide the difference: then all is measured again, `tries` times
    at most. `size`: tokens, repeats, D and F.
    """
    with Ranks(2) as ranks:
        for _ in range(tries):
            found = _slow_rank(ranks, **size)
            if found.clear:
                break
    return found


def _slow_rank(ranks: Ranks, tokens: int = 256, repeats: int = 7, D: int = 512, F: int = 768):
    run = {"tokens": tokens, "repeats": repeats}
    ranks.call(layer.build, balance(np.ones((1, 12)), 2, 16), D=D, F=F, K=2)
    reports = [ranks.call(layer.run, **run)]
    ranks.call_each(layer.slow, [(1.0,), (2.0,)])
    reports.append(ranks.call(layer.run, **run))
    own, rows = ([report[key] for report in reports[1]] for key in ("own", "rows"))
    speed = stragglers.rank_speeds(own, rows)
    load = sum(report["load"].numpy() for report in reports[1])[None]
    ranks.call(layer.place, balance(load, 2, 16, speed))
    reports.append(ranks.call(layer.run, **run))
    return SlowRank(reports, speed)


@dataclass(frozen=True)
class Rescue:
    """Requests that a rank died under: their tokens, ranks before and after, seconds to go on."""

    tokens: list[list[int]]
    before: int
    after: int
    seconds: float


def kill_under_way(
    llm: LLM, prompts: list[list[int]], new_tokens: int, rank: int, after: int
) -> Rescue:
    """Kill a rank (SIGKILL) after so many steps, and let the engine finish all requests."""
    engine, before, done = llm.engine, llm.engine.ranks.size, {}
    params = SamplingParams(max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
    for number, prompt in enumerate(prompts):
        engine.add_request(f"{time.monotonic_ns()}-{number}", prompt, params)
    steps = 0
    while engine.has_unfinished_requests():
        for out in engine.step():
            done[out.request_id] = out.outputs[0].token_ids
        steps += 1
        if steps == after:
            engine.ranks.kill(rank)
    order = sorted(done, key=lambda name: int(name.split("-")[1]))
    seconds = engine.failovers[-1].seconds
    return Rescue([done[name] for name in order], before, engine.ranks.size, seconds)


@dataclass(frozen=True)
class Reshuffle:
    """A way to get from one layout to the next: milliseconds to plan, part of the slots whose
    weights move, gigabytes that a GPU receives, and the busiest GPU over the mean after it."""

    name: str
    plan_ms: float
    moved: float
    gigabytes: float
    peak: float


def reshuffles(
    layers: int = 40, experts: int = 384, ranks: int = 64, slots: int = 448, expert_mb: float = 18.8
) -> list[Reshuffle]:
    """V4.1-Flash on 64 GPUs when a fifth of a Zipf load has gone to other experts; *derived*."""
    rng = np.random.default_rng(0)
    popular = 1e4 / np.arange(1, experts + 1) ** 0.5
    before = np.stack([rng.permutation(popular) for _ in range(layers)])
    later = 0.8 * before + 0.2 * np.stack([rng.permutation(row) for row in before])
    old = balance(before, ranks, slots)
    ways = {
        "keep the layout": lambda: old,
        "split copies anew": lambda: adjust(old, later, exchanges=0),
        "and a few exchanges": lambda: adjust(old, later, exchanges=8),
        "a layout from nothing": lambda: balance(later, ranks, slots),
    }
    out = []
    for name, plan in ways.items():
        took = []
        for _ in range(3):
            start = time.perf_counter()
            new = plan()
            took.append((time.perf_counter() - start) * 1e3)
        moved = len(moves(old, new))
        peak = float(peak_to_mean(new, later).mean())
        gigabytes = moved / ranks * expert_mb / 1e3
        out.append(Reshuffle(name, min(took), moved / old.slots.size, gigabytes, peak))
    return out


def reshuffle_table(ways: list[Reshuffle]) -> str:
    """What a new layout costs and gains, as text."""
    lines = [f"{'':<24}{'slots that move':>16}{'GB per GPU':>12}{'busiest GPU':>13}"]
    for way in ways:
        lines.append(f"{way.name:<24}{way.moved:>16.0%}{way.gigabytes:>12.2f}{way.peak:>13.2f}")
    return "\n".join(lines)
