"""Reading and writing checkpoints in the Hugging Face DeepSeek-V3 layout.

A folder holds `config.json` and `model.safetensors`, or shards with an index beside them. Each
expert's matrices are tensors of their own there; here they are slices of one stacked tensor.
"""

import json
import re
import struct
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from minimoe.config import SHIPPED, ModelConfig
from minimoe.errors import CheckpointError
from minimoe.model.moe import DenseMLP
from minimoe.model.transformer import Transformer

BUFFER_NAMES = "e_score_correction_bias"


def checkpoint_folder(model: str | Path) -> Path:
    """The folder of a shipped name such as "tiny-moe", or the given folder itself."""
    for folder in (Path(model), SHIPPED / model):
        if (folder / "config.json").is_file():
            return folder
    shipped = sorted(path.parent.name for path in SHIPPED.glob("*/tokenizer.json"))
    names = ", ".join([*shipped, "wide"])
    raise CheckpointError(
        f"no model {str(model)!r}: give one of {names}, or a folder that holds config.json"
    )


def hf_tensors(model: Transformer) -> dict[str, torch.Tensor]:
    """Hugging Face tensor names to the parameters, or slices of parameters, that hold them."""
    out = {"model.embed_tokens.weight": model.embed.weight, "model.norm.weight": model.norm.weight}
    if not model.config.tie_word_embeddings:
        out["lm_head.weight"] = model.head.weight
    for index, layer in enumerate(model.layers):
        names = {
            "input_layernorm.weight": layer.attn_norm.weight,
            "post_attention_layernorm.weight": layer.ffn_norm.weight,
            **_attention_tensors(layer.attn),
            **_ffn_tensors(layer.ffn),
        }
        out |= {f"model.layers.{index}.{name}": tensor for name, tensor in names.items()}
    return out


def _attention_tensors(attn) -> dict[str, torch.Tensor]:
    if attn.config.q_lora_rank:
        query = {"q_a_proj": attn.q_a, "q_a_layernorm": attn.q_norm, "q_b_proj": attn.q}
    else:
        query = {"q_proj": attn.q}
    rest = {
        "kv_a_proj_with_mqa": attn.kv_a,
        "kv_a_layernorm": attn.kv_norm,
        "kv_b_proj": attn.kv_b,
        "o_proj": attn.o,
    }
    return {f"self_attn.{name}.weight": part.weight for name, part in (query | rest).items()}


def _ffn_tensors(ffn) -> dict[str, torch.Tensor]:
    if isinstance(ffn, DenseMLP):
        return _mlp_tensors("mlp", ffn.gate_up.weight, ffn.down.weight)
    out = {
        "mlp.gate.weight": ffn.router.weight,
        "mlp.gate.e_score_correction_bias": ffn.router.bias,
        **_mlp_tensors("mlp.shared_experts", ffn.shared.gate_up.weight, ffn.shared.down.weight),
    }
    for expert in range(ffn.experts.gate_up.shape[0]):
        gate_up, down = ffn.experts.gate_up[expert], ffn.experts.down[expert]
        out |= _mlp_tensors(f"mlp.experts.{expert}", gate_up, down)
    return out


def _mlp_tensors(prefix: str, gate_up, down) -> dict[str, torch.Tensor]:
    gate, up = gate_up.chunk(2)
    return {
        f"{prefix}.gate_proj.weight": gate,
        f"{prefix}.up_proj.weight": up,
        f"{prefix}.down_proj.weight": down,
    }


@torch.no_grad()
def save_checkpoint(model: Transformer, folder: str | Path) -> Path:
    """Write `config.json` and `model.safetensors` (bfloat16, router biases float32)."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save(folder)
    tensors = {}
    for name, tensor in hf_tensors(model).items():
        dtype = torch.float32 if name.endswith(BUFFER_NAMES) else torch.bfloat16
        tensors[name] = tensor.detach().to("cpu", dtype, copy=True).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@torch.no_grad()
def load_checkpoint(
    folder: str | Path, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> Transformer:
    """Read any DeepSeek-V3 style checkpoint that fits in memory.

    Raises CheckpointError, naming the tensor, when one is missing, unknown, cut off or of a shape
    that the configuration does not have.
    """
    folder = checkpoint_folder(folder)
    config = ModelConfig.load(folder)
    with torch.device("meta"):
        model = Transformer(config)
    # What `to_empty` does, without the import of sympy that it costs on first use.
    model = model.to(dtype)._apply(lambda x: torch.empty(x.shape, dtype=x.dtype, device=device))
    for layer in model.layers:
        if not isinstance(layer.ffn, DenseMLP):  # biases of near ties keep float32 or wider
            wide = torch.promote_types(dtype, torch.float32)
            layer.ffn.router.bias = layer.ffn.router.bias.to(wide)
    missing = hf_tensors(model)
    for file in weight_files(folder):
        _check_not_truncated(file)
        _copy_tensors(file, missing, config)
    if missing:
        raise CheckpointError(f"{folder}: tensor {next(iter(missing))} is missing")
    return model.eval().requires_grad_(False)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint: one, or the shards that its index names."""
    index = folder / "model.safetensors.index.json"
    names = _shard_names(index) if index.is_file() else ["model.safetensors"]
    for name in names:
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder}: file {name} is missing: copy the whole checkpoint")
    return [folder / name for name in names]


def _shard_names(index: Path) -> list[str]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError):
        names = []
    if not names or not all(isinstance(name, str) for name in names):
        raise CheckpointError(f"{index}: no weight_map from tensors to files: copy it again")
    return names


def _check_not_truncated(file: Path) -> None:
    """safetensors starts with the header's length (8 bytes) and the header, JSON with offsets."""
    size = file.stat().st_size
    with open(file, "rb") as stream:
        length = struct.unpack("<Q", stream.read(8).ljust(8, b"\0"))[0]
        header = stream.read(length) if length < size else b""
    try:
        entries = json.loads(header)
        ends = {n: e["data_offsets"][1] for n, e in entries.items() if n != "__metadata__"}
        cut = [name for name, end in ends.items() if 8 + length + end > size]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise CheckpointError(f"{file}: the header is damaged: copy the file again") from None
    if cut:
        raise CheckpointError(f"{file}: tensor {cut[0]} is cut off: copy the file again")


def _copy_tensors(file: Path, missing: dict[str, torch.Tensor], config: ModelConfig) -> None:
    """Copy each tensor of one file into its place and strike its name from `missing`."""
    try:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (not a dict)
                if not _is_ignored(name, config):
                    _copy_tensor(file, name, tensors.get_tensor(name), missing)
    except SafetensorError as error:
        raise CheckpointError(f"{file}: {error}: copy the file again") from None


def _copy_tensor(file: Path, name: str, value: torch.Tensor, missing: dict) -> None:
    if name not in missing:
        raise CheckpointError(
            f"{file}: tensor {name} is not part of this architecture, or is there twice"
        )
    target = missing.pop(name)
    if target.shape != value.shape:
        raise CheckpointError(
            f"{file}: tensor {name} has shape {list(value.shape)}, "
            f"but config.json asks for {list(target.shape)}"
        )
    if not value.is_floating_point():
        raise CheckpointError(f"{file}: tensor {name} is {value.dtype}: it must be floating point")
    target.copy_(value)


def _is_ignored(name: str, config: ModelConfig) -> bool:
    """Multi-token-prediction layers come after the last layer; tied heads are stored twice."""
    layer = re.match(r"model\.layers\.(\d+)\.", name)
    beyond = layer is not None and int(layer[1]) >= config.num_hidden_layers
    tied = config.tie_word_embeddings and name == "lm_head.weight"
    return beyond or tied or name.endswith("rotary_emb.inv_freq")
