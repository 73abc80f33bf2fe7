"""The public face: streams that share the engine with others, and bad arguments."""

import gc

import pytest
import torch

from minimoe import LLM, SamplingParams
from minimoe.errors import MinimoeError

GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM("tiny-moe", device="cpu", num_gpu_blocks_override=64)


@pytest.fixture(autouse=True)
def idle_afterwards(llm):
    yield
    gc.collect()
    llm.engine.pool.check()
    assert llm.engine.pool.num_free == 64
    assert not llm.engine.has_unfinished_requests()


def text_of(llm, prompt, params=GREEDY) -> str:
    return llm.generate(prompt, params)[0].outputs[0].text


def test_stream_yields_the_text(llm):
    pieces = list(llm.stream("def add(a, b):", GREEDY))
    assert len(pieces) > 3
    assert "".join(pieces) == text_of(llm, "def add(a, b):")


def test_two_streams_in_turn_and_generate_between(llm):
    expected = [text_of(llm, "def add(a, b):"), text_of(llm, "import os")]
    first, second = llm.stream("def add(a, b):", GREEDY), llm.stream("import os", GREEDY)
    got = [next(first), next(second)]
    assert text_of(llm, "import os") == expected[1]  # finishes both streams' requests on the way
    got[1] += "".join(second)
    got[0] += "".join(first)
    assert got == expected


def test_dropped_streams_free_their_blocks(llm):
    stream = llm.stream("def add(a, b):", GREEDY)
    next(stream)
    unread = llm.stream("import os", GREEDY)
    assert llm.engine.has_unfinished_requests()
    del stream, unread


def test_bad_prompts_fail_at_the_call(llm):
    with pytest.raises(MinimoeError, match="the prompt is empty"):
        llm.stream("")
    with pytest.raises(MinimoeError, match="the prompt is empty"):
        llm.generate(["fine", ""], GREEDY)
    with pytest.raises(MinimoeError, match="3 sampling params for 2 prompts"):
        llm.generate(["a", "b"], [GREEDY] * 3)


@pytest.mark.parametrize("prompt", [None, {"a": 1}, 7, ["a", None], [[5, "x"]]], ids=str)
def test_prompts_of_other_types_are_named(llm, prompt):
    with pytest.raises(MinimoeError, match="prompt"):
        llm.generate(prompt, GREEDY)


def test_prompts_may_be_token_ids_of_any_integer_kind(llm):
    ids = [0, *llm.tokenizer.encode("import os")]
    expected = text_of(llm, "import os")
    for prompt in (ids, tuple(ids), torch.tensor(ids), torch.tensor(ids).numpy(), [ids]):
        assert text_of(llm, prompt) == expected


def test_chat_one_and_several(llm):
    one = [{"role": "user", "content": "Hello."}]
    texts = [out.outputs[0].text for out in llm.chat([one, one], GREEDY)]
    assert texts == [llm.chat(one, GREEDY)[0].outputs[0].text] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens is 0"),
        ({"max_model_len": 4096}, "max_model_len is 4096 and the model has 2048"),
        ({"dtype": "int4"}, "dtype is 'int4'"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"kv_store": "x", "enable_prefix_caching": False}, "kv_store needs prefix caching"),
    ],
    ids=str,
)
def test_bad_arguments(arguments, message):
    with pytest.raises(MinimoeError, match=message):
        LLM("tiny-moe", **{"device": "cpu", **arguments})
