"""Is what the model writes right? python -m minimoe.training.quality --model tiny-moe

JSON that parses and fits its schema; facts recalled from earlier in a chat; sums of number pairs
that training never saw. All questions come from seeds that training does not use.
"""

import argparse
import json
import random
import re

from minimoe.errors import MinimoeError
from minimoe.training import chat, records, sums

MAX_JSON_TOKENS = 700
MAX_ANSWER_TOKENS = 60


def json_validity(llm, n: int = 200, temperature: float = 0.5, seed: int = 0) -> dict:
    """Sample `n` documents, records and tool calls of every schema in turn, and check each.

    Returns {"n", "valid", "share", "faults": [{"prompt", "text", "fault"}]}.
    """
    prompts = json_prompts(n, seed)
    params = [_params(MAX_JSON_TOKENS, temperature, seed + i) for i in range(n)]
    texts = _texts(llm.generate(prompts, params))
    checked = zip(prompts, texts, strict=True)
    faults = [
        {"prompt": prompt, "text": text, "fault": fault}
        for prompt, text in checked
        if (fault := json_fault(prompt, text))
    ]
    return _result(n, n - len(faults), "valid", faults)


def json_prompts(n: int, seed: int = 0) -> list[str]:
    """`n` prompts, the schemas in turn; a tool's request is drawn anew each time."""
    rng = random.Random(f"json questions {seed}")
    names = [*records.MAKERS, *records.CALLERS]
    return [_json_prompt(names[i % len(names)], rng) for i in range(n)]


def _json_prompt(name: str, rng: random.Random) -> str:
    request = records.call(rng, name)[0] if name in records.CALLERS else None
    return records.prompt(name, request)


def json_fault(prompt: str, text: str) -> str | None:
    """What is wrong with the JSON that follows `prompt`, or None."""
    try:
        name, value = records.value_of(prompt + text)
    except ValueError as error:
        return f"does not parse: {error}"
    return records.fault(name, value)


def chat_accuracy(llm, n: int = 200, kind: str = "recall", seed: int = 0) -> dict:
    """Ask `n` questions greedily and compare. `kind`: "recall" or "sums" (held-out pairs).

    A recalled fact is right when the answer is word for word the expected one; a sum when the last
    number in the answer is. Returns {"n", "right", "share", "faults": [{"asked", "expected",
    "got"}]}. MinimoeError for another kind.
    """
    asked = chat_questions(n, kind, seed)
    prompts = [llm.tokenizer.chat_ids(messages) for messages, _ in asked]
    answers = _texts(llm.generate(prompts, _params(MAX_ANSWER_TOKENS, 0.0, seed)))
    is_right = _same_number if kind == "sums" else _same_words
    faults = [
        {"asked": messages[-1]["content"], "expected": expected, "got": got}
        for (messages, expected), got in zip(asked, answers, strict=True)
        if not is_right(expected, got)
    ]
    return _result(n, n - len(faults), "right", faults)


def chat_questions(n: int, kind: str, seed: int = 0) -> list[tuple[list[dict], str]]:
    """[(messages that end with a question, expected answer)]."""
    rng = random.Random(f"{kind} questions {seed}")
    if kind == "sums":
        return [_sum_question(rng) for _ in range(n)]
    if kind == "recall":
        return [_recall_question(rng) for _ in range(n)]
    raise MinimoeError(f"kind {kind!r} is not known; use 'recall' or 'sums'")


def _sum_question(rng: random.Random) -> tuple[list[dict], str]:
    a, b = rng.choice(sums.held_out_pairs())
    question = sums.sum_question(a, b, rng.choice(sums.ASK_SUM))
    return [{"role": "user", "content": question.question}], str(question.value)


def _recall_question(rng: random.Random) -> tuple[list[dict], str]:
    """A conversation of 3 to 14 turns, up to its last recall question."""
    while True:
        turns = chat.conversation(rng, rng.randint(3, 14))
        while turns and turns[-1].kind != "recall":
            turns.pop()
        if turns:
            return chat.messages(turns)[:-1], turns[-1].assistant


def _same_words(expected: str, got: str) -> bool:
    return expected.split() == got.split()


def _same_number(expected: str, got: str) -> bool:
    return re.findall(r"\d+", got)[-1:] == [expected]


def _params(max_tokens: int, temperature: float, seed: int):
    from minimoe.engine.params import SamplingParams

    return SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)


def _texts(outputs) -> list[str]:
    return [output.outputs[0].text for output in outputs]


def _result(n: int, good: int, word: str, faults: list[dict]) -> dict:
    return {"n": n, word: good, "share": good / n, "faults": faults}


def main() -> None:
    from minimoe import LLM

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny-moe")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    llm = LLM(args.model)
    result = {
        "json": json_validity(llm, args.n, seed=args.seed),
        "recall": chat_accuracy(llm, args.n, "recall", args.seed),
        "sums": chat_accuracy(llm, args.n, "sums", args.seed),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
