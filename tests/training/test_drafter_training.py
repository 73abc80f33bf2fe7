"""The drafter's loss, text and batches, and a whole training run of the verb on a toy model."""

import json

import numpy as np
import pytest
import torch
from models import random_model, small_config

from minimoe.__main__ import main
from minimoe.checkpoint import load_checkpoint, save_checkpoint
from minimoe.errors import MinimoeError
from minimoe.model.serving import ServingModel
from minimoe.speculative.dspark import DSpark
from minimoe.speculative.dspark_checkpoint import load_dspark
from minimoe.speculative.dspark_config import DSparkConfig
from minimoe.training.corpus import save_corpus
from minimoe.training.drafter_evaluate import held_out_prompts
from minimoe.training.drafter_loss import drafter_loss, expected_length, position_weights
from minimoe.training.drafter_recipe import DrafterRecipe
from minimoe.training.drafter_text import DrafterBatches, target_text
from minimoe.training.drafter_trainer import DrafterTrainer, drafter_optimizers
from minimoe.training.train_drafter import ablations

DOMAINS = ("code", "story", "chat", "json")


@pytest.fixture(scope="module")
def target():
    return random_model(small_config(vocab_size=64), torch.float32)


def recipe(**changes):
    small = {"minutes": 0.01, "rows": 8, "length": 48, "anchors": 6, "written": 16}
    return DrafterRecipe(**{**small, "mix": dict.fromkeys(DOMAINS, 1.0), **changes})


def rows_of(seed, count=2, length=48):
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randint(2, 64, (count, length), generator=random) for name in DOMAINS}


def test_loss_is_the_sum_of_its_parts():
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 5, generator=random, requires_grad=True)
    confidence = torch.randn(2, 3, generator=random)
    target = torch.softmax(torch.randn(2, 3, 5, generator=random), -1)
    ids = torch.randint(0, 5, (2, 3), generator=random)
    loss, chance = drafter_loss(logits, target, ids, confidence, position_weights(3, 4.0))
    q, total, share = torch.softmax(logits.detach(), -1), 0.0, 0.0
    for k in range(3):
        weight = np.exp(-k / 4.0)
        share += weight
        for n in range(2):
            accept = sum(
                min(float(a), float(b)) for a, b in zip(q[n, k], target[n, k], strict=True)
            )
            sure = float(torch.sigmoid(confidence[n, k]))
            entropy = -np.log(float(q[n, k, ids[n, k]]))
            binary = -(accept * np.log(sure) + (1 - accept) * np.log(1 - sure))
            total += weight / 2 * (0.1 * entropy + 0.9 * 2 * (1 - accept) + binary)
    assert loss.item() == pytest.approx(total / share, rel=1e-5)
    accepted = torch.minimum(q, target).sum(-1)
    torch.testing.assert_close(chance, accepted.mean(0))
    loss.backward()
    assert logits.grad.isfinite().all()


def test_expected_length_is_the_tail_sum():
    assert expected_length(torch.tensor([[1.0, 1.0, 1.0]])).tolist() == [4.0]
    assert expected_length(torch.tensor([[0.75, 0.75, 0.75]])).item() == pytest.approx(2.734375)
    assert expected_length(torch.tensor([[0.0, 1.0, 1.0]])).tolist() == [1.0]


def test_written_text_keeps_prompts_and_differs_behind_them(target):
    rows = rows_of(0)
    out = target_text(ServingModel(target), rows, batch=5, seed=0)
    for name in DOMAINS:
        assert out[name].shape == rows[name].shape
        same = out[name] == rows[name]
        assert same[:, :16].all() and not same.all(1).any()


def test_batches_are_half_written_and_depend_on_the_step_alone():
    corpus, written = rows_of(0), rows_of(1)
    counts = dict.fromkeys(DOMAINS, 3)
    device = torch.device("cpu")
    batches = DrafterBatches(corpus, written, counts, 0, device)
    again = DrafterBatches(corpus, written, counts, 0, device)
    texts = {tuple(row) for rows in written.values() for row in rows.tolist()}
    found = 0
    for step in range(4):
        batch = batches.draw(step)
        assert batch.shape == (12, 48) and torch.equal(batch, again.draw(step))
        found += sum(tuple(row) in texts for row in batch.tolist())
    assert found == 24
    assert not torch.equal(batches.draw(0), batches.draw(2))


def test_training_lowers_the_loss_of_every_drafter(target):
    configs = ablations(DSparkConfig.of(target, layers=1, taps=(0, 2), markov_rank=8, length=3))
    assert list(configs) == ["main", "no_markov"]
    corpus = rows_of(0)
    written = target_text(ServingModel(target), corpus, 16, 0)
    plan = recipe(minutes=10.0)
    batches = DrafterBatches(corpus, written, plan.row_counts(), 0, torch.device("cpu"))
    trainer = DrafterTrainer(target, configs, batches, plan)
    before = {n: p.clone() for n, p in target.named_parameters()}
    trainer.step()
    first = trainer.losses.clone()
    for _ in range(20):
        trainer.step()
    assert (trainer.losses < first - 0.02).all()
    assert trainer.chances.shape == (2, 3)
    assert all(torch.equal(p, before[n]) for n, p in target.named_parameters())


def test_tables_go_to_adamw_and_matrices_to_muon(target):
    dspark = DSpark(DSparkConfig.of(target, layers=1, taps=(0,)), target.config)
    muon, adamw = drafter_optimizers(dspark, recipe())
    names = {id(p): name for name, p in dspark.named_parameters()}
    held = [[names[id(p)] for g in o.param_groups for p in g["params"]] for o in (muon, adamw)]
    assert sorted(held[0] + held[1]) == sorted(names.values())
    assert "markov_in.weight" in held[1] and "fuse.weight" in held[0]


def test_schedule_rises_holds_and_falls_to_zero():
    plan = recipe(lr=1.0)
    assert plan.lr_at(0.01) == pytest.approx(0.5)
    assert plan.lr_at(0.3) == 1.0
    assert plan.lr_at(0.7) == pytest.approx(0.5)
    assert plan.lr_at(1.0) == 0.0
    with pytest.raises(MinimoeError, match="anchors is 0"):
        recipe(anchors=0)


def test_held_out_prompts_begin_at_documents():
    random = np.random.default_rng(0)
    stream = np.concatenate([[0, *random.integers(2, 9, 30), 1] for _ in range(40)])
    corpus = {f"{name}_heldout": stream.astype(np.uint16) for name in DOMAINS}
    prompts = held_out_prompts(corpus, 6, 10)
    assert all(rows.shape == (6, 10) for rows in prompts.values())
    assert (prompts["chat"][:, 0] == 0).all()
    with pytest.raises(MinimoeError, match="held-out story has 40 places"):
        held_out_prompts(corpus, 64, 10)


def test_the_verb_leaves_a_drafter_and_its_record(tmp_path, target, monkeypatch, capsys):
    random = np.random.default_rng(0)
    documents = [[0, *random.integers(2, 64, 120), 1] for _ in range(20)]
    stream = np.concatenate(documents).astype(np.uint16)
    corpus = {f"{n}_{part}": stream for n in DOMAINS for part in ("train", "heldout")}
    save_corpus({**corpus, "meta": {}}, tmp_path / "corpus.npz")
    save_checkpoint(target, tmp_path / "model")
    monkeypatch.setattr("minimoe.training.train_drafter.PROMPT", 10)
    plan = {"cpu": {"count": 2, "new_tokens": 8}}
    monkeypatch.setattr("minimoe.training.train_drafter.HELD_OUT", plan)
    out = tmp_path / "drafter"
    command = ["train-drafter", "--minutes", "0.02", "--device", "cpu", "--out", str(out), "--rows",
               "4", "--length", "64", "--anchors", "4", "--written", "8", "--layers", "2",
               "--model", str(tmp_path / "model"), "--corpus", str(tmp_path / "corpus.npz"),
               "--markov-rank", "4", "--ablations", "--json"]  # fmt: skip
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    kept = json.loads((out / "training.json").read_text())
    assert kept["results"] == told["results"] and kept["steps"] >= 1
    assert kept["drafters"]["no_markov"]["markov_rank"] == 0
    assert str(tmp_path) not in (out / "training.json").read_text()
    model = load_checkpoint(tmp_path / "model")
    assert load_dspark(out, model).config.layers == 2
    assert load_dspark(out / "ablations" / "layers_1", model).config.layers == 1
    with np.load(out / "validation.npz", allow_pickle=False) as arrays:
        assert arrays["confidence"].shape == (len(arrays["accepted"]), 5)
        assert set(arrays["temperature"]) == {0, 1}
    assert main([*command, "--length", "4096"]) == 2
    assert "exceeds the model's 256 positions" in capsys.readouterr().err
