"""The engine as a whole: the same tokens however requests are cut, mixed or preempted."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from engine_runs import assert_idle, run_all

from minimoe.engine.params import SamplingParams
from minimoe.errors import MinimoeError

GREEDY = {"temperature": 0.0, "ignore_eos": True}


def prompts_of(lengths: list[int]) -> list[list[int]]:
    numbers = random.Random(4)
    return [[numbers.randrange(5, 2048) for _ in range(n)] for n in lengths]


LENGTHS = [1, 15, 16, 17, 40, 64, 100, 3]


def textbook_greedy(model, prompt: list[int], count: int) -> list[int]:
    """The oracle: the whole sequence again for every token."""
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"max_num_batched_tokens": 7},  # small chunks
        {"max_num_batched_tokens": 512},  # whole prompts
        {"max_num_seqs": 1},  # alone
        {"num_blocks": 9},  # preempted
        {"max_num_batched_tokens": 3, "num_blocks": 9},
        {"max_num_batched_tokens": 1},
    ],
    ids=str,
)
def test_greedy_tokens_equal_the_textbook(make_engine, serving_model, limits):
    prompts = prompts_of(LENGTHS)
    outputs = run_all(make_engine(**limits), prompts, SamplingParams(max_tokens=12, **GREEDY))
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = textbook_greedy(serving_model.textbook, prompt, 12)
        assert output.outputs[0].token_ids == expected
        assert output.outputs[0].finish_reason == "length"
    preempted = sum(out.metrics.preemptions for out in outputs)
    assert preempted > 0 or limits != {"num_blocks": 9}


def test_seeded_requests_do_not_depend_on_their_company(make_engine):
    prompts = prompts_of(LENGTHS)
    params = [
        SamplingParams(max_tokens=12, temperature=0.5 + i / 4, seed=i, top_p=0.95, ignore_eos=True)
        for i in range(len(prompts))
    ]
    together = run_all(make_engine(), prompts, params)
    squeezed = run_all(make_engine(num_blocks=9, max_num_batched_tokens=5), prompts, params)
    for i, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
        alone = run_all(make_engine(), [prompt], one)[0].outputs[0].token_ids
        assert together[i].outputs[0].token_ids == alone == squeezed[i].outputs[0].token_ids


def test_requests_without_seed_follow_the_engine_seed(make_engine):
    prompts, params = prompts_of([4, 4]), SamplingParams(max_tokens=20, ignore_eos=True)
    texts = [
        [out.outputs[0].token_ids for out in run_all(make_engine(seed=seed), prompts, params)]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0][0] != texts[0][1]


def test_logprobs_equal_the_textbook(make_engine, serving_model):
    prompt = prompts_of([20])[0]
    params = SamplingParams(max_tokens=5, logprobs=3, **GREEDY)
    completion = run_all(make_engine(), [prompt], params)[0].outputs[0]
    logits = serving_model.textbook(torch.tensor([prompt + completion.token_ids]))[0]
    logp = torch.log_softmax(logits, -1)[len(prompt) - 1 :]
    for row, token, got in zip(logp, completion.token_ids, completion.logprobs, strict=False):
        assert list(got)[0] == token and len(got) == 3
        assert all(abs(value - float(row[i])) < 1e-9 for i, value in got.items())


def test_stop_token_and_eos(make_engine):
    engine, prompt = make_engine(), prompts_of([9])[0]
    ids = run_all(engine, [prompt], SamplingParams(max_tokens=8, **GREEDY))[0].outputs[0].token_ids
    cut = ids.index(ids[3]) + 1
    params = SamplingParams(max_tokens=8, temperature=0, stop_token_ids=[ids[3]], ignore_eos=True)
    stopped = run_all(engine, [prompt], params)[0].outputs[0]
    assert (stopped.token_ids, stopped.finish_reason) == (ids[:cut], "stop")
    engine.eos_ids = {ids[3]}
    params = SamplingParams(max_tokens=8, temperature=0)
    assert run_all(engine, [prompt], params)[0].outputs[0].token_ids == ids[:cut]
    ignored = SamplingParams(max_tokens=8, **GREEDY)
    assert run_all(engine, [prompt], ignored)[0].outputs[0].token_ids == ids


def test_stop_string_that_spans_tokens(make_engine, tokenizer):
    engine, prompt = make_engine(), prompts_of([9])[0]
    full = run_all(engine, [prompt], SamplingParams(max_tokens=30, **GREEDY))[0].outputs[0]
    middle = len(tokenizer.decode(full.token_ids[:9]))
    stop = full.text[middle - 2 : middle + 2]
    got = run_all(engine, [prompt], SamplingParams(max_tokens=30, stop=["@@@", stop], **GREEDY))[0]
    assert got.outputs[0].text == full.text[: full.text.index(stop)]
    assert got.outputs[0].finish_reason == "stop"
    assert len(got.outputs[0].token_ids) < 30


def test_context_limit_ends_a_request(make_engine):
    prompts = prompts_of([255, 250])
    for output, new in zip(
        run_all(make_engine(), prompts, SamplingParams(None, **GREEDY)), [1, 6], strict=True
    ):
        assert len(output.outputs[0].token_ids) == new
        assert output.outputs[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "the prompt is empty"),
        ([], "the prompt is empty"),
        ([5] * 256, "the prompt has 256 tokens and max_model_len is 256: shorten it to 255"),
        ([5, 2048], "token id 2048 is not in 0..2047"),
        ([5, -1], "token id -1"),
        ([5, 1.5], "token id 1.5 of the prompt is not a whole number"),
    ],
    ids=["empty text", "empty ids", "too long", "too large", "negative", "no int"],
)
def test_bad_prompts_are_refused_and_the_engine_goes_on(make_engine, prompt, message):
    engine = make_engine()
    with pytest.raises(MinimoeError, match=message):
        engine.add_request("bad", prompt)
    assert_idle(engine)
    assert run_all(engine, ["good"], SamplingParams(max_tokens=2, **GREEDY))


def test_pool_too_small_for_one_request(make_engine):
    engine = make_engine(num_blocks=2)
    with pytest.raises(MinimoeError, match="may need 3 KV blocks .* the pool has 2: lower max_tok"):
        engine.add_request("a", [5] * 20, SamplingParams(max_tokens=14))
    run_all(engine, [[5] * 20], SamplingParams(max_tokens=13, **GREEDY))


def test_ids_in_use_and_aborts(make_engine):
    engine = make_engine()
    engine.add_request("a", [5] * 40, SamplingParams(max_tokens=50))
    with pytest.raises(MinimoeError, match="request id 'a' is in use"):
        engine.add_request("a", [5])
    engine.add_request("b", [6] * 40, SamplingParams(max_tokens=3))
    engine.step()
    engine.abort_request("a")
    engine.abort_request("unknown")
    while engine.has_unfinished_requests():
        engine.step()
    assert_idle(engine)


@pytest.fixture
def broken_token(serving_model):
    """Token 777 gives logits that are not numbers, until the test puts it right again."""
    row = serving_model.embed[777].clone()
    serving_model.embed[777] = torch.nan

    def mend():
        serving_model.embed[777] = row

    yield mend
    mend()


@pytest.mark.parametrize("length", [20, 80])  # 80 takes two steps, the first without logits
def test_logits_that_are_no_numbers_end_their_request_only(make_engine, broken_token, length):
    params = SamplingParams(max_tokens=6, **GREEDY)
    expected = run_all(make_engine(), [[9] * 3], params)[0].outputs[0].token_ids
    engine = make_engine(num_blocks=8)
    bad, good = run_all(engine, [[777] * length, [9] * 3], params)
    assert (bad.outputs[0].finish_reason, bad.outputs[0].token_ids) == ("error", [])
    assert good.outputs[0].token_ids == expected
    broken_token()
    for out in run_all(engine, [[9] * 3] * 5, params):  # on the pages that held the broken rows
        assert out.outputs[0].token_ids == expected


def test_pages_of_an_aborted_broken_request_do_no_harm(make_engine, broken_token):
    engine = make_engine(num_blocks=8)
    engine.add_request("bad", [777] * 80, SamplingParams(max_tokens=3))
    engine.step()
    engine.abort_request("bad")
    broken_token()
    outputs = run_all(engine, [[9] * 18, [19] * 3], SamplingParams(max_tokens=3, **GREEDY))
    assert all(out.outputs[0].finish_reason == "length" for out in outputs)


def test_a_finished_neighbour_of_a_broken_request_is_not_lost(make_engine, broken_token):
    engine = make_engine()
    outputs = run_all(engine, [[9] * 3, [777] * 8], SamplingParams(max_tokens=1, **GREEDY))
    assert [out.outputs[0].finish_reason for out in outputs] == ["length", "error"]


def test_a_failing_step_leaves_a_usable_engine(make_engine, monkeypatch):
    engine = make_engine()
    engine.add_request("a", [9] * 5)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_append_tokens", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.step()
    assert_idle(engine)
    assert run_all(engine, [[9] * 5], SamplingParams(max_tokens=2, **GREEDY))


@pytest.fixture
def ctrl_c():
    """Python's own handling, also where tests run in a background that ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_interrupt_waits_for_the_end_of_a_step(ctrl_c):
    from minimoe.engine.interrupts import Interrupts

    reached = []
    with pytest.raises(KeyboardInterrupt), Interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        reached.append("end of the step")
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")

INTERRUPTED = """
import os, signal, sys, threading
from minimoe import LLM, SamplingParams
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background may ignore it
llm = LLM("tiny-moe", num_gpu_blocks_override=64)
ready = llm.generate("def f():", SamplingParams(max_tokens=1))
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    llm.generate(["a", "b"] * 40, SamplingParams(max_tokens=200, ignore_eos=True))
    sys.exit("not interrupted")
except KeyboardInterrupt:
    pass
llm.engine.pool.check()
assert llm.engine.pool.num_free == 64 and not llm.engine.has_unfinished_requests()
assert llm.generate("def f():", SamplingParams(max_tokens=4, temperature=0))[0].finished
"""


def test_ctrl_c_in_the_middle_of_generate():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


def test_an_interrupt_reaches_the_default_handler():
    """A program that asked for the system's own handling is ended by it."""
    code = (
        "import os, signal; from minimoe.engine.interrupts import Interrupts\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "with Interrupts(): os.kill(os.getpid(), signal.SIGINT); print('held', flush=True)\n"
        "print('too far')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "held\n" and done.returncode == -signal.SIGINT


def test_steps_work_outside_the_main_thread(make_engine):
    from minimoe.engine.interrupts import Interrupts

    results = []

    def work():
        with Interrupts():
            results.append(run_all(make_engine(), [[5, 6]], SamplingParams(max_tokens=2, **GREEDY)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert len(results) == 1
