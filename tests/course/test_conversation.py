"""What the notebook on reuse says of a conversation is what the engine does."""

import random

import pytest
from models import random_model, small_config

from minimoe.config import SHIPPED
from minimoe.course.conversation import (
    common_prefix,
    computed_with_reuse,
    prompt_lengths,
    table,
    talk,
)
from minimoe.engine.engine import Engine
from minimoe.engine.params import SamplingParams
from minimoe.model.serving import ServingModel
from minimoe.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def engine():
    limits = {"max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 64}
    tokenizer = Tokenizer(SHIPPED / "tiny-moe")
    return Engine(
        ServingModel(random_model(small_config())), tokenizer, num_blocks=64, seed=0, **limits
    )


def run(engine, prompt, count, salt):
    params = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True, cache_salt=salt)
    engine.add_request("one", prompt, params)
    while engine.has_unfinished_requests():
        outputs = engine.step()
    return outputs[0]


@pytest.mark.parametrize("shape", [(4, 0, 16, 16), (3, 10, 21, 33), (5, 33, 1, 15), (1, 0, 1, 1)])
def test_computed_tokens_are_those_of_the_engine(engine, shape):
    turns, system, user, answer = shape
    words = random.Random(1)
    prompt, computed = words.choices(range(5, 2000), k=system), []
    for _ in range(turns):
        prompt = prompt + words.choices(range(5, 2000), k=user)
        out = run(engine, prompt, answer, salt=str(shape))
        computed.append(len(prompt) - out.num_cached_tokens)
        prompt = prompt + out.outputs[0].token_ids
    assert computed == computed_with_reuse(*shape)


def test_prompts_grow_by_a_question_and_an_answer():
    assert prompt_lengths(3, 100, 10, 20) == [110, 140, 170]


@pytest.mark.parametrize("a, b, n", [([], [1], 0), ([1, 2], [1, 2, 3], 2), ([1, 5], [1, 6], 1)])
def test_common_prefix(a, b, n):
    assert common_prefix(a, b) == common_prefix(b, a) == n


def test_talk_sends_the_whole_conversation_each_time():
    from minimoe import LLM

    turns = talk(LLM("tiny-moe"), ["Tom lives in Sofield.", "Where does Tom live?"], max_tokens=12)
    assert turns[0].cached == 0 and turns[1].cached > 0
    assert turns[1].prompt_ids[: len(turns[0].prompt_ids)] == turns[0].prompt_ids
    assert len(table(turns).splitlines()) == 3
