"""`Admission`: requests as they come in and go out, whoever runs them in between."""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from minimoe.config import ModelConfig
from minimoe.engine.outputs import CompletionOutput, RequestOutput
from minimoe.engine.params import SamplingParams
from minimoe.engine.prompt import prompt_ids
from minimoe.engine.sequence import Sequence
from minimoe.engine.text import TextOutput
from minimoe.errors import EngineError, MinimoeError
from minimoe.tokenizer import Tokenizer

BLOCK_SIZE = 16


@dataclass
class Request:
    """A sequence with its text and the prompt as it was given."""

    seq: Sequence
    text: TextOutput
    prompt: str | None

    def raise_error(self) -> None:
        """Raise EngineError if the request ended by one."""
        if self.seq.finish_reason == "error":
            raise EngineError(
                f"logits of request {self.seq.request_id!r} are not finite numbers: the weights "
                "are damaged or the dtype overflows; try dtype='float32'"
            )

    def output(self) -> RequestOutput:
        """The request's state so far."""
        seq = self.seq
        completion = CompletionOutput(
            text=self.text.text,
            token_ids=seq.output_ids,
            finish_reason=seq.finish_reason,
            logprobs=None if seq.params.logprobs is None else list(seq.logprobs),
        )
        return RequestOutput(
            seq.request_id,
            self.prompt,
            seq.prompt_ids,
            [completion],
            seq.num_cached,
            seq.metrics,
        )


class Admission:
    """Requests by id: each is checked, given a number and a seed, and handed to the scheduler.

    scheduler: has `add(seq)`, `finish(seq, reason)` and `has_unfinished`. num_blocks: KV blocks
    that one request may fill.
    """

    def __init__(
        self,
        scheduler,
        tokenizer: Tokenizer,
        config: ModelConfig,
        max_model_len: int,
        num_blocks: int,
        seed: int,
    ):
        self.scheduler, self.tokenizer = scheduler, tokenizer
        self.vocab_size = config.vocab_size
        self.max_model_len, self.num_blocks = max_model_len, num_blocks
        self._requests: dict[str, Request] = {}
        self._arrivals = 0
        self._seeds = torch.Generator().manual_seed(seed)

    def add_request(
        self,
        request_id: str,
        prompt: str | list[int],
        params: SamplingParams | None = None,
    ) -> Request:
        """Queue a request. Raises MinimoeError for a prompt that can never be served."""
        params = params or SamplingParams()
        if not isinstance(params, SamplingParams):
            raise MinimoeError(f"params is a {type(params).__name__}: give SamplingParams")
        if request_id in self._requests:
            raise MinimoeError(f"request id {request_id!r} is in use: choose another")
        ids = self._prompt_ids(prompt)
        seq = Sequence(
            request_id=request_id,
            prompt_ids=ids,
            params=params,
            max_total=self._max_total(ids, params),
            seed=self._draw_seed() if params.seed is None else params.seed,
            arrival=self._arrivals,
        )
        self._arrivals += 1
        text = TextOutput(self.tokenizer, params.stop)
        request = Request(seq, text, prompt if isinstance(prompt, str) else None)
        self.scheduler.add(seq)
        self._requests[request_id] = request
        return request

    def has_unfinished_requests(self) -> bool:
        """Is any request waiting or running?"""
        return self.scheduler.has_unfinished

    def abort_request(self, request_id: str) -> None:
        """End a request now and free its blocks; an id that is not known is no error."""
        if request_id in self._requests:
            self._end(self._requests[request_id].seq, "abort")

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End all of these, also when a drafter's `forget` fails for some."""
        with ExitStack() as aborts:
            for request_id in request_ids:
                aborts.callback(self.abort_request, request_id)

    def _end(self, seq: Sequence, reason: str) -> None:
        self.scheduler.finish(seq, reason)
        del self._requests[seq.request_id]

    def _draw_seed(self) -> int:
        return int(torch.randint(2**62, (), generator=self._seeds))

    def _prompt_ids(self, prompt) -> list[int]:
        return prompt_ids(prompt, self.tokenizer, self.vocab_size, self.max_model_len)

    def _max_total(self, ids: list[int], params: SamplingParams) -> int:
        """Where the request ends at the latest; it must fit into the pool on its own."""
        wanted = self.max_model_len if params.max_tokens is None else len(ids) + params.max_tokens
        total = min(wanted, self.max_model_len)
        blocks = -(-(total - 1) // BLOCK_SIZE)  # the last token's KV is never written
        if blocks > self.num_blocks:
            raise MinimoeError(
                f"the request may need {blocks} KV blocks of {BLOCK_SIZE} tokens and the pool has "
                f"{self.num_blocks}: lower max_tokens or raise num_gpu_blocks_override"
            )
        return total
