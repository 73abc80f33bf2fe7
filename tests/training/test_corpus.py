"""The corpus file: what is in it, that it is the same each time, and errors."""

import numpy as np
import pytest

from minimoe.config import SHIPPED
from minimoe.errors import MinimoeError
from minimoe.tokenizer import Tokenizer
from minimoe.training.corpus import DOMAINS, SIZES, build_corpus, load_corpus, save_corpus


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(SHIPPED / "tiny-moe")


@pytest.fixture(scope="module")
def small(tokenizer):
    return build_corpus(tokenizer, "small")


def test_small_corpus(small, tokenizer):
    for domain in DOMAINS:
        train, held_out = small[f"{domain}_train"], small[f"{domain}_heldout"]
        assert train.dtype == held_out.dtype == np.uint16
        assert train[0] == held_out[0] == tokenizer.bos_id
        assert train.max() < tokenizer.vocab_size and len(train) > 5 * len(held_out) / 2
    assert len(small["chat_train"]) == SIZES["small"]["chat"]
    assert small["meta"]["tokens"]["json_train"] == len(small["json_train"])


def test_documents_are_closed(small, tokenizer):
    ids = small["code_train"]
    begins = np.flatnonzero(ids == tokenizer.bos_id)
    assert len(begins) == small["meta"]["code_files"]["train"]
    assert (ids[begins[1:] - 1] == tokenizer.eos_id).all() and ids[-1] == tokenizer.eos_id


def test_same_seed_same_file(small, tokenizer):
    again, other = build_corpus(tokenizer, "small"), build_corpus(tokenizer, "small", seed=1)
    assert all(np.array_equal(small[k], again[k]) for k in small if k != "meta")
    assert not np.array_equal(small["story_train"], other["story_train"])
    assert not np.array_equal(small["chat_train"][:20000], small["chat_heldout"])


def test_save_and_load(small, tmp_path):
    save_corpus(small, tmp_path / "folder" / "corpus.npz")
    loaded = load_corpus(tmp_path / "folder" / "corpus.npz")
    assert loaded["meta"] == small["meta"]
    assert all(np.array_equal(loaded[k], small[k]) for k in small if k != "meta")
    assert [p.name for p in (tmp_path / "folder").iterdir()] == ["corpus.npz"]


def test_errors(tokenizer, tmp_path):
    with pytest.raises(MinimoeError, match="size 'huge' is not known"):
        build_corpus(tokenizer, "huge")
    with pytest.raises(MinimoeError, match="not found; make it with"):
        load_corpus(tmp_path / "corpus.npz")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(MinimoeError, match="is not a corpus: it has no code_train"):
        load_corpus(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(MinimoeError, match="is not a corpus"):
        load_corpus(tmp_path / "text.npz")
