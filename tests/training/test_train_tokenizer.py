"""Training a tokenizer on little text."""

import json
import random
from itertools import islice

import pytest

from minimoe.errors import MinimoeError
from minimoe.tokenizer import Tokenizer
from minimoe.training import records
from minimoe.training.train_tokenizer import save_tokenizer, train_tokenizer

TEXTS = list(islice(records.documents(random.Random(0)), 200))


def test_a_small_vocabulary(tmp_path):
    save_tokenizer(train_tokenizer(TEXTS, 400), tmp_path)
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.vocab_size == 400
    text = "ünseen ☃ text\n\n\t 0123"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["eos_token"] == "<|end|>" and "chat_template" in config


def test_same_text_same_tokenizer():
    assert train_tokenizer(TEXTS, 400).to_str() == train_tokenizer(TEXTS, 400).to_str()


def test_too_little_text():
    with pytest.raises(MinimoeError, match="use more text"):
        train_tokenizer(["ab"], 2048)
