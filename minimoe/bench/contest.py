"""Ways to draft and check, measured in turn on the same weights and prompts: `Contest`."""

import gc
import math
import sys
import time
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from tqdm import tqdm

from minimoe import LLM, SamplingParams
from minimoe.bench.prompts import mixed_prompts
from minimoe.engine.cuda_graphs import CheckGraphs, DraftGraphs
from minimoe.errors import MinimoeError
from minimoe.speculative.rules import FixedLength, Rule, Threshold

LENGTHS = (1, 2, 3, 4, 5)  # fixed ones
PROMPT_SETS = 4  # of a load, used in turn, so that their prefill is mostly found
DOMAINS = 4
ROOM = 6  # times the tokens wanted: a fast request may run this far ahead
START = 64  # tokens that the first requests may make before the last is in decode


@dataclass
class Turn:
    """What one way did in one turn, while all requests were in decode."""

    seconds: float = 0.0
    tokens: int = 0
    steps: int = 0
    drafted_steps: int = 0
    request_steps: int = 0  # summed over requests
    checked: int = 0

    @property
    def tok_s(self) -> float:
        """Tokens per second of this turn."""
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Settings:
    """What is measured, and how often; `load` is the largest number of requests at once."""

    load: int
    model: str = "tiny-moe"
    device: str = "cpu"
    dtype: str = "float32"
    pairs: int = 15  # turns of each way
    new_tokens: int = 64  # of a request, on average
    prompt_tokens: int = 64
    method: str = "dspark"
    form: str = "priced"
    threshold: float = 0.5
    lengths: tuple[int, ...] = LENGTHS
    turn_tokens: int = 4096  # new tokens that are enough for a turn; shorter ones have parts

    @property
    def longest(self) -> int:
        """Positions that the fastest request may need."""
        return self.prompt_tokens + self.most_tokens + 16

    @property
    def most_tokens(self) -> int:
        """New tokens that the fastest request may make."""
        return START + ROOM * self.new_tokens

    def requests(self, load: int) -> int:
        """Requests of one part of a turn, `load` at a time: each domain as often as the others."""
        return math.lcm(load, DOMAINS)

    def parts(self, load: int) -> int:
        """Parts of a turn, one a set of prompts, so at most four."""
        wanted = self.turn_tokens / (self.requests(load) * self.new_tokens)
        return min(PROMPT_SETS, max(1, math.ceil(wanted)))


class Contest:
    """Two engines on the same weights: one plain, one with a drafter whose rule is exchanged."""

    def __init__(self, settings: Settings):
        self.settings, most = settings, settings.load
        limits = {
            "device": settings.device,
            "dtype": settings.dtype,
            "max_num_seqs": most,
            "max_num_batched_tokens": max(512, most * (1 + max(LENGTHS))),
            "max_model_len": settings.longest,
            "num_gpu_blocks_override": 3 * most * -(-settings.longest // 16),
        }
        config = {"method": settings.method, "scheduled": settings.form}
        self.plain = LLM(settings.model, **limits)
        self.drafting = LLM(settings.model, speculative_config=config, **limits)
        self.rules: dict[str, Rule] = {f"fixed {n}": FixedLength(n) for n in settings.lengths}
        self.rules["threshold"] = Threshold(max(LENGTHS), settings.threshold)
        self.ways = ["none", *self.rules, "scheduled"]
        self.length = self.drafting.engine.runner.drafter.length
        self._graphs: dict[int, tuple] = {}
        _ = self.budget  # takes the profile before anything else runs

    def run(self, load: int, temperature: float) -> dict[str, list[Turn]]:
        """Every way's turns, one a pair; a turn before the first is not counted."""
        turns: dict[str, list[Turn]] = {way: [] for way in self.ways}
        title = f"load {load}, T {temperature:g}"
        for pair in tqdm(range(-1, self.settings.pairs), title, file=sys.stderr, disable=None):
            for way, turn in self._pair(pair, load, temperature).items():
                if pair >= 0:
                    turns[way].append(turn)
        return turns

    def _pair(self, pair: int, load: int, temperature: float) -> dict[str, Turn]:
        """A turn of each way. Short turns have parts, and the ways take turns at each part: what
        slows the machine down for a second then slows all of them."""
        turns, parts = {way: Turn() for way in self.ways}, self.settings.parts(load)
        for number in range(pair * parts, (pair + 1) * parts):
            shift = number % len(self.ways)  # nobody is always first, or always after the same
            for way in self.ways[shift:] + self.ways[:shift]:
                self.turn(way, load, temperature, number % PROMPT_SETS, turns[way])
        return turns

    def turn(
        self, way: str, load: int, temperature: float, prompts: int = 0, turn: Turn | None = None
    ) -> Turn:
        """One way and one set of prompts, `load` requests at a time; added to `turn`, if given."""
        llm, turn = self.use(way), turn or Turn()
        params = SamplingParams(
            max_tokens=self.settings.most_tokens, temperature=temperature, ignore_eos=True
        )
        count = self.settings.requests(load)
        own = self._prompts(count)[prompts * count : (prompts + 1) * count]
        gc.collect()
        gc.disable()
        try:
            for start in range(0, count, load):
                _decode(llm, own[start : start + load], params, self.settings.new_tokens, turn)
        finally:
            gc.enable()
        return turn

    @cache  # noqa: B019 - a contest lives as long as its process
    def _prompts(self, count: int) -> list[list[int]]:
        settings = self.settings
        return mixed_prompts(settings.model, PROMPT_SETS * count, settings.prompt_tokens)

    def use(self, way: str) -> LLM:
        """The engine of a way, its rule in place."""
        if way == "none":
            return self.plain
        if way not in self.ways:
            raise MinimoeError(f"no way {way!r}: it must be one of {', '.join(self.ways)}")
        rule = self.budget if way == "scheduled" else self.rules[way]
        self.drafting.engine.speculation.budget = rule
        self._draft_only(min(rule.length, self.length))
        return self.drafting

    def _draft_only(self, length: int) -> None:
        """Make the drafter guess `length` tokens, as an engine set up for that would; on a GPU it
        has graphs of its own for each length."""
        runner = self.drafting.engine.runner
        runner.drafter.length = length
        if not runner.draft_graphs:
            return
        self._graphs.setdefault(self.length, (runner.draft_graphs, runner.check_graphs))
        if length not in self._graphs:
            drafts, checks = self._graphs[self.length]
            most, capture = drafts.sizes[-1], drafts._capture
            self._graphs[length] = (
                DraftGraphs(runner.drafter, drafts.tables, most, capture),
                CheckGraphs(length, checks.vocab, most, checks.device, capture),
            )
        runner.draft_graphs, runner.check_graphs = self._graphs[length]

    @cached_property
    def budget(self) -> Rule:
        """The engine's own budget, from a profile that the engine takes of itself."""
        speculation = self.drafting.engine.speculation
        made = speculation.budget
        return made if isinstance(made, Rule) else made()

    def step_times(self) -> dict:
        """The profile that the budget works with, as JSON."""
        return self.budget.times.to_dict()


def _decode(llm: LLM, prompts: list, params: SamplingParams, new_tokens: int, turn: Turn) -> None:
    """Start the requests, and once all are in decode, count until they made their tokens."""
    engine = llm.engine
    requests = [engine.add_request(f"bench-{i}", ids, params) for i, ids in enumerate(prompts)]
    seqs = [request.seq for request in requests]
    _start(llm, seqs)
    before, checked = sum(len(seq.tokens) for seq in seqs), sum(s.metrics.checked for s in seqs)
    drafted = [seq.metrics.drafted for seq in seqs]
    goal = before + new_tokens * len(seqs)
    steps = turn.steps
    _wait(llm)
    start = time.perf_counter()
    while (made := sum(len(seq.tokens) for seq in seqs)) < goal:
        engine.step()
        turn.steps += 1
        now = [seq.metrics.drafted for seq in seqs]
        turn.drafted_steps += now != drafted
        drafted = now
    _wait(llm)
    turn.seconds += time.perf_counter() - start
    turn.tokens += made - before
    turn.request_steps += (turn.steps - steps) * len(seqs)
    turn.checked += sum(seq.metrics.checked for seq in seqs) - checked
    for request in requests:
        engine.abort_request(request.seq.request_id)


def _start(llm: LLM, seqs: list) -> None:
    """Step until all are in decode. No way drafts meanwhile: the first requests would run ahead of
    the last, further than those of a slower way, and take the tokens that prompts need."""
    speculation = llm.engine.speculation
    if speculation:
        rule, speculation.budget = speculation.budget, FixedLength(0)
    try:
        while any(seq.num_remaining > 1 or not seq.output_ids for seq in seqs):
            if any(seq.finish_reason for seq in seqs):
                raise MinimoeError(
                    f"a request ended before all {len(seqs)} were in decode: a lower load, or "
                    "shorter prompts"
                )
            llm.engine.step()
    finally:
        if speculation:
            speculation.budget = rule


def _wait(llm: LLM) -> None:
    if llm.model.device.type == "cuda":
        torch.cuda.synchronize()
