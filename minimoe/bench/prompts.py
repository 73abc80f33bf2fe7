"""Prompts for measurements: real text of our four domains, cut to an exact number of tokens."""

import json
from functools import cache
from itertools import chain, cycle, islice

from minimoe.checkpoint import checkpoint_folder
from minimoe.config import SHIPPED
from minimoe.errors import MinimoeError
from minimoe.tokenizer import Tokenizer

PROMPTS = SHIPPED / "prompts.json"


@cache
def domain_prompts() -> dict[str, list[str]]:
    """{"code": [...], "story": [...], "chat": [...], "json": [...]}, by training/prompts.py."""
    return json.loads(PROMPTS.read_text(encoding="utf-8"))


def mixed_prompts(model: str, count: int, tokens: int) -> list[list[int]]:
    """`count` prompts of exactly `tokens` ids, the domains in turn, no two alike."""
    if count < 1 or tokens < 1:
        raise MinimoeError(f"{count} prompts of {tokens} tokens: both must be 1 or more")
    tokenizer = Tokenizer(checkpoint_folder(model))
    texts = [text for group in zip(*domain_prompts().values(), strict=True) for text in group]
    ids = [tokenizer.encode(text) for text in texts]
    return [_cut(ids, start, tokens, tokenizer.bos_id) for start in range(count)]


def _cut(ids: list[list[int]], start: int, tokens: int, bos: int) -> list[int]:
    """Begin with text `start`; go on with texts of the same domain, four further on."""
    rounds = start // len(ids)
    order = (ids[i % len(ids)] for i in range(start, start + 4 * len(ids), 4))
    stream = chain.from_iterable(cycle(list(order)))
    return [bos, *islice(stream, rounds, rounds + tokens - 1)]
