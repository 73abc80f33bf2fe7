"""Measuring answers, with a model that is a table."""

import json
import random
import re
from types import SimpleNamespace

import pytest

from minimoe.config import SHIPPED
from minimoe.errors import MinimoeError
from minimoe.tokenizer import Tokenizer
from minimoe.training import quality, records, sums

pytest.importorskip("jsonschema")
TOKENIZER = Tokenizer(SHIPPED / "tiny-moe")


class Fake:
    """Answers every prompt by a function of its text."""

    def __init__(self, answer):
        self.answer, self.tokenizer = answer, TOKENIZER

    def generate(self, prompts, params):
        texts = [_text(p) for p in prompts]
        return [SimpleNamespace(outputs=[SimpleNamespace(text=self.answer(t))]) for t in texts]


def _text(prompt):
    return prompt if isinstance(prompt, str) else TOKENIZER.decode(prompt, skip_special=False)


def test_a_model_that_is_always_right():
    expected = {
        TOKENIZER.chat_text(messages): answer
        for kind in ("recall", "sums")
        for messages, answer in quality.chat_questions(20, kind)
    }
    llm = Fake(lambda prompt: expected[prompt])
    assert quality.chat_accuracy(llm, 20, "recall")["share"] == 1.0
    assert quality.chat_accuracy(llm, 20, "sums")["share"] == 1.0


def test_a_model_that_is_always_wrong():
    result = quality.chat_accuracy(Fake(lambda _: "It is 1 or so."), 10, "sums")
    assert result["share"] == 0 and result["n"] == 10 and len(result["faults"]) == 10
    assert quality.chat_accuracy(Fake(lambda _: "Noted."), 10, "recall")["right"] == 0
    faults = quality.json_validity(Fake(lambda _: '{"id": 1'), 16)["faults"]
    assert len(faults) == 16 and all("does not parse" in f["fault"] for f in faults)
    assert quality.json_validity(Fake(lambda _: "{}"), 16)["valid"] == 0


def test_valid_json_counts():
    def answer(prompt):
        name = prompt.split("\n")[0].split(": ")[1]
        if name in records.CALLERS:
            return json.dumps(records.call(random.Random(0), name)[1])
        return json.dumps(records.record(random.Random(0), name), indent=2)

    assert quality.json_validity(Fake(answer), 32)["share"] == 1.0


def test_sums_ask_only_held_out_pairs():
    for messages, answer in quality.chat_questions(100, "sums"):
        a, b = (int(n) for n in re.findall(r"\d+", messages[-1]["content"]))
        assert sums.is_held_out(a, b) and answer == str(a + b)


def test_recall_questions_are_asked_for_the_first_time():
    for messages, answer in quality.chat_questions(50, "recall"):
        asked = [m["content"] for m in messages if m["role"] == "user"]
        assert asked[-1].endswith("?") and asked.count(asked[-1]) == 1
        told = " ".join(asked[:-1]).lower()
        assert sum(word in told for word in re.findall(r"\w+", answer.lower())) >= 2


def test_the_last_number_decides():
    assert quality._same_number("46", "12 + 34 = 46.")
    assert not quality._same_number("46", "46 + 1 = 47.")
    assert not quality._same_number("46", "")


def test_unknown_kind():
    with pytest.raises(MinimoeError, match="kind 'poems' is not known"):
        quality.chat_questions(3, "poems")
