"""Experiments of 05: guesses checked by hand, rules on small distributions, our drafter's own p and
q, experts hit, and the engine's speed with and without guesses."""

import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from minimoe import LLM, SamplingParams
from minimoe.bench.prompts import domain_prompts
from minimoe.bench.speculative import saved_rows
from minimoe.config import SHIPPED
from minimoe.course.acceptance_lab import p_value
from minimoe.course.routing import follow
from minimoe.model.transformer import Transformer
from minimoe.speculative.acceptance import overlap, overlap_of_match
from minimoe.speculative.dspark import DSpark, hidden_and_taps

DRAFTER = SHIPPED / "tiny-moe-dspark"


@dataclass(frozen=True)
class Checked:
    """A guess beside what the model says: tokens as text, and how many leading ones stand."""

    guess: list[str]
    said: list[str]  # one more than `guess`: the token after it
    stand: int

    @property
    def made(self) -> str:
        """The text that this one pass adds: guesses that stand, and one of the model's own."""
        return "".join(self.guess[: self.stand]) + self.said[self.stand]


@torch.no_grad()
def check_guess(llm: LLM, text: str, guess: str) -> Checked:
    """Run the model once over `text` and `guess` together; greedy choices at every position."""
    start = llm.tokenizer.encode(text, bos=True)
    ids = llm.tokenizer.encode(guess)
    logits = llm.model.textbook(torch.tensor([start + ids]))[0]  # [S, V]
    said = logits[len(start) - 1 :].argmax(-1).tolist()
    stand = 0
    while stand < len(ids) and ids[stand] == said[stand]:
        stand += 1
    words = [[llm.tokenizer.decode([i], skip_special=False) for i in own] for own in (ids, said)]
    return Checked(*words, stand)


def prompts(llm: LLM, count: int, tokens: int = 96) -> dict[str, list[list[int]]]:
    """The first `count` prompts of each domain, at most `tokens` ids each."""
    encode = llm.tokenizer.encode
    return {
        name: [encode(text, bos=True)[:tokens] for text in texts[:count]]
        for name, texts in domain_prompts().items()
    }


def tokens_per_pass(llm: LLM, by_domain: dict, params: SamplingParams) -> dict[str, float]:
    """Tokens that a decode pass of the engine makes, by domain; the prefill pass is left out."""
    found = {}
    for name, ids in by_domain.items():
        done = llm.generate(ids, params)
        tokens = sum(len(one.outputs[0].token_ids) - 1 for one in done)
        found[name] = tokens / sum(one.metrics.steps - 1 for one in done)
    return found


def texts(llm: LLM, by_domain: dict, params: SamplingParams) -> list[list[int]]:
    """Token ids that the engine makes of all prompts."""
    done = llm.generate([ids for group in by_domain.values() for ids in group], params)
    return [one.outputs[0].token_ids for one in done]


def count(rule: Callable, p, q, samples: int, seed: int = 0) -> np.ndarray:
    """How often `rule(p, q, random)` gives each token."""
    random = np.random.default_rng(seed)
    drawn = [rule(p, q, random) for _ in range(samples)]
    return np.bincount(drawn, minlength=len(p))


def chi_square(counts: np.ndarray, p: np.ndarray) -> float:
    """Distance of counts from what `p` would give: about one less than the number of tokens when
    they agree, infinite when a token came up that `p` rules out."""
    possible = p > 0
    if counts[~possible].any():
        return math.inf
    expected = p[possible] * counts.sum()
    return float(((counts[possible] - expected) ** 2 / expected).sum())


def verdict(counts: np.ndarray, p: np.ndarray) -> str:
    """Shares, chi-square and what to make of it: NOT p where chance gives as much once in 22,000.
    With three tokens that is a chi-square of 20: their odds are exp(-chi / 2)."""
    chi, odds = chi_square(counts, p), p_value(torch.as_tensor(counts), torch.as_tensor(p))
    shares = " ".join(f"{share:.3f}" for share in counts / counts.sum())
    return f"{shares}   chi-square {chi:8.1f}   {'follows p' if odds > 1 / 22_000 else 'NOT p'}"


@dataclass(frozen=True)
class Pairs:
    """What target and drafter say at the same places: `p`, `q` `[A, G, V]`."""

    p: torch.Tensor
    q: torch.Tensor


@torch.no_grad()
def pairs(model: Transformer, dspark: DSpark, ids: list[int], every: int = 4) -> Pairs:
    """p and q of blocks behind anchors in a text, at temperature 1."""
    ids, G = torch.tensor([ids]), dspark.config.length
    anchors = torch.arange(16, ids.shape[1] - G, every)[None]  # [1, A]
    hidden, taps = hidden_and_taps(model, ids, dspark.config.taps)
    at = anchors[0][:, None] + torch.arange(G)  # [A, G]
    drafted = dspark(model.embed.weight, model.turns(ids.device), taps, ids, anchors)[0]
    logits = dspark.logits(drafted, ids[0][at], model.head.weight)
    p = torch.softmax(model.head(hidden[0, at]), -1)
    return Pairs(p, torch.softmax(logits, -1))


def kept_by_both_rules(found: Pairs, most: int = 12) -> tuple[float, float]:
    """Mean chance that the first guess stays: by rejection, and with shared noise (exact)."""
    p, q = found.p[:most, 0].double(), found.q[:most, 0].double()
    return float(overlap(p, q).mean()), float(overlap_of_match(p, q).mean())


def training_record() -> dict:
    """What the training of the shipped drafter measured on held-out prompts, on an H200."""
    return json.loads((DRAFTER / "training.json").read_text(encoding="utf-8"))


def saved_speeds(temperature: float) -> dict[int, dict]:
    """Rows of `bench speculative` on an H200, by requests at once."""
    return saved_rows(temperature)


def acceptance(record: dict, drafter: str = "main", temperature: int = 1) -> dict[str, list]:
    """Chance by position that a draft stays if all before it did, by domain."""
    rows = record["results"][drafter][f"T={temperature}"]
    return {name: row["by_position"] for name, row in rows.items() if name != "mean"}


def routes(model: Transformer, texts: list[list[int]]) -> list[torch.Tensor]:
    """The experts that each token of each text chose, `[L, T, K]` for each text."""
    return [follow(model, ids).ids for ids in texts]


def distinct_experts(chosen: list[torch.Tensor], tokens: int) -> list[float]:
    """Experts that a step hits in a layer, on average, when each request brings `tokens` tokens:
    for 1, 2, 4 ... requests, as many as `chosen` (from `routes`) has texts."""
    random = np.random.default_rng(0)
    found, load = [], 1
    while load <= len(chosen):
        found.append(statistics.mean(_union(chosen, load, tokens, random) for _ in range(12)))
        load *= 2
    return found


def _union(chosen: list, load: int, tokens: int, random) -> float:
    """Distinct experts of one step of `load` requests, each at a random place of its text."""
    parts = []
    for which in random.choice(len(chosen), size=load, replace=False):
        start = random.integers(chosen[which].shape[1] - tokens)
        parts.append(chosen[which][:, start : start + tokens])
    step = torch.cat(parts, dim=1)  # [L, load * tokens, K]
    return statistics.mean(len(layer.unique()) for layer in step)


def race(engines: dict[str, LLM], ids: list[list[int]], loads, params, rounds: int = 3):
    """Tokens per second of each engine at each load, `{name: [rate by load]}`: all prompts, `load`
    of them at once.

    The engines take turns, so that whatever else the machine does hits all of them; medians.
    """
    rates: dict[str, list[float]] = {name: [] for name in engines}
    for load in loads:
        seconds: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(rounds):
            for name, llm in engines.items():
                start = time.perf_counter()
                for first in range(0, len(ids), load):
                    llm.generate(ids[first : first + load], params)
                seconds[name].append(time.perf_counter() - start)
        for name, spent in seconds.items():
            rates[name].append(len(ids) * params.max_tokens / statistics.median(spent))
    return rates
