"""What `generate` returns; the names follow vLLM."""

from dataclasses import dataclass

from minimoe.engine.sequence import Metrics


@dataclass
class CompletionOutput:
    """The generated part. `logprobs` has one dict, token id to log probability, per token."""

    text: str
    token_ids: list[int]
    finish_reason: str | None  # "stop", "length", "abort", "error"; None before
    logprobs: list[dict[int, float]] | None = None


@dataclass
class RequestOutput:
    """One request's result; `outputs` has one element, as in vLLM for n = 1."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int
    metrics: Metrics

    @property
    def finished(self) -> bool:
        """Has the request ended, for whatever reason?"""
        return self.outputs[0].finish_reason is not None
