"""Targets and drafters that are tables, and drafters that know the answer, for exact tests."""

import itertools
import random

import torch
from models import small_config

from minimoe.engine.engine import Engine
from minimoe.engine.params import SamplingParams
from minimoe.ops.sampling import probabilities
from minimoe.speculative.chances import Chances
from minimoe.speculative.drafter import Draft, Drafter
from minimoe.speculative.rules import FixedLength
from minimoe.speculative.step_times import StepTimes


class NoText:
    """A tokenizer for token ids without text."""

    vocab_size = 10**6

    def stream(self):
        return self

    def push(self, ids):
        return ""

    def flush(self):
        return ""


def random_table(vocab: int, seed: int, sharp: float = 1.5) -> torch.Tensor:
    """Logits `[V, V]` of what follows each token."""
    numbers = torch.Generator().manual_seed(seed)
    return sharp * torch.randn(vocab, vocab, generator=numbers, dtype=torch.float64)


class TableModel:
    """A target whose logits are a row of a table: that of the token before."""

    device, dtype = torch.device("cpu"), torch.float64

    def __init__(self, table: torch.Tensor):
        self.table = table
        self.config = small_config(vocab_size=len(table), eos_token_id=len(table))

    def new_kv(self, blocks, block_size):
        return torch.zeros(1, blocks, block_size, 1, dtype=self.dtype)

    def pages(self, plane):
        return []

    def forward(self, step, pages):
        ids = step.ids if step.logit_rows is None else step.ids[step.logit_rows]
        return self.table[ids].clone()


class TableDrafter(Drafter):
    """Draws from a table of its own; its confidence is the true chance that a draft stays."""

    name = "table"

    def __init__(self, table: torch.Tensor, target: torch.Tensor, length: int = 3):
        self.table, self.length = table, length
        self.chance = torch.minimum(table.softmax(-1), target.softmax(-1)).sum(-1)  # [V]

    def propose(self, seqs, step):
        tokens = [torch.tensor([seq.tokens[-1] for seq in seqs])]
        chances = Chances(seqs, self.length, len(self.table), "cpu")
        for place in range(self.length):
            tokens.append(chances.draw(place, self.table[tokens[-1]]))
        confidence = self.chance[torch.stack(tokens[:-1], 1)]
        probs = torch.stack(chances.q, 1) if chances.q else None
        return Draft(torch.stack(tokens[1:], 1), [self.length] * len(seqs), probs, confidence)


class KnowingDrafter(Drafter):
    """Knows each prompt's continuation and gets a guess wrong now and then."""

    name = "knowing"

    def __init__(self, answers: dict, length: int = 5, wrong: float = 0.3, ragged: bool = False):
        self.answers, self.length, self.wrong, self.ragged = answers, length, wrong, ragged
        self.random, self.learned = random.Random(0), []

    def propose(self, seqs, step):
        ids, lengths = [], []
        for seq in seqs:
            answer = self.answers[tuple(seq.prompt_ids)]
            made = len(seq.tokens) - len(seq.prompt_ids)
            guess = (answer + [0] * 99)[made : made + self.length]
            ids.append([t + 1 if self.random.random() < self.wrong else t for t in guess])
            lengths.append(self.random.randint(0, self.length) if self.ragged else self.length)
        confidence = torch.rand(len(seqs), self.length, generator=torch.manual_seed(len(seqs)))
        return Draft(torch.tensor(ids), lengths, confidence=confidence)

    def learn(self, seq, checked, accepted):
        self.learned.append((checked, accepted))


def step_times(seqs: int = 64) -> StepTimes:
    """Checks that pay at first and later do not, whether requests are few or many."""
    drafted = {(1, 1): 1.1, (1, 2): 1.2, (1, 3): 1.4, (1, 6): 2.5}
    drafted |= {(seqs, seqs): 2.2, (seqs, 2 * seqs): 3.0, (seqs, 6 * seqs): 9.0}
    return StepTimes({1: 1.0, seqs: 2.0}, drafted)


def table_engine(table, drafter, rule=None, **limits) -> Engine:
    settings = {
        "max_model_len": 64,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 512,
        "num_blocks": 256,
        "seed": 0,
        "enable_prefix_caching": False,
    }
    rule = rule or FixedLength(drafter.length)
    engine = Engine(
        TableModel(table) if isinstance(table, torch.Tensor) else table,
        NoText(),
        **{**settings, **limits},
        drafter=drafter,
        make_budget=lambda profile: rule,
    )
    return engine


def exact_law(next_logits, prompt: list[int], vocab: int, params: SamplingParams, length: int):
    """P of each continuation of `length` tokens, `[V ** length]`; `next_logits(ids)` is `[V]`."""
    law = []
    for tokens in itertools.product(range(vocab), repeat=length):
        chance = 1.0
        for i, token in enumerate(tokens):
            if chance > 0:
                logits = next_logits([*prompt, *tokens[:i]])
                chance *= float(probabilities(logits[None], [params])[0, token])
        law.append(chance)
    return torch.tensor(law, dtype=torch.float64)


def law_of(outputs: list, vocab: int, length: int) -> torch.Tensor:
    """How often each continuation came out, `[V ** length]`."""
    ids = torch.tensor([out.outputs[0].token_ids for out in outputs])
    index = (ids * vocab ** torch.arange(length - 1, -1, -1)).sum(1)
    return torch.bincount(index, minlength=vocab**length)
