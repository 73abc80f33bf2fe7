"""Random models in folders, as an `LLM` wants them, and engines with a store."""

import random
import shutil

import pytest
import torch
from models import random_model, small_config

from minimoe import LLM
from minimoe.checkpoint import save_checkpoint
from minimoe.config import SHIPPED


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A small random checkpoint with the shipped tokenizer."""
    return save_random(tmp_path_factory.mktemp("model"), seed=0)


def save_random(folder, seed):
    save_checkpoint(random_model(small_config(), torch.float32, seed), folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / "tiny-moe" / name, folder)
    return folder


@pytest.fixture
def make_llm(model_folder):
    """`LLM`s over that checkpoint in float64; closed at the end.

    A store is loaded from whenever it holds a block, however slow the disk of a busy machine is;
    `rule=True` leaves the engine's own judgement.
    """
    made = []

    def make(folder=model_folder, rule=False, **settings):
        llm = LLM(folder, **{"dtype": "float64", "max_num_batched_tokens": 64} | settings)
        if settings.get("kv_store") and not rule:
            llm.engine.reuse.disk.worth_loading = lambda blocks: True
        made.append(llm)
        return llm

    yield make
    for llm in made:
        llm.close()


@pytest.fixture
def prompt_of():
    """Random token ids: the same for the same length and seed."""
    return lambda n, seed=0: random.Random(f"{n} {seed}").choices(range(5, 2048), k=n)
