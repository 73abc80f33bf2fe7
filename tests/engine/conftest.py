"""A small random engine in float64, and a helper to build one with other limits."""

import pytest
import torch
from models import random_model, small_config

from minimoe.config import SHIPPED
from minimoe.engine.engine import Engine
from minimoe.model.serving import ServingModel
from minimoe.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def serving_model() -> ServingModel:
    return ServingModel(random_model(small_config(), torch.float64))


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer(SHIPPED / "tiny-moe")


@pytest.fixture
def make_engine(serving_model, tokenizer):
    def make(**changes) -> Engine:
        limits = {
            "max_model_len": 256,
            "max_num_seqs": 8,
            "max_num_batched_tokens": 64,
            "num_blocks": 128,
            "seed": 0,
        }
        return Engine(serving_model, tokenizer, **{**limits, **changes})

    return make
