"""The drafter in its textbook form, and its serving form against it."""

import pytest
import torch
from models import random_model, small_config

from minimoe.errors import CheckpointError
from minimoe.model.serving import ServingModel
from minimoe.model.step import ShortGroup, Step
from minimoe.speculative.dspark import DSpark, block_mask, hidden_and_taps
from minimoe.speculative.dspark_checkpoint import load_dspark, save_dspark
from minimoe.speculative.dspark_config import DSparkConfig, weights_hash
from minimoe.speculative.serving_dspark import ServingDSpark

BLOCK = 4
G = 5


def random_dspark(model, **changes):
    config = DSparkConfig.of(model, **{"layers": 2, "taps": (0, 2), "markov_rank": 6, **changes})
    dspark = DSpark(config, model.config).init_weights(std=0.3, seed=1)
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in dspark.parameters():
            if parameter.ndim < 2 or not parameter.any():
                parameter.normal_(0.5, 0.3, generator=random)
    return dspark.to(model.embed.weight.dtype).eval().requires_grad_(False)


def textbook_blocks(model, dspark, ids, anchors):
    _, taps = hidden_and_taps(model, ids, dspark.config.taps)
    return taps, dspark(model.embed.weight, model.turns(ids.device), taps, ids, anchors)


def block_step(starts, tables, flat: bool) -> Step:
    """The step of one block a request: as padded requests, or every token a row of its own."""
    positions = torch.stack([torch.arange(p, p + G) for p in starts])
    slots = tables.gather(1, positions // BLOCK) * BLOCK + positions % BLOCK
    lengths, S = torch.tensor(starts) + G, max(starts) + G
    if flat:
        group = ShortGroup(
            tokens=len(starts) * G, requests=len(starts) * G, length=S, mask=None, new_tokens=1,
            block_table=tables.repeat_interleave(G, 0).flatten(),
            lengths=lengths.repeat_interleave(G),
        )  # fmt: skip
    else:
        hidden = torch.arange(S) >= lengths[:, None]
        mask = torch.zeros(hidden.shape, dtype=torch.float64).masked_fill_(hidden, -torch.inf)
        group = ShortGroup(
            tokens=len(starts) * G, requests=len(starts), length=S, new_tokens=G,
            block_table=tables.flatten(), mask=mask[:, None],
        )  # fmt: skip
    return Step(positions.flatten(), positions.flatten(), slots.flatten(), None, short=group)


@pytest.mark.parametrize("flat", [False, True], ids=["padded", "one row a token"])
@pytest.mark.parametrize(
    "changes", [{}, {"kv_lora_rank": 64}, {"q_lora_rank": 24}], ids=["merged", "apart", "low rank"]
)
def test_serving_is_the_textbook(changes, flat):
    model = random_model(small_config(**changes))
    dspark = random_dspark(model)
    ids = torch.randint(0, 2048, (3, 40), generator=torch.Generator().manual_seed(3))
    starts = [7, 2, 33]  # anchors; the last block reaches past the end of the text
    taps, expected = textbook_blocks(model, dspark, ids, torch.tensor(starts)[:, None])

    serving = ServingDSpark(dspark, ServingModel(model))
    tables = torch.randperm(40)[:30].view(3, 10)
    plane = torch.full((serving.layers, 40, BLOCK, serving.width), 3.0, dtype=torch.float64)
    pages = serving.pages(plane)
    for row, start in enumerate(starts):
        positions = torch.arange(start)
        slots = tables[row, positions // BLOCK] * BLOCK + positions % BLOCK
        for part in (slice(0, 1), slice(1, start)):  # in two pieces
            serving.inject(taps[row, part][:start], positions[part], slots[part], pages)
    anchors = ids.gather(1, torch.tensor(starts)[:, None])[:, 0]
    hidden = serving.backbone(anchors, block_step(starts, tables, flat), pages)
    torch.testing.assert_close(hidden, expected[:, 0], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("rank", [0, 6])
@pytest.mark.parametrize("table", [True, False])
def test_heads_are_the_textbook(rank, table, monkeypatch):
    monkeypatch.setattr("minimoe.speculative.serving_dspark.TABLE_BYTES", 2**40 if table else 0)
    model = random_model(small_config())
    dspark = random_dspark(model, markov_rank=rank)
    serving = ServingDSpark(dspark, ServingModel(model))
    random = torch.Generator().manual_seed(4)
    hidden = torch.randn(3, G, 48, generator=random, dtype=torch.float64)
    previous = torch.randint(0, 2048, (3,), generator=random)
    base = serving.base_logits(hidden)
    for k in range(G):
        expected = dspark.logits(hidden[:, k], previous, model.head.weight)
        torch.testing.assert_close(serving.logits(hidden[:, k], previous), expected)
        bias = serving.bias(previous)
        torch.testing.assert_close(base[:, k] + (0 if bias is None else bias), expected)
        sure = dspark.confidence(hidden[:, k], previous)
        torch.testing.assert_close(serving.confidence(hidden[:, k], previous), sure)


def test_a_block_sees_the_context_before_it_itself_and_nothing_else():
    mask = block_mask(torch.tensor([[2, 4]]), positions=6, length=2)[0, 0]
    assert mask.shape == (4, 10)
    assert mask[:, :6].sum(1).tolist() == [2, 2, 4, 4]
    assert mask[:, 6:].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


def test_other_blocks_and_later_text_do_not_matter():
    model = random_model(small_config())
    dspark = random_dspark(model)
    ids = torch.randint(0, 2048, (1, 30), generator=torch.Generator().manual_seed(5))
    _, many = textbook_blocks(model, dspark, ids, torch.tensor([[3, 9, 9, 20]]))
    ids[:, 10:] = 7
    _, alone = textbook_blocks(model, dspark, ids, torch.tensor([[9]]))
    torch.testing.assert_close(many[:, 1], alone[:, 0])
    torch.testing.assert_close(many[:, 2], alone[:, 0])


def test_saved_and_loaded(tmp_path):
    model = random_model(small_config(), torch.float32)
    dspark = random_dspark(model)
    save_dspark(dspark, tmp_path)
    again = load_dspark(tmp_path, model)
    assert again.config == dspark.config
    for name, value in dspark.state_dict().items():
        assert torch.equal(again.state_dict()[name], value.bfloat16().float()), name


def test_the_hash_is_of_the_weights_in_any_dtype():
    model = random_model(small_config(), torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    same = weights_hash(model)
    assert weights_hash(model.double()) == same
    assert weights_hash(model.bfloat16()) == same
    assert weights_hash(random_model(small_config(), seed=1)) != same


def test_a_drafter_of_another_model_is_refused(tmp_path):
    model = random_model(small_config())
    save_dspark(random_dspark(model), tmp_path)
    with pytest.raises(CheckpointError, match="weights .* this model has"):
        load_dspark(tmp_path, random_model(small_config(), seed=1))
    with pytest.raises(CheckpointError, match="2048 tokens .* this one has 100"):
        load_dspark(tmp_path, random_model(small_config(vocab_size=100)))
    with pytest.raises(CheckpointError, match="48 hidden values .* has 24"):
        load_dspark(tmp_path, random_model(small_config(hidden_size=24)))
    with pytest.raises(CheckpointError, match="layer 2 and the model has 2 layers"):
        load_dspark(tmp_path, random_model(small_config(num_hidden_layers=2)))


def test_damaged_folders_are_refused(tmp_path):
    model = random_model(small_config())
    with pytest.raises(CheckpointError, match="no drafter"):
        load_dspark(tmp_path / "none", model)
    save_dspark(random_dspark(model), tmp_path)
    config = (tmp_path / "config.json").read_text()
    for broken, words in (
        (config.replace('"dspark"', '"deepseek_v3"'), "is no drafter"),
        (config.replace('"length": 5', '"length": 0'), "length is 0"),
        (config.replace('"markov_rank": 6', '"markov_rank": 7'), "has shape"),
        (config.replace('"markov_rank": 6', '"markov_rank": 0'), "has shape|not part"),
        (config.replace('"layers": 2', '"layers": 3'), "is missing"),
        ("[1]", "model_type None"),
        ("{", "not valid JSON"),
    ):
        (tmp_path / "config.json").write_text(broken)
        with pytest.raises(CheckpointError, match=words):
            load_dspark(tmp_path, model)
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(b"12345678")
    with pytest.raises(CheckpointError, match="copy the file again"):
        load_dspark(tmp_path, model)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        load_dspark(tmp_path, model)
