"""`python -m minimoe generate PROMPT`: the text appears as it is made."""

import sys
import time


def add_arguments(parser) -> None:
    """Arguments of the verb; those of `LLM` and `SamplingParams` keep their names."""
    parser.add_argument("prompt", help="text to complete")
    parser.add_argument("--model", default="tiny-moe", help="shipped name, 'wide', or a folder")
    parser.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument(
        "--expert-parallel-size", type=int, help="processes that share the experts (torchrun: its)"
    )
    parser.add_argument("--chat", action="store_true", help="the prompt is a user's message")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--min-p", type=float, default=0.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--stop", action="append", default=[], help="may be given several times")


def main(args) -> dict:
    """Generate; without --json the text is streamed to stdout on the way."""
    from minimoe import SamplingParams

    params = SamplingParams(
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        seed=args.seed,
        stop=args.stop,
    )
    llm = _load(args)
    prompt = args.prompt
    if args.chat:
        prompt = llm.tokenizer.chat_ids([{"role": "user", "content": prompt}])
    start = time.perf_counter()
    output = None
    for piece, output in llm.stream_outputs(prompt, params):  # noqa: B007 (the last one is used)
        if not args.json:
            print(piece, end="", flush=True)
    if not args.json:
        print()
    if output is None:  # a rank of torchrun without the prompt
        return {}
    return _record(args, output, time.perf_counter() - start)


def _load(args):
    """The model in this process, in ranks of its own, or as one of the ranks of torchrun."""
    from minimoe import LLM
    from minimoe.engine.torchrun import TorchrunLLM, world_size

    size = args.expert_parallel_size
    options = {"model": args.model, "device": args.device, "dtype": args.dtype}
    if world_size() > 1:
        return TorchrunLLM(size, options)
    return LLM(**options, expert_parallel_size=size if size is not None else 1)


def _record(args, final, seconds: float) -> dict:
    completion = final.outputs[0]
    return {
        "prompt": args.prompt,
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": len(final.prompt_token_ids),
        "tokens": len(completion.token_ids),
        "time_to_first_token_s": final.metrics.time_to_first_token,
        "seconds": seconds,
        "tok_s": len(completion.token_ids) / seconds,
    }


def render(result: dict) -> str:
    """One line below the streamed text."""
    if not result:
        return ""
    if sys.stdout.isatty():
        print()
    return (
        f"[{result['tokens']} tokens, {result['tok_s']:.0f} tok/s, first after "
        f"{1000 * result['time_to_first_token_s']:.0f} ms, ended by {result['finish_reason']}]"
    )
