"""`LLM`: the public face. Load a model, generate, chat, stream."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import torch

from minimoe.config import SHIPPED, ModelConfig
from minimoe.engine.admission import BLOCK_SIZE, Request
from minimoe.engine.arguments import (
    as_prompts,
    check_device,
    check_dtype,
    checked_length,
    per_prompt,
    require_positive,
)
from minimoe.engine.engine import Engine
from minimoe.engine.interrupts import Interrupts
from minimoe.engine.outputs import RequestOutput
from minimoe.engine.params import SamplingParams
from minimoe.engine.speculative_config import SpeculativeConfig
from minimoe.engine.wide import is_wide, limit_of, wide_model
from minimoe.errors import MinimoeError
from minimoe.model.serving import ServingModel
from minimoe.model.transformer import Transformer
from minimoe.tokenizer import Tokenizer

POOL_BYTES = 256 * 2**20  # of KV cache on a CPU, unless one long request needs more


class LLM:
    """A model behind a continuous-batching engine; the arguments are named as in vLLM.

    Args:
        model: a shipped name such as "tiny-moe"; "wide", random weights many times the size of the
            last-level cache, to see memory-bound decode ("wide:1.5": at most 1.5 GiB of them); or a
            folder in Hugging Face layout.
        device: "cpu", "cuda" or None for CUDA if there is one.
        dtype: "float32", "float64", "bfloat16" or "float16".
        max_model_len: prompt and output together, in tokens; None for what the model was made for.
        max_num_seqs: at most this many requests run at once.
        max_num_batched_tokens: tokens in one step; longer prompts are computed in chunks.
        num_gpu_blocks_override: KV blocks of 16 tokens in the pool; None for a pool that fits.
        seed: of requests that bring none.
        enable_prefix_caching: keep computed prefixes and share them between requests, in whole
            blocks of 16 tokens: a shorter common prefix is computed again.
        kv_store: a folder for the shared store on disk, which other processes may use at the same
            time; or a dict with "folder" and any of "quota_bytes", "retention" (seconds by class)
            and "kind" (the class of this engine's requests).
        speculative_config: guess tokens and check several in one pass; texts stay as they are, or,
            for draws without a seed, as likely as they are. A dict such as {"method": "dspark",
            "num_speculative_tokens": 5, "scheduled": True}; see `SpeculativeConfig`.
        expert_parallel_size: P processes that share the experts, each with its own requests;
            limits of requests, tokens and blocks are then those of each process.
        expert_parallel_config: spare slots, time-outs and more; see `ExpertParallelConfig`.

    Raises MinimoeError for an unknown model, device, dtype or limit, CheckpointError for a damaged
    checkpoint.
    """

    def __init__(
        self,
        model: str | Path = "tiny-moe",
        device: str | None = None,
        dtype: str = "float32",
        max_model_len: int | None = None,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 512,
        num_gpu_blocks_override: int | None = None,
        seed: int = 0,
        enable_prefix_caching: bool = True,
        kv_store: str | Path | dict | None = None,
        speculative_config: dict | None = None,
        expert_parallel_size: int = 1,
        expert_parallel_config: dict | None = None,
    ):
        options = {name: value for name, value in locals().items() if name != "self"}
        size, settings = (options.pop(f"expert_parallel_{name}") for name in ("size", "config"))
        require_positive(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            num_gpu_blocks_override=num_gpu_blocks_override,
            expert_parallel_size=size,
        )
        if kv_store is not None and not enable_prefix_caching:
            raise MinimoeError("kv_store needs prefix caching: leave enable_prefix_caching on")
        self._ids = itertools.count()
        if settings or (size or 1) > 1:
            self._start_ranks(size or 1, settings, options)
        else:
            self._start_here(**options)

    def _start_here(
        self,
        model,
        device,
        dtype,
        max_model_len,
        num_gpu_blocks_override,
        kv_store,
        speculative_config,
        **limits,
    ) -> None:
        speculative = None
        if speculative_config is not None:
            speculative = SpeculativeConfig.of(speculative_config)
        textbook, folder = _load(model, check_dtype(dtype), check_device(device))
        self.config: ModelConfig = textbook.config
        self.tokenizer = Tokenizer(folder)
        max_model_len = checked_length(max_model_len, self.config)
        self.model = ServingModel(textbook)
        drafter = speculative.make_drafter(self.model, model) if speculative else None
        most = limits["max_num_seqs"]
        blocks = num_gpu_blocks_override or _pool_blocks(self.model, max_model_len, most)
        self.engine = Engine(
            self.model,
            self.tokenizer,
            max_model_len=max_model_len,
            num_blocks=blocks,
            fingerprint=_fingerprint(model, folder, self.config, dtype, drafter)
            if kv_store is not None
            else "",
            kv_store=kv_store,
            drafter=drafter,
            make_budget=speculative and speculative.make_budget,
            **limits,
        )

    def _start_ranks(self, size: int, settings: dict | None, options: dict) -> None:
        """The model is then in the ranks, and `model` is None here."""
        from minimoe.engine.expert_parallel import start_parallel

        options["device"] = check_device(options["device"])
        check_dtype(options["dtype"])
        if options["speculative_config"] is not None:
            SpeculativeConfig.of(options["speculative_config"])
        self.model = None
        self.config, self.tokenizer, self.engine = start_parallel(size, settings, options)

    def generate(
        self,
        prompts: str | list,
        params: SamplingParams | list[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Complete prompts, each a text or a list of token ids; results in the same order.

        If anything fails, Ctrl-C included, all requests of this call are aborted and their blocks
        freed before the exception goes on. Raises MinimoeError for a bad prompt, EngineError when
        logits are not numbers.
        """
        prompts = as_prompts(prompts)
        pairs = list(zip(prompts, per_prompt(params, prompts), strict=True))
        requests: list[Request] = []
        with Interrupts() as interrupts:
            try:
                for prompt, one in pairs:
                    requests.append(
                        self.engine.add_request(f"generate-{next(self._ids)}", prompt, one)
                    )
                while not all(request.seq.finished for request in requests):
                    self.engine.step()
                    interrupts.deliver()
            finally:
                # Those that have not finished.
                self.engine.abort_requests(request.seq.request_id for request in requests)
        for request in requests:
            request.raise_error()
        return [request.output() for request in requests]

    def chat(self, messages: list, params=None) -> list[RequestOutput]:
        """Continue one conversation, or several in one batch, through the chat template.

        Args:
            messages: [{"role": "user" | "assistant", "content": str}], or a list of such lists.
        """
        if not isinstance(messages, list | tuple):
            raise MinimoeError(f"messages is a {type(messages).__name__}: give a list of dicts")
        several = bool(messages) and isinstance(messages[0], list | tuple)
        prompts = [self.tokenizer.chat_ids(one) for one in (messages if several else [messages])]
        return self.generate(prompts, params)

    def stream(
        self, prompt: str | list[int], params: SamplingParams | None = None
    ) -> Iterator[str]:
        """Yield the text of one completion as it is made. Dropping the iterator ends it."""
        return (piece for piece, _ in self.stream_outputs(prompt, params) if piece)

    def stream_outputs(
        self, prompt: str | list[int], params: SamplingParams | None = None
    ) -> Iterator[tuple[str, RequestOutput]]:
        """Like `stream`, with the request's state so far beside each piece of text."""
        with Interrupts():
            request = self.engine.add_request(f"stream-{next(self._ids)}", prompt, params)
            stream = self._stream(request)
            next(stream)  # now it is inside its `try`: dropping it unread ends the request too
        return stream

    def _stream(self, request: Request) -> Iterator[tuple[str, RequestOutput]]:
        """Others may step the engine between two pieces, so the request itself is what counts."""
        seq, shown = request.seq, 0
        try:
            yield "", request.output()
            while shown < len(seq.tokens) or not seq.finished:
                if not seq.finished:
                    with Interrupts():
                        self.engine.step()
                request.raise_error()
                if len(seq.tokens) > max(shown, len(seq.prompt_ids)) or seq.finished:
                    shown = len(seq.tokens)  # before the yield: others may add tokens meanwhile
                    yield request.text.take(final=seq.finished), request.output()
        finally:
            with Interrupts():
                self.engine.abort_request(seq.request_id)

    def close(self) -> None:
        """Write what is still to be stored, and end a store's writer and the ranks, if any."""
        self.engine.close()


def _load(model: str | Path, dtype, device: str) -> tuple[Transformer, Path]:
    """The textbook model and the folder of its tokenizer."""
    if is_wide(model):
        return wide_model(dtype, device, limit_of(model)), SHIPPED / "tiny-moe"
    from minimoe.checkpoint import checkpoint_folder, load_checkpoint

    folder = checkpoint_folder(model)
    return load_checkpoint(folder, dtype, device), folder


def _fingerprint(model: str | Path, folder: Path, config: ModelConfig, dtype: str, drafter) -> str:
    """What a shared KV store must agree on."""
    from minimoe.kvstore.fingerprint import config_name, kv_fingerprint, model_name

    name = config_name("wide", config) if is_wide(model) else model_name(folder)
    if drafter is None or not drafter.plane:  # it leaves nothing in the blocks
        return kv_fingerprint(name, dtype, BLOCK_SIZE)
    return kv_fingerprint(name, dtype, BLOCK_SIZE, drafter.name)


def _pool_blocks(model: ServingModel, max_model_len: int, max_num_seqs: int) -> int:
    """Blocks for every request at full length if that fits, for one request at least."""
    per_request = -(-max_model_len // BLOCK_SIZE)
    config = model.config
    block_bytes = config.num_hidden_layers * BLOCK_SIZE * config.kv_width * model.dtype.itemsize
    budget = POOL_BYTES
    if model.device.type == "cuda":
        budget = torch.cuda.mem_get_info(model.device)[0] // 2
    return max(per_request, min(per_request * max_num_seqs, budget // block_bytes))
