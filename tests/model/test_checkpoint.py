"""Checkpoints: transformers is the outside oracle, and every kind of damage names its tensor."""

import json

import pytest
import torch
from models import random_model, small_config
from safetensors.torch import load_file, save_file

from minimoe.checkpoint import checkpoint_folder, load_checkpoint, save_checkpoint
from minimoe.config import ModelConfig
from minimoe.errors import CheckpointError


def from_transformers(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize("changes", [{}, {"q_lora_rank": 24}, {"n_group": 4, "topk_group": 2}])
def test_transformers_reads_what_we_write(tmp_path, changes):
    save_checkpoint(random_model(small_config(**changes)), tmp_path)
    ids = torch.randint(0, 2048, (2, 60), generator=torch.Generator().manual_seed(0))
    ours, theirs = load_checkpoint(tmp_path), from_transformers(tmp_path)
    with torch.inference_mode():
        torch.testing.assert_close(ours(ids), theirs(ids).logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("sharded", [False, True])
def test_we_read_what_transformers_writes(tmp_path, sharded):
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    yarn |= {"mscale": 1.0, "mscale_all_dim": 0.7, "rope_theta": 10000.0}
    fields = ModelConfig.tiny().__dict__ | small_config(q_lora_rank=24).__dict__
    fields |= {"num_nextn_predict_layers": 0, "rope_parameters": yarn, "vocab_size": 99}
    fields = {k: v for k, v in fields.items() if k not in ("rope_theta", "rope_scaling")}
    config = DeepseekV3Config(**fields, num_key_value_heads=fields["num_attention_heads"])
    theirs = DeepseekV3ForCausalLM(config).float().eval()
    for parameter in theirs.parameters():
        parameter.data.normal_(0, 0.2, generator=torch.Generator().manual_seed(1))
    theirs.save_pretrained(tmp_path, **({"max_shard_size": "40KB"} if sharded else {}))
    assert (tmp_path / "model.safetensors.index.json").exists() == sharded
    ids = torch.randint(0, 99, (2, 200), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = theirs(ids).logits
        torch.testing.assert_close(load_checkpoint(tmp_path)(ids), expected, atol=1e-4, rtol=0)


def test_round_trip_is_exact_in_bfloat16(tmp_path):
    model = random_model(small_config(), torch.bfloat16)
    save_checkpoint(model, tmp_path)
    again = load_checkpoint(tmp_path, torch.bfloat16)
    for name, value in model.state_dict().items():
        if "bias" not in name:
            assert torch.equal(value, again.state_dict()[name]), name
    assert again.layers[1].ffn.router.bias.dtype == torch.float32


@pytest.fixture
def folder(tmp_path):
    save_checkpoint(random_model(small_config()), tmp_path)
    return tmp_path


def rewrite(folder, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


NAME = "model.layers.1.mlp.experts.5.up_proj.weight"


def test_missing_tensor(folder):
    rewrite(folder, lambda t: t.pop(NAME))
    with pytest.raises(CheckpointError, match=f"tensor {NAME} is missing"):
        load_checkpoint(folder)


def test_tensor_of_wrong_shape(folder):
    rewrite(folder, lambda t: t.update({NAME: t[NAME][:, :-1].contiguous()}))
    with pytest.raises(CheckpointError, match=rf"tensor {NAME} has shape \[16, 47\].*\[16, 48\]"):
        load_checkpoint(folder)


def test_unknown_tensor(folder):
    rewrite(folder, lambda t: t.update({"model.extra.weight": torch.zeros(2)}))
    with pytest.raises(CheckpointError, match="tensor model.extra.weight is not part of"):
        load_checkpoint(folder)


def test_layers_for_multi_token_prediction_are_ignored(folder):
    rewrite(folder, lambda t: t.update({"model.layers.3.eh_proj.weight": torch.zeros(2)}))
    load_checkpoint(folder)


@pytest.mark.parametrize("keep", [0.0, 0.00001, 0.5, 0.9999])
def test_truncated_file(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(CheckpointError, match="tensor .* is cut off|header is damaged") as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)


def rewrite_header(folder, change) -> None:
    """Change the JSON header of the weights file by hand."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.dumps(change(json.loads(data[8 : 8 + length]))).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])


@pytest.mark.parametrize(
    "change",
    [
        lambda header: [],
        lambda header: 7,
        lambda header: header | {NAME: {"dtype": "BF16"}},
        lambda header: header | {NAME: header[NAME] | {"dtype": "X9"}},
        lambda header: header | {NAME: header[NAME] | {"data_offsets": [0]}},
        lambda header: header | {NAME: header[NAME] | {"data_offsets": [0, 2]}},
    ],
)
def test_damaged_headers_are_one_line(folder, change):
    rewrite_header(folder, change)
    with pytest.raises(CheckpointError, match="copy the file again") as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["foo", "model.layers", "", "model.layers.x.w"])
def test_tensors_of_strange_names(folder, name):
    rewrite(folder, lambda t: t.update({name: torch.zeros(2)}))
    with pytest.raises(CheckpointError, match="is not part of this architecture"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    "text", ["{}", "[]", "{", '{"weight_map": []}', '{"weight_map": {"a": 1}}']
)
def test_damaged_index(folder, text):
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match="no weight_map"):
        load_checkpoint(folder)


def test_whole_numbers_are_no_weights(folder):
    rewrite(folder, lambda t: t.update({NAME: t[NAME].int()}))
    with pytest.raises(CheckpointError, match=f"tensor {NAME} is torch.int32"):
        load_checkpoint(folder)


def test_missing_file(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="file model.safetensors is missing"):
        load_checkpoint(folder)


def test_unknown_folder_lists_what_there_is():
    with pytest.raises(CheckpointError, match="no model 'nope': give one of .*wide"):
        checkpoint_folder("nope")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "llama"}, "model_type 'llama' is not supported"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantized weights"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope type 'longrope'"),
        ({"attention_bias": True}, "attention_bias True"),
        ({"num_experts_per_tok": 99}, "num_experts_per_tok 99 exceeds n_routed_experts 8"),
        ({"n_group": 3}, "not a multiple of n_group 3"),
        ({"n_group": 0}, "n_group is 0: it must be a whole number >= 1"),
        ({"topk_group": 2}, "topk_group 2 exceeds n_group 1"),
        ({"n_group": 8, "topk_group": 1}, "exceeds the 1 experts of topk_group 1"),
        ({"hidden_size": "48"}, "hidden_size is '48'"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
        ({"rope_theta": None}, "rope_theta is None"),
        ({"rms_norm_eps": -1}, "rms_norm_eps is -1"),
        ({"q_lora_rank": -3}, "q_lora_rank is -3"),
        ({"rope_scaling": {"type": "yarn"}}, "yarn needs a number as factor"),
        ({"scoring_func": "softmax"}, "scoring_func 'softmax'"),
        ({"kv_lora_rank": 15}, "kv_lora_rank 15 is odd"),
        ({"qk_rope_head_dim": 3}, "qk_rope_head_dim 3 is odd"),
    ],
)
def test_configurations_that_are_refused(folder, change, message):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)


def test_config_that_is_no_json(folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        load_checkpoint(folder)


def test_defaults_are_deepseek_v3(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "deepseek_v3"}')
    assert ModelConfig.load(tmp_path) == ModelConfig()
