"""A reader's own guesses in the engine: what an exercise of 05 plugs in as a `Drafter`."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral

import torch

from minimoe import LLM, SamplingParams
from minimoe.errors import MinimoeError
from minimoe.speculative.acceptance import matching
from minimoe.speculative.drafter import Draft, Drafter
from minimoe.speculative.prompt_lookup import find_naive

MOST = 5  # guesses for each request and pass


def fault(ids) -> str | None:
    """What is wrong with one answer of a reader's `guess`, or None."""
    if not isinstance(ids, list | tuple) or not all(isinstance(one, Integral) for one in ids):
        return f"give a list of token ids, not {ids!r}"
    if len(ids) > MOST:
        return f"a pass checks at most {MOST} guesses, {len(ids)} came"
    return None


class OwnDrafter(Drafter):
    """Asks `guess(tokens)`, a list of at most MOST ids, for each request. Raises MinimoeError for
    any other answer."""

    name, length = "own", MOST

    def __init__(self, guess: Callable):
        self.guess = guess

    def propose(self, seqs: list, step=None) -> Draft:
        made = [self.guess(list(seq.tokens)) for seq in seqs]
        wrong = next(filter(None, map(fault, made)), None)
        if wrong:
            raise MinimoeError(f"the guesser's answer cannot be used: {wrong}")
        padded = [[*ids, *[0] * (MOST - len(ids))] for ids in made]  # [B, MOST]
        return Draft(torch.tensor(padded, dtype=torch.long), [len(ids) for ids in made])


@dataclass(frozen=True)
class Served:
    """What the engine made: token ids by prompt, and tokens of a decode pass by domain."""

    texts: list[list[int]]
    per_pass: dict[str, float]


def serve(guess: Callable | None, by_domain: dict, params: SamplingParams) -> Served:
    """Each domain's prompts at once, with a reader's guesses, or without any.

    The pass that reads the prompt makes one token in any case and is left out.
    """
    config = guess and {"drafter": OwnDrafter(guess), "scheduled": False}
    llm = LLM("tiny-moe", device="cpu", speculative_config=config, enable_prefix_caching=False)
    texts, per_pass = [], {}
    for name, prompts in by_domain.items():
        done = llm.generate(prompts, params)
        made = [one.outputs[0].token_ids for one in done]
        tokens = sum(len(ids) - 1 for ids in made)
        per_pass[name] = tokens / sum(one.metrics.steps - 1 for one in done)
        texts += made
    return Served(texts, per_pass)


def three_or_none(tokens: list[int]) -> list[int]:
    """What followed the last three tokens the last time: nothing where they never stood before."""
    return find_naive(tokens, MOST, 3, 3)


@dataclass(frozen=True)
class Pass:
    """One pass over a text that is known: where it began, what was guessed, how much stayed."""

    place: int
    guess: list[int]
    kept: int


def passes(guess: Callable, text: list[int], start: int) -> list[Pass]:
    """The passes that a model which says just `text` would take from `start` to the end of it."""
    made, place = [], start
    while place < len(text):
        ids = guess(text[:place])
        kept = matching(text[place:], list(ids)[: len(text) - place - 1])
        made.append(Pass(place, list(ids), kept))
        place += kept + 1
    return made
