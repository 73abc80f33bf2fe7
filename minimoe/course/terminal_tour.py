"""`python -m minimoe`: the two-minute tour in a terminal.

The model completes one prompt of each domain as a stream; below each stands which experts the
router chose for it, a row per layer and a character per expert, darker for busier.
"""

import sys
import time

SHADES = " .:-=+*#%@"
PROMPTS = {
    "code": "def area(width, height):\n",
    "story": "There once was a weaver called Mina, who lived in",
    "chat": "I put the lamp in the kitchen. Where is the lamp?",
    "json": "record: person\n",
}


def add_arguments(parser) -> None:
    parser.add_argument("--model", default="tiny-moe", help="a shipped name or a folder")
    parser.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    parser.add_argument("--max-tokens", type=int, default=48, help="tokens a domain")


def main(args) -> dict:
    """Run the tour: parameters, and per domain text, tokens a second and the experts' counts."""
    from minimoe import LLM
    from minimoe.course.parameters import total_and_active

    say = _silent if args.json else _say
    llm = LLM(args.model, device=args.device)
    total, active = total_and_active(llm.model.textbook)
    config = llm.config
    say(f"{args.model}: {total / 1e6:.1f} M parameters, {active / 1e6:.1f} M used by one token.\n")
    say(f"In {config.num_moe_layers} layers a router sends each token to ")
    say(f"{config.num_experts_per_tok} of {config.n_routed_experts} experts.\n")
    domains = {name: _complete(llm, name, args.max_tokens, say) for name in PROMPTS}
    return {
        "model": args.model,
        "device": str(llm.model.device),
        "total_parameters": total,
        "active_parameters": active,
        "domains": domains,
    }


def render(result: dict) -> str:
    """What the stream did not say yet: speed, and where to go on."""
    tokens = sum(one["tokens"] for one in result["domains"].values())
    seconds = sum(one["seconds"] for one in result["domains"].values())
    return (
        f"\n{tokens} tokens at {tokens / seconds:.0f} tok/s, one request at a time, "
        f"on {result['device']}.\nGo on with notebooks/00_tour.ipynb, or: python -m minimoe --help"
    )


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _silent(text: str) -> None:
    """With --json nothing but the result is printed."""


class Watch:
    """Counts the experts that the router chooses, per layer, and the steps of the engine."""

    def __init__(self, model):
        self.model, self.loads = model, {}
        self.steps = 0

    def __enter__(self) -> "Watch":
        self.model.on_route(self._see)
        return self

    def __exit__(self, *_) -> None:
        self.model.on_route(None)

    def _see(self, layer: int, ids, weights) -> None:
        from minimoe.training.balance import expert_load

        self.steps += layer == self.model.config.first_k_dense_replace
        load = expert_load(ids, self.model.config.n_routed_experts).cpu()  # [E]
        self.loads[layer] = self.loads.get(layer, 0) + load


def _complete(llm, name: str, max_tokens: int, say) -> dict:
    """Stream one completion; its text, speed and counts of chosen experts `[layers][E]`."""
    from minimoe import SamplingParams

    prompt = given = PROMPTS[name]
    say(f"\n--- {name}\n{prompt}")
    if name == "chat":
        given = llm.tokenizer.chat_ids([{"role": "user", "content": prompt}])
        say("\n> ")
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0)
    start, pieces = time.perf_counter(), []
    with Watch(llm.model) as watch:
        for piece in llm.stream(given, params):
            pieces.append(piece)
            say(piece)
    seconds = time.perf_counter() - start
    say("\n\n" + "".join(f"  layer {n:<3}|{_bar(load)}|\n" for n, load in watch.loads.items()))
    return {
        "text": "".join(pieces),
        "tokens": watch.steps,  # the prompt fits one step, and each step gives one token
        "seconds": seconds,
        "experts": [load.tolist() for load in watch.loads.values()],
    }


def _bar(load) -> str:
    """A character per expert, from blank for unused to the darkest for the busiest."""
    steps, most = len(SHADES) - 1, int(load.max())
    return "".join(SHADES[-(-steps * count // most)] for count in load.tolist())
