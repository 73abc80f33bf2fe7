"""Real routes of the tiny model, and what ranks would get of them under mixes of traffic. For 04.

Routes are recorded once per domain; a mix then takes tokens of each in proportion. The first half
of a domain's texts is the *past*, which a layout is made from, the second the *future*, which it
is judged by.
"""

from dataclasses import dataclass

import numpy as np

from minimoe.bench.prompts import domain_prompts
from minimoe.course.routing import follow
from minimoe.model.transformer import Transformer
from minimoe.parallel.placement import Placement, balance, peak_to_mean
from minimoe.tokenizer import Tokenizer

MIXES = {  # parts of the tokens
    "coding": {"code": 0.7, "json": 0.2, "chat": 0.1},
    "agents": {"json": 0.6, "code": 0.4},
    "evening": {"story": 0.6, "chat": 0.4},
    "mixed": {"code": 0.25, "story": 0.25, "chat": 0.25, "json": 0.25},
}

LONGEST = 192  # tokens taken of one text: many texts say more about a domain than a few long ones


@dataclass(frozen=True)
class Traffic:
    """Expert ids `[L, N, K]` of N tokens of each domain, and the number of experts."""

    domains: dict[str, np.ndarray]
    experts: int

    def take(self, mix: dict[str, float], tokens: int) -> np.ndarray:
        """Ids `[L, tokens', K]`: the first tokens of each domain, in the proportions of the mix.

        Raises ValueError when a domain has too few.
        """
        parts = []
        for domain, part in mix.items():
            count, have = round(part * tokens), self.domains[domain].shape[1]
            if count > have:
                raise ValueError(f"{count} tokens of {domain} asked for, {have} recorded")
            parts.append(self.domains[domain][:, :count])
        return np.concatenate(parts, axis=1)

    def draw(self, mix: dict[str, float], tokens: int, rng) -> np.ndarray:
        """Ids `[L, tokens, K]` of tokens drawn at random, with repetition."""
        names = list(mix)
        which = rng.choice(len(names), tokens, p=[mix[name] for name in names])
        parts = []
        for number, name in enumerate(names):
            ids = self.domains[name]
            parts.append(ids[:, rng.integers(0, ids.shape[1], int((which == number).sum()))])
        return np.concatenate(parts, axis=1)[:, rng.permutation(tokens)]


def record(model: Transformer, tokenizer: Tokenizer, tokens: int) -> tuple[Traffic, Traffic]:
    """Follow about `tokens` tokens of each domain: (past, future), every other text in each."""
    halves: tuple[dict, dict] = ({}, {})
    for domain, texts in domain_prompts().items():
        for half, own in zip(halves, (texts[::2], texts[1::2]), strict=True):
            half[domain] = _follow_texts(model, tokenizer, own, tokens // 2)
    return tuple(Traffic(half, model.config.n_routed_experts) for half in halves)


def _follow_texts(model, tokenizer, texts: list[str], tokens: int) -> np.ndarray:
    """Ids `[L, tokens, K]` over the texts one after the other; fewer if they run out."""
    found, have = [], 0
    for text in texts:
        if have >= tokens:
            break
        ids = tokenizer.encode(text)[: min(LONGEST, tokens - have)]
        found.append(follow(model, ids).ids.numpy())
        have += len(ids)
    return np.concatenate(found, axis=1)


def count(ids: np.ndarray, experts: int) -> np.ndarray:
    """Ids `[L, T, K]` to tokens per expert, `[L, E]`."""
    return np.stack([np.bincount(layer.ravel(), minlength=experts) for layer in ids]).astype(float)


def chance_peak(ranks: int, K: int, experts: int, tokens: int, draws: int = 200) -> float:
    """Busiest rank over the mean when each token chooses K experts at random: nobody's fault.

    Mean over `draws` windows of so many tokens.
    """
    rng = np.random.default_rng(tokens)
    peaks = []
    for _ in range(draws):
        ids = rng.random((tokens, experts)).argpartition(K, axis=1)[:, :K]
        busy = np.bincount(ids.ravel() % ranks, minlength=ranks)
        peaks.append(busy.max() / busy.mean())
    return float(np.mean(peaks))


def peak_by_window(placement: Placement, ids: np.ndarray, tokens: int, windows: int = 40) -> float:
    """Busiest rank over the mean, mean over layers and windows of `tokens` neighbours of `ids`."""
    starts = range(0, ids.shape[1] - tokens + 1, tokens)
    peaks = [
        peak_to_mean(placement, count(ids[:, start : start + tokens], placement.experts)).mean()
        for start in list(starts)[:windows]
    ]
    return float(np.mean(peaks))


@dataclass(frozen=True)
class Drift:
    """Traffic that goes from one mix to another and back: loads per step, `[S, L, E]`."""

    loads: np.ndarray
    period: int
    batch: int

    def peaks(
        self, ranks: int, slots: int, interval: int, since: int = 2048, window: int = 32
    ) -> np.ndarray:
        """Busiest rank over the mean in each window of steps `since` one, mean over layers.

        Every `interval` steps a layout is made from the loads since the last one.
        """
        out, placement = [], None
        for start in range(max(since, interval), len(self.loads) - window + 1, window):
            if placement is None or start % interval == 0:
                past = self.loads[start // interval * interval - interval :][:interval]
                placement = balance(past.sum(0), ranks, slots)
            out.append(peak_to_mean(placement, self.loads[start : start + window].sum(0)).mean())
        return np.array(out)

    def kept(self, placement: Placement, since: int = 2048, window: int = 32) -> np.ndarray:
        """The same when one layout stays for good."""
        starts = range(since, len(self.loads) - window + 1, window)
        loads = (self.loads[start : start + window].sum(0) for start in starts)
        return np.array([peak_to_mean(placement, load).mean() for load in loads])


def drift(
    traffic: Traffic, first: str, second: str, steps: int, period: int, batch: int = 64
) -> Drift:
    """`batch` tokens a step, drawn from a mix that swings between two of MIXES once in `period`."""
    rng = np.random.default_rng(0)
    ids = {name: traffic.draw(MIXES[name], steps * batch, rng) for name in (first, second)}
    swing = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(steps) / period)  # part of the second mix
    later = rng.random((steps, batch)) < swing[:, None]
    layers, _, K = ids[first].shape
    both = np.where(later.reshape(1, -1, 1), ids[second], ids[first])  # [L, S * batch, K]
    step = np.repeat(np.arange(steps), batch)[None, :, None]
    cell = (step * layers + np.arange(layers)[:, None, None]) * traffic.experts + both
    loads = np.bincount(cell.ravel(), minlength=steps * layers * traffic.experts)
    return Drift(loads.reshape(steps, layers, -1).astype(float), period, batch)
