"""Bits per byte: windows, a model that knows nothing, and errors."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minimoe.bench import eval as verb
from minimoe.config import SHIPPED
from minimoe.errors import MinimoeError
from minimoe.tokenizer import Tokenizer

TOKENIZER = Tokenizer(SHIPPED / "tiny-moe")


class Uniform:
    """Every token equally likely; notes which positions it was asked for."""

    config = SimpleNamespace(max_position_embeddings=64)
    embed = SimpleNamespace(weight=torch.zeros(1))

    def __call__(self, ids):
        return torch.zeros(*ids.shape, 2048)


class Copies(Uniform):
    """Sure that a token follows itself plus one: right for ids that count up, at every position."""

    def __call__(self, ids):
        return 1e4 * torch.nn.functional.one_hot((ids + 1) % 2048, 2048).float()


@given(st.integers(1, 5000), st.integers(1, 3000))
def test_windows_score_every_token_once(count, size):
    size = min(size, count)
    scored = []
    for start, first in verb.windows(count, size):
        assert 0 <= start and start + size <= count
        assert first >= min(verb.OVERLAP, size // 2) or start + first == 0
        scored += range(start + first, start + size)
    assert scored == list(range(count))


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 96, 97, 500])
def test_a_uniform_model_needs_eleven_bits_a_token(count):
    ids = [0, *(5 + i % 2000 for i in range(count))]
    assert verb.total_bits(Uniform(), ids) == pytest.approx(11 * count, rel=1e-6)


def test_each_token_meets_its_own_logits():
    assert verb.total_bits(Copies(), list(range(300))) == pytest.approx(0, abs=1e-3)
    assert verb.total_bits(Copies(), [0, 1, 2, 9, 10, 11]) > 1000


def test_measure_counts_bytes():
    text = "größe = '☃'\n" * 20
    row = verb.measure(Uniform(), TOKENIZER, text)
    assert row["bytes"] == len(text.encode())
    assert row["bits_per_byte"] == pytest.approx(11 * row["tokens"] / row["bytes"])
    assert 0 < row["gzip_bits_per_byte"] < 8 and 0 < row["xz_bits_per_byte"] < 8


def test_special_tokens_in_a_file_are_plain_text():
    row = verb.measure(Uniform(), TOKENIZER, "<|end|>")
    assert row["tokens"] > 1


def test_against_token_by_token():
    """The oracle: one forward pass per token, over exactly the context its window gives it."""
    from minimoe.config import ModelConfig
    from minimoe.model.transformer import Transformer

    config = ModelConfig.tiny(vocab_size=2048, num_hidden_layers=2, max_position_embeddings=16)
    model = Transformer(config).double().init_weights(std=0.1).eval()
    ids = [0, *torch.randint(5, 2048, (29,), generator=torch.Generator().manual_seed(0)).tolist()]
    bits = 0.0
    with torch.inference_mode():
        for start, first in verb.windows(len(ids) - 1, 16):
            for at in range(start + first, start + 16):
                logits = model(torch.tensor([ids[start : at + 1]]))[0, -1].float()
                bits -= float(logits.log_softmax(-1)[ids[at + 1]]) / math.log(2)
    assert verb.total_bits(model, ids) == pytest.approx(bits, rel=1e-6)


def test_bad_input(tmp_path):
    (tmp_path / "empty.py").touch()
    (tmp_path / "image.png").write_bytes(b"\x89PNG\xff")
    for name, hint in (("none.py", "is not a file"), ("empty.py", "is empty"),
                       ("image.png", "is not UTF-8 text")):  # fmt: skip
        with pytest.raises(MinimoeError, match=hint):
            verb.read_text(tmp_path / name)
    for context in (0, 1, 65):
        with pytest.raises(MinimoeError, match="it must be between 2 and the model's 64"):
            verb.total_bits(Uniform(), [0, 1, 2], context)
