"""A conversation turn by turn, and what each turn costs with and without what was kept of it."""

from dataclasses import dataclass

from minimoe.engine.params import SamplingParams

BLOCK = 16


@dataclass(frozen=True)
class Turn:
    """One turn as the engine saw it; counts are tokens of its prompt."""

    question: str
    answer: str
    prompt_ids: list[int]
    answer_ids: list[int]
    cached: int
    first_token_seconds: float

    @property
    def computed(self) -> int:
        """Prompt tokens that were computed: all but those found in the cache."""
        return len(self.prompt_ids) - self.cached


def talk(llm, questions: list[str], max_tokens: int = 32, salt: str | None = None) -> list[Turn]:
    """Ask the questions in one conversation, greedily; each prompt holds all said before it."""
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, cache_salt=salt)
    messages, turns = [], []
    for question in questions:
        messages.append({"role": "user", "content": question})
        out = llm.chat(messages, params)[0]
        answer = out.outputs[0]
        messages.append({"role": "assistant", "content": answer.text})
        seconds = out.metrics.time_to_first_token
        ids = (out.prompt_token_ids, answer.token_ids)
        turns.append(Turn(question, answer.text, *ids, out.num_cached_tokens, seconds))
    return turns


def table(turns: list[Turn]) -> str:
    """One line a turn: tokens of the prompt, found in the cache, computed."""
    lines = [f"{'turn':>4} {'prompt':>7} {'cached':>7} {'computed':>9}   answer"]
    for number, turn in enumerate(turns, start=1):
        counts = f"{len(turn.prompt_ids):>7} {turn.cached:>7} {turn.computed:>9}"
        lines.append(f"{number:>4} {counts}   {turn.answer}")
    return "\n".join(lines)


def prompt_lengths(turns: int, system: int, user: int, answer: int) -> list[int]:
    """Tokens of each turn's prompt, if every question and every answer is of the same length."""
    return [system + user * (i + 1) + answer * i for i in range(turns)]


def computed_with_reuse(turns: int, system: int, user: int, answer: int) -> list[int]:
    """Prompt tokens computed in each turn when only full blocks of 16 are found again.

    After a turn the cache holds its prompt and its answer but for the answer's last token, which
    was drawn and never run.
    """
    lengths, held, computed = prompt_lengths(turns, system, user, answer), 0, []
    for length in lengths:
        cached = min(held, length - 1) // BLOCK * BLOCK
        computed.append(length - cached)
        held = length + answer - 1
    return computed


def common_prefix(a: list, b: list) -> int:
    """How many leading items are equal."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))
