"""Stories, chats and records: fixed by their seed, and true to themselves."""

import json
import random
from itertools import islice

import pytest

from minimoe.config import SHIPPED
from minimoe.tokenizer import Tokenizer
from minimoe.training import chat, records, story
from minimoe.training.facts import BY_NAME
from minimoe.training.plot import draw_plot
from minimoe.training.schemas import RECORDS, SCHEMAS, TOOLS

MODULES = [story, chat, records]


@pytest.mark.parametrize("module", MODULES)
def test_same_seed_same_documents(module):
    first, again, other = (list(islice(module.documents(random.Random(s)), 50)) for s in "aab")
    assert first == again != other
    assert len(set(first)) == 50 or module is records  # a short tool call may come twice


@pytest.mark.parametrize("module", MODULES)
def test_documents_fit_the_context(module):
    tokenizer = Tokenizer(SHIPPED / "tiny-moe")
    ids = tokenizer.encode_documents(list(islice(module.documents(random.Random(0)), 400)))
    lengths = [len(i) for i in ids]
    assert max(lengths) <= 2048
    assert module is not chat or max(lengths) > 1200  # long ones, for what a cache can reuse


def test_stories_hold_what_the_plot_says():
    for seed in range(100):
        plot = draw_plot(random.Random(seed))
        text = story.Teller(plot, random.Random(seed)).tell()
        needed = (plot.hero, plot.home, plot.cure_place, plot.found_at, plot.effect, plot.ending)
        assert all(words in text for words in needed)
        assert all(helper.name in text and helper.place in text for helper in plot.helpers)
        assert "  " not in text and "{" not in text


def test_plots_are_many():
    plots = {draw_plot(random.Random(seed)) for seed in range(500)}
    assert len(plots) == 500
    assert len({plot.world.name for plot in plots}) == 6


def test_recalled_facts_were_told_last():
    """Replay each conversation: the answer is the newest value told, whatever came between."""
    for seed in range(200):
        told = []
        for turn in chat.conversation(random.Random(seed), 20):
            if turn.kind == "tell":
                told.append(turn.user)
            if turn.kind in ("recall", "again"):
                assert any(turn.value.lower() in text.lower() for text in told), turn
                assert turn.value.lower() in turn.assistant.lower()


def test_changed_facts_give_the_new_value():
    world = chat.World(random.Random(0))
    world._set("town", "Ada", "Korwick")
    turn = world.change()
    new = world.facts["town", "Ada"]
    assert new != "Korwick" and new in turn.user
    answers = {world.recall().assistant for _ in range(10)}
    assert answers == {f"Ada lives in {new}."}


def test_unknown_facts_are_admitted():
    world = chat.World(random.Random(0))
    for _ in range(50):
        assert world.unknown().assistant == "You have not told me that."


def test_every_kind_of_fact_can_be_told_and_asked():
    for kind in BY_NAME.values():
        rng = random.Random(kind.name)
        subject, value = kind.subject(rng), kind.value(rng)
        for template in (*kind.told, *kind.changed):
            assert value in template.format(s=subject, v=value)
        for template in kind.asked:
            assert "{v}" not in template


def test_messages_and_render_agree():
    turns = chat.conversation(random.Random(0), 5)
    tokenizer = Tokenizer(SHIPPED / "tiny-moe")
    ids = tokenizer.chat_ids(chat.messages(turns), add_generation_prompt=False)
    assert ids == tokenizer.encode_documents([chat.render(turns)])[0]


def test_schemas_are_schemas():
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    for schema in SCHEMAS.values():
        validator.check_schema(schema)
    assert RECORDS.keys() == records.MAKERS.keys() and TOOLS.keys() == records.CALLERS.keys()


def test_documents_fit_their_schemas():
    pytest.importorskip("jsonschema")
    seen = set()
    for document in islice(records.documents(random.Random(0)), 600):
        name, value = records.value_of(document)
        seen.add(name)
        for one in value if isinstance(value, list) else [value]:
            assert records.fault(name, one) is None, document
    assert seen == set(SCHEMAS)


def test_a_call_takes_its_values_from_the_request():
    for name in records.CALLERS:
        request, made = records.call(random.Random(name), name)
        for value in made["arguments"].values():
            if isinstance(value, str | int):
                assert str(value).lower() in request.lower(), (request, made)


def test_faults_are_named():
    pytest.importorskip("jsonschema")
    person = records.record(random.Random(0), "person")
    assert records.fault("person", person) is None
    assert "required" in records.fault("person", {k: v for k, v in person.items() if k != "age"})
    assert records.fault("person", person | {"age": "old"})
    assert records.fault("person", person | {"extra": 1})
    with pytest.raises(json.JSONDecodeError):
        records.value_of('record: person\n{"id": 1')
