"""The tokenizer: lossless, never half a character, and the same ids as transformers."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minimoe.config import SHIPPED
from minimoe.errors import MinimoeError
from minimoe.tokenizer import SPECIAL_TOKENS, Tokenizer

FOLDER = SHIPPED / "tiny-moe"
CHAT = [
    {"role": "user", "content": "What is 12 + 34?\n"},
    {"role": "assistant", "content": "12 + 34 = 46."},
    {"role": "user", "content": "  Danke, schön ☃"},
]
CODE = "class A:\n    def f(self, x=None):\n\n        return x[10:]  # \t é ☃ \U0001f600\r\n"


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(FOLDER)


@pytest.fixture(scope="module")
def reference():
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(FOLDER, local_files_only=True)


def test_vocabulary(tokenizer):
    assert tokenizer.vocab_size == 2048
    assert [tokenizer.backend.token_to_id(name) for name in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert (tokenizer.bos_id, tokenizer.eos_id) == (0, 1)


@given(st.text())
@example(CODE)
@example("<|end|> \x00 <|user|>")
def test_round_trip(text):
    tokenizer = Tokenizer(FOLDER)
    assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == text
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


@given(st.text())
@example(CODE)
def test_stream_gives_whole_characters(text):
    tokenizer = Tokenizer(FOLDER)
    stream = tokenizer.stream()
    pieces = [stream.push([token]) for token in tokenizer.encode(text, parse_special=False)]
    assert "".join(pieces) == text and stream.flush() == ""
    assert all("\ufffd" not in piece or "\ufffd" in text for piece in pieces)


@given(st.lists(st.integers(0, 2047)))
def test_stream_equals_decode_for_any_ids(ids):
    tokenizer = Tokenizer(FOLDER)
    stream = tokenizer.stream()
    text = "".join(stream.push([token]) for token in ids) + stream.flush()
    assert text == tokenizer.decode(ids)


def test_flush_marks_a_character_cut_short(tokenizer):
    snowman = tokenizer.encode("☃")
    assert len(snowman) > 1
    stream = tokenizer.stream()
    assert stream.push(snowman[:-1]) == ""
    assert stream.flush() == "\ufffd"
    assert stream.push(snowman) == "☃"


def test_digits_are_single_and_lines_break_before_indentation(tokenizer):
    words = [tokenizer.decode([i]) for i in tokenizer.encode("if x:\n        y = 1234")]
    assert words[-4:] == ["1", "2", "3", "4"]
    assert "\n        " in words
    assert not any("\n" in word and word.strip() for word in words)


def test_special_tokens_are_parsed_or_not(tokenizer):
    assert tokenizer.encode("<|end|>") == [1]
    assert len(tokenizer.encode("<|end|>", parse_special=False)) > 1
    assert tokenizer.encode("a<|end|>", bos=True)[0] == 0
    assert tokenizer.decode([0, 1, 2, 3]) == ""


def test_chat_ids(tokenizer):
    ids = tokenizer.chat_ids(CHAT)
    assert ids[:2] == [0, 2] and ids[-1] == 3
    assert ids.count(1) == 1  # one answer, one end
    assert tokenizer.chat_ids(CHAT, add_generation_prompt=False) == ids[:-1]


def test_documents_begin_and_end_once(tokenizer):
    plain, chat = tokenizer.encode_documents(["x = 1", "<|user|>a<|assistant|>b<|end|>"])
    assert (plain[0], plain[-1]) == (0, 1) and plain.count(1) == 1
    assert (chat[0], chat[-1]) == (0, 1) and chat.count(1) == 1


@pytest.mark.parametrize("text", [CODE, "", "x" * 3000, "<|end|>a", "  \n\n\t é"])
def test_transformers_gives_the_same_ids(tokenizer, reference, text):
    assert reference(text)["input_ids"] == tokenizer.encode(text)
    ids = tokenizer.encode(text)
    assert reference.decode(ids) == tokenizer.decode(ids, skip_special=False)


@pytest.mark.parametrize("generation", [True, False])
def test_transformers_gives_the_same_chat_ids(tokenizer, reference, generation):
    text = reference.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=generation)
    assert text == tokenizer.chat_text(CHAT, generation)
    assert reference(text)["input_ids"] == tokenizer.chat_ids(CHAT, generation)
    assert (reference.bos_token_id, reference.eos_token_id) == (0, 1)


def test_missing_file(tmp_path):
    with pytest.raises(MinimoeError, match="not found; give a folder"):
        Tokenizer(tmp_path)


def test_damaged_file(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(MinimoeError, match="is not a tokenizer file"):
        Tokenizer(tmp_path)


def test_foreign_tokenizer(tmp_path):
    data = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
    data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] != "<|user|>"]
    data["model"]["vocab"]["<|other|>"] = data["model"]["vocab"].pop("<|user|>")
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(MinimoeError, match="has no token <|user|>"):
        Tokenizer(tmp_path)


@pytest.mark.parametrize("token", [-1, 2048, 10**9])
def test_id_out_of_range(tokenizer, token):
    with pytest.raises(MinimoeError, match=r"outside 0\.\.2047"):
        tokenizer.decode([5, token])


@pytest.mark.parametrize(
    "messages, hint",
    [
        ([], "no messages"),
        ([{"role": "assistant", "content": "a"}], "must be 'user'"),
        ([{"role": "system", "content": "a"}], "no system role"),
        ([CHAT[0], CHAT[0]], "must be 'assistant'"),
        ([{"role": "user", "content": None}], "needs a str"),
    ],
)
def test_bad_messages(tokenizer, messages, hint):
    with pytest.raises(MinimoeError, match=hint):
        tokenizer.chat_ids(messages)


def test_text_must_be_str(tokenizer):
    with pytest.raises(MinimoeError, match="pass a str"):
        tokenizer.encode(b"bytes")
