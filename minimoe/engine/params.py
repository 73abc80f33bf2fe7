"""`SamplingParams`: how one request wants its tokens chosen, and when it ends."""

import math
from dataclasses import dataclass, field

from minimoe.errors import MinimoeError


@dataclass
class SamplingParams:
    """Names and meaning follow vLLM's class of the same name.

    Args:
        max_tokens: at most this many new tokens; None for as many as the context holds.
        temperature: logits are divided by it; 0 takes the most likely token (greedy).
        top_k: keep the k most likely tokens; 0 or -1 keeps all.
        top_p: of those, keep the most likely ones until their probability reaches top_p.
        min_p: of those, keep tokens at least min_p times as likely as the likeliest.
        seed: same seed, same tokens, whoever shares the batch; None draws one from the engine's.
        stop: strings that end the text; they are not part of it.
        stop_token_ids: tokens that end the text, besides the model's own end token.
        ignore_eos: go on after the model's end token.
        logprobs: report log probabilities of this many likeliest tokens, and of the chosen one.
        cache_salt: requests share cached prefixes only with requests of the same salt.

    Raises MinimoeError for a value out of range.
    """

    max_tokens: int | None = 16
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] = field(default_factory=list)
    stop_token_ids: list[int] = field(default_factory=list)
    ignore_eos: bool = False
    logprobs: int | None = None
    cache_salt: str | None = None

    def __post_init__(self):
        self.stop = [self.stop] if isinstance(self.stop, str) else _as_list("stop", self.stop)
        self.stop_token_ids = _as_list("stop_token_ids", self.stop_token_ids)
        self._check_counts()
        self._check_shares()
        self._check_stops()

    @property
    def greedy(self) -> bool:
        """Temperature 0: the most likely token, without chance."""
        return self.temperature == 0.0

    @property
    def filters(self) -> bool:
        """True when some tokens may be cut before drawing."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0

    def _check_counts(self) -> None:
        counts = {
            "max_tokens": (self.max_tokens, 1, 2**31, "1 or more, or None"),
            "top_k": (self.top_k, -1, 2**31, "1 or more, or 0 for all tokens"),
            "logprobs": (self.logprobs, 0, 2**31, "0 or more, or None"),
            "seed": (self.seed, -(2**63), 2**63, "of at most 64 bits, or None"),
        }
        for name, (value, low, end, allowed) in counts.items():
            optional = value is None and name != "top_k"
            whole = isinstance(value, int) and not isinstance(value, bool)
            good = optional or (whole and low <= value < end)
            _require(value, name, good, f"a whole number, {allowed}")

    def _check_shares(self) -> None:
        for name in ("temperature", "top_p", "min_p"):
            value = getattr(self, name)
            _require(value, name, isinstance(value, int | float), "a number")
        t = self.temperature
        _require(t, "temperature", math.isfinite(t) and t >= 0, "0 (greedy) or more, and finite")
        _require(self.top_p, "top_p", 0 < self.top_p <= 1, "above 0 and at most 1")
        _require(self.min_p, "min_p", 0 <= self.min_p <= 1, "between 0 and 1")

    def _check_stops(self) -> None:
        for stop in self.stop:
            good = isinstance(stop, str) and stop != ""
            _require(stop, "stop", good, "a non-empty string, or a list of such")
        for token in self.stop_token_ids:
            _require(token, "stop_token_ids", isinstance(token, int), "a list of token ids")
        salt = self.cache_salt
        _require(salt, "cache_salt", salt is None or isinstance(salt, str), "a string or None")


def _as_list(name: str, value) -> list:
    _require(value, name, value is None or isinstance(value, list | tuple), "a list")
    return list(value or [])


def _require(value, name: str, holds: bool, allowed: str) -> None:
    if not holds:
        raise MinimoeError(f"{name} is {value!r}: it must be {allowed}")
