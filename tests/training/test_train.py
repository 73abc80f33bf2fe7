import json

import numpy as np
import pytest
import torch

from minimoe.__main__ import main
from minimoe.checkpoint import load_checkpoint
from minimoe.config import ModelConfig
from minimoe.errors import MinimoeError
from minimoe.model import moe
from minimoe.model.transformer import moe_layers
from minimoe.ops.grouped_experts import experts_grouped_mm
from minimoe.training.batches import Batches, DomainStream, held_out_rows
from minimoe.training.corpus import save_corpus
from minimoe.training.evaluate import balance_report, expert_usage, held_out_loss, mixed_usage
from minimoe.training.recipe import Recipe, share_out
from minimoe.training.train import train
from minimoe.training.trainer import Trainer, step_losses

DOMAINS = ("code", "story", "chat", "json")
SMALL = ModelConfig(
    vocab_size=64, hidden_size=32, intermediate_size=48, moe_intermediate_size=8,
    num_hidden_layers=2, first_k_dense_replace=1, num_attention_heads=2,
    n_routed_experts=8, num_experts_per_tok=2,
    kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8,
)  # fmt: skip


def stream(seed, documents=120):
    """Documents that repeat one of three phrases: something to learn in a few steps."""
    random = np.random.default_rng(seed)
    phrases = random.integers(5, 64, (3, 6))
    parts = [[0, *np.tile(phrases[random.integers(3)], 3), 1] for _ in range(documents)]
    return np.concatenate(parts).astype(np.uint16)


@pytest.fixture(scope="module")
def corpus():
    sides = {f"{n}_train": stream(i) for i, n in enumerate(DOMAINS)}
    return sides | {f"{n}_heldout": stream(i, 20) for i, n in enumerate(DOMAINS)}


def recipe(**changes):
    return Recipe(**{"steps": 20, "rows": 8, "length": 32, "eval_every": 10} | changes)


def trainer(corpus, **changes):
    plan = recipe(**changes)
    streams = {name: corpus[f"{name}_train"] for name in DOMAINS}
    batches = Batches(streams, plan.row_counts(), plan.length, 0, plan.seed)
    return Trainer(SMALL, batches, plan)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Matrices this small are slower on two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return folder, train(SMALL, corpus, recipe(), folder)


def test_twenty_steps_lower_the_loss(trained):
    folder, record = trained
    first, last = record["curve"][0], record["curve"][-1]
    assert last["held_out_mean"] < first["held_out_mean"] - 0.5
    assert [point["step"] for point in record["curve"]] == [1, 10, 20]
    assert json.loads((folder / "training.json").read_text()) == record


def test_kept_checkpoint_is_the_best_and_gives_the_recorded_loss(trained, corpus):
    folder, record = trained
    assert record["best"]["held_out_mean"] == min(p["held_out_mean"] for p in record["curve"])
    rows = held_out_rows(corpus["code_heldout"], 32, 128)
    loss = held_out_loss(load_checkpoint(folder), rows)
    assert loss == pytest.approx(record["results"]["held_out"]["code"], abs=1e-3)


def test_the_same_seed_gives_the_same_weights_and_another_does_not(corpus):
    def run(seed):
        one = trainer(corpus, seed=seed)
        for _ in range(3):
            one.step()
        return weights(one.model)

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))


def test_a_resumed_run_equals_one_that_never_stopped(corpus, tmp_path):
    plan = recipe(steps=8, eval_every=4)
    whole = train(SMALL, corpus, plan, tmp_path / "whole")

    class Stopped(Exception):
        pass

    def stop(trainer, _):
        if trainer.done == 6:  # two steps after the last save: they are done again
            raise Stopped

    state = tmp_path / "state.pt"
    with pytest.raises(Stopped):
        train(SMALL, corpus, plan, tmp_path / "parts", state=state, report=stop)
    resumed = train(SMALL, corpus, plan, tmp_path / "parts", state=state)
    for name in ("train", "held_out", "load"):
        assert resumed["curve"][-1][name] == whole["curve"][-1][name]
    both = [weights(load_checkpoint(tmp_path / part)) for part in ("whole", "parts")]
    assert torch.equal(*both)


def test_a_step_moves_every_bias_by_at_most_the_rate(corpus):
    one = trainer(corpus)
    load = one.step()["load"]
    assert (load.sum(1) == 8 * 32 * SMALL.num_experts_per_tok).all()
    for layer, counts in zip(moe_layers(one.model), load, strict=True):
        moved = torch.sign(counts.float().mean() - counts) * 0.01
        assert torch.allclose(layer.router.bias, moved)


def test_schedule_rises_holds_and_falls_to_zero():
    plan = recipe(lr=1.0, warmup=0.1, hold=0.4)
    assert 0 < plan.lr_at(0.0) < plan.lr_at(0.05) < 1.0
    assert plan.lr_at(0.1) == plan.lr_at(0.39) == 1.0
    assert plan.lr_at(0.7) == pytest.approx(0.5)
    assert plan.lr_at(1.0) == 0.0
    assert [plan.bias_rate_at(p) for p in (0.0, 0.5, 0.9)] == [0.01, 0.003, 0.001]


@pytest.mark.parametrize("rows", [4, 5, 8, 31, 64, 128])
def test_rows_are_shared_out_in_full(rows):
    counts = share_out(rows, {"a": 0.6, "b": 0.1, "c": 0.18, "d": 0.12})
    assert sum(counts.values()) == rows and min(counts.values()) >= 1
    assert counts["a"] == max(counts.values())


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"steps": None}, "either steps or minutes"),
        ({"minutes": 1.0}, "not both"),
        ({"steps": 0}, "steps is 0"),
        ({"rows": -1}, "rows is -1"),
    ],
)
def test_bad_recipes_are_refused(changes, message):
    with pytest.raises(MinimoeError, match=message):
        recipe(**changes)


def test_fewer_rows_than_domains_are_refused():
    with pytest.raises(MinimoeError, match="3 rows cannot hold 4 domains"):
        recipe(rows=3).row_counts()


def test_rows_are_whole_in_bounds_and_start_documents(corpus):
    tokens = corpus["chat_train"]
    domain = DomainStream("chat", tokens, 32, begin_id=0, seed=3)
    rows = domain.rows(0, 2 * domain.windows)  # two epochs
    assert rows.shape == (2 * domain.windows, 33)
    starts = domain.starts(0, 2 * domain.windows)
    assert starts.min() >= 0 and starts.max() + 32 < len(tokens)
    assert (rows[:, 0] == 0).float().mean() > 0.95
    assert np.array_equal(tokens[starts[5] : starts[5] + 33], rows[5].numpy())


def test_an_epoch_of_code_covers_the_stream_evenly(corpus):
    domain = DomainStream("code", corpus["code_train"], 32, begin_id=0, seed=3)
    domain.aligned = 0.0
    starts = np.sort(domain.starts(0, domain.windows))
    assert (np.diff(starts) == 32).all()
    assert not np.array_equal(starts, np.sort(domain.starts(domain.windows, domain.windows)))


def test_a_stream_shorter_than_two_rows_is_refused():
    with pytest.raises(MinimoeError, match="'code' has 40 tokens, rows of 32"):
        DomainStream("code", np.zeros(40, dtype=np.uint16), 32, 0, 0)
    with pytest.raises(MinimoeError, match="20 held-out tokens"):
        held_out_rows(np.zeros(20, dtype=np.uint16), 32, 4)


def test_usage_counts_every_choice_and_leaves_the_model_as_it_was(corpus):
    model = trainer(corpus).model
    rows = held_out_rows(corpus["chat_heldout"], 32, 4)
    usage = expert_usage(model, rows)
    assert (usage.sum(1) == 4 * 32 * SMALL.num_experts_per_tok).all()
    assert model.training and all(not m.router._forward_hooks for m in moe_layers(model))


def test_balance_report_weighs_domains_not_tokens():
    usage = {"a": torch.tensor([[30, 10]]), "b": torch.tensor([[1, 3]])}
    assert torch.allclose(mixed_usage(usage, {"a": 1, "b": 1}), torch.tensor([[0.5, 0.5]]).double())
    report = balance_report(usage, {"a": 0.75, "b": 0.25})
    assert report["equal_mix"][0]["max"] == pytest.approx(1.0)
    assert report["training_mix"][0]["max"] == pytest.approx(1.25)
    assert report["usage_difference"]["a-b"] == [pytest.approx(0.5)]


def test_a_run_by_the_clock_ends_with_the_rate_at_zero(corpus, tmp_path):
    record = train(SMALL, corpus, recipe(steps=None, minutes=0.02), tmp_path)
    assert record["curve"][-1]["lr"] == 0.0
    assert record["seconds"] < 10


def test_the_verb_prints_one_json_object(corpus, tmp_path, capsys):
    meta = {"size": "small", "seed": 0, "python": "3", "tokens": {}}
    save_corpus(corpus | {"meta": meta}, tmp_path / "corpus.npz")
    words = "train --steps 2 --rows 4 --length 32 --device cpu --json --corpus".split()
    code = main([*words, str(tmp_path / "corpus.npz"), "--out", str(tmp_path / "run")])
    assert code == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
    assert (tmp_path / "run" / "tokenizer.json").is_file()
    assert str(tmp_path) not in (tmp_path / "run" / "training.json").read_text()


def test_a_bad_command_gives_one_clear_line(tmp_path, capsys):
    assert main(["train", "--steps", "2", "--minutes", "1", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "not both" in error


def test_the_step_of_the_gpu_compiles_as_one_graph(corpus, monkeypatch):
    """Anything in the model that breaks the graph would cost most of the GPU's speed."""
    monkeypatch.setattr(moe, "experts_train", experts_grouped_mm)
    one = trainer(corpus)
    batch = one.batches.draw(0)
    whole = torch.compile(step_losses, backend="eager", fullgraph=True, dynamic=False)
    rows, _, load = whole(one.model, batch)
    assert torch.allclose(rows, torch.tensor(64.0).log(), atol=0.2)  # a new model knows nothing
    assert load.sum() == batch[:, 1:].numel() * 2 * len(moe_layers(one.model))
