"""`python -m minimoe`: the two-minute tour in a terminal.

The model completes one prompt of each domain as a stream; below each stands which experts the
router chose for it, a row per layer and a character per expert, darker for busier.
"""

import shutil
import sys
import time

SHADES = " .:-=+*#%@"
PROMPTS = {
    "code": """\
class Wrapper:
    def __init__(self, stream):
        self.stream = stream

    def read(self, size=-1):""",
    "story": """\
In a research base on a small moon lived Lena, a young pilot.

That day the tomatoes were dying.""",
    "chat": "I put the red lamp in the hall. The red lamp is now in the attic. "
    "Where is the red lamp?",
    "json": "tool: send_message\nrequest: Tell Mina that dinner is ready.\n",
}


def add_arguments(parser) -> None:
    parser.add_argument("--model", default="tiny-moe", help="a shipped name or a folder")
    parser.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    parser.add_argument("--max-tokens", type=int, default=48, help="tokens a domain")


def main(args) -> dict:
    """Run the tour: parameters, and per domain text, tokens a second and the experts' counts."""
    from minimoe import LLM
    from minimoe.course.parameters import total_and_active

    say = _silent if args.json else Screen(shutil.get_terminal_size().columns).say
    llm = LLM(args.model, device=args.device)
    total, active = total_and_active(llm.model.textbook)
    say(_introduction(args.model, llm.config, total, active))
    domains = {name: _complete(llm, name, args.max_tokens, say) for name in PROMPTS}
    return {
        "model": args.model,
        "device": str(llm.model.device),
        "total_parameters": total,
        "active_parameters": active,
        "domains": domains,
    }


def _introduction(model: str, config, total: int, active: int) -> str:
    return (
        f"{model}: {total / 1e6:.1f} M parameters in all, {active / 1e6:.1f} M used by one token. "
        f"In each of {config.num_moe_layers} layers a router sends every token to "
        f"{config.num_experts_per_tok} of {config.n_routed_experts} experts.\n\n"
        "Four prompts, each completed from where you see >>. Below each: the experts that its "
        "tokens used, prompt included, a row for a layer and a column for an expert, from blank "
        "(never used) to @ (the busiest of the row).\n"
    )


def render(result: dict) -> str:
    """What the stream did not say yet: speed, and where to go on."""
    tokens = sum(one["tokens"] for one in result["domains"].values())
    seconds = sum(one["seconds"] for one in result["domains"].values())
    return (
        f"\n{tokens} tokens at {tokens / seconds:.0f} tok/s, one request at a time, "
        f"on {result['device']}.\nGo on with notebooks/00_tour.ipynb, or: python -m minimoe --help"
    )


class Screen:
    """Writes text as it comes, a word at a time, and breaks lines between words."""

    def __init__(self, width: int):
        self.width, self.column = width, 0
        self.space = self.word = ""

    def say(self, text: str) -> None:
        """Write what is complete; a last word without a space behind it waits for the next call."""
        for char in text:
            if char.isspace():
                self._end_word()
                self._blank(char)
            else:
                self.word += char
        sys.stdout.flush()

    def _end_word(self) -> None:
        if not self.word:
            return
        fits = self.column + len(self.space + self.word) <= self.width
        self._write(self.space + self.word if fits or not self.column else "\n" + self.word)
        self.space = self.word = ""

    def _blank(self, char: str) -> None:
        self.space = "" if char == "\n" else self.space + char
        if char == "\n":
            self._write(char)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        line = text.rpartition("\n")[2]
        self.column = len(line) if "\n" in text else self.column + len(line)


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
    if name == "chat":
        given = llm.tokenizer.chat_ids([{"role": "user", "content": prompt}])
    say(f"\n--- {name}\n{prompt}{'' if prompt.endswith(chr(10)) else ' '}>>")
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0)
    start, pieces = time.perf_counter(), []
    with Watch(llm.model) as watch:
        for piece in llm.stream(given, params):
            say(piece if pieces or piece[0].isspace() else " " + piece)
            pieces.append(piece)
    seconds = time.perf_counter() - start
    say(f"\n\n{_picture(watch.loads)}  {watch.steps} tokens, {watch.steps / seconds:.0f} tok/s\n")
    return {
        "text": "".join(pieces),
        "tokens": watch.steps,  # the prompt fits one step, and each step gives one token
        "seconds": seconds,
        "experts": [load.tolist() for load in watch.loads.values()],
    }


def _picture(loads: dict) -> str:
    return "".join(f"  layer {layer:<3}|{_bar(load)}|\n" for layer, load in loads.items())


def _bar(load) -> str:
    """A character per expert, from blank for unused to the darkest for the busiest."""
    steps, most = len(SHADES) - 1, int(load.max())
    return "".join(SHADES[-(-steps * count // most)] for count in load.tolist())
