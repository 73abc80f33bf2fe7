"""`ModelConfig`: the shape of a DeepSeek-V3 style model, with Hugging Face's field names."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from minimoe.errors import CheckpointError

REPO = Path(__file__).resolve().parent.parent
SHIPPED = REPO / "data"

COUNTS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "n_shared_experts",
    "n_routed_experts",
    "num_experts_per_tok",
    "n_group",
    "topk_group",
    "first_k_dense_replace",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "max_position_embeddings",
)
TINY = {
    "vocab_size": 2048,
    "hidden_size": 192,
    "intermediate_size": 512,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "n_shared_experts": 2,
    "n_routed_experts": 64,
    "num_experts_per_tok": 4,
    "routed_scaling_factor": 1.5,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 64,
    "q_lora_rank": None,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "max_position_embeddings": 2048,
}


@dataclass
class ModelConfig:
    """Shape of the model. Letters of the dimension key stand beside the fields they name.

    The defaults are DeepSeek-V3 itself, since a `config.json` may leave those out.
    Source: DeepSeek-V3 technical report, arXiv 2412.19437, section 4.2, and the fields of
    `config.json` with `model_type: deepseek_v3`.
    """

    vocab_size: int = 129280  # V
    hidden_size: int = 7168  # D
    intermediate_size: int = 18432  # width of a dense layer's MLP
    moe_intermediate_size: int = 2048  # F
    num_hidden_layers: int = 61
    num_attention_heads: int = 128  # H
    n_shared_experts: int = 1  # one shared MLP, this many times F wide
    n_routed_experts: int = 256  # E
    num_experts_per_tok: int = 8  # K
    routed_scaling_factor: float = 2.5
    norm_topk_prob: bool = True
    n_group: int = 8  # experts are chosen inside the best `topk_group` of `n_group` groups
    topk_group: int = 4
    first_k_dense_replace: int = 3  # this many leading layers are dense
    kv_lora_rank: int = 512  # C
    q_lora_rank: int | None = 1536
    qk_nope_head_dim: int = 128  # N
    qk_rope_head_dim: int = 64  # R
    v_head_dim: int = 128
    max_position_embeddings: int = 4096
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: dict | None = None  # YaRN: factor, original_max_position_embeddings, ...
    tie_word_embeddings: bool = False
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1

    @classmethod
    def tiny(cls, **changes) -> "ModelConfig":
        """The shape of the shipped `tiny-moe`: 8.0 M parameters."""
        return cls(**{**TINY, **changes})

    @property
    def kv_width(self) -> int:
        """Values cached per token and layer: C + R."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def qk_head_dim(self) -> int:
        """Width of a query or key head before absorption: N + R."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def num_moe_layers(self) -> int:
        """Layers that have experts: all but the first dense ones."""
        return self.num_hidden_layers - self.first_k_dense_replace

    @classmethod
    def load(cls, folder: str | Path) -> "ModelConfig":
        """Read `config.json` of a checkpoint folder.

        Raises CheckpointError when the file is missing, is not JSON, or describes another
        architecture or a feature that this code does not have.
        """
        path = Path(folder) / "config.json"
        if not path.is_file():
            raise CheckpointError(f"no config.json in {folder}: give a Hugging Face model folder")
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:  # not JSON, or not text
            raise CheckpointError(f"{path} is not valid JSON ({error}): write it again") from None
        if not isinstance(raw, dict):
            raise CheckpointError(f"{path} holds no JSON object: write it again")
        _refuse_other_architectures(raw, path)
        raw["rope_theta"], raw["rope_scaling"] = _rope(raw, path)
        known = {field.name for field in fields(cls)}
        config = cls(**{name: value for name, value in raw.items() if name in known})
        config.validate()
        return config

    def save(self, folder: str | Path) -> None:
        """Write `config.json` in the layout that transformers reads."""
        record = {
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            **asdict(self),
            "num_key_value_heads": self.num_attention_heads,
            "num_nextn_predict_layers": 0,
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "rope_interleave": True,
            "dtype": "bfloat16",
        }
        text = json.dumps(record, indent=2, sort_keys=True) + "\n"
        (Path(folder) / "config.json").write_text(text, encoding="utf-8")

    def validate(self) -> None:
        """Raise CheckpointError for a shape that no model can have."""
        for name in COUNTS:
            value = getattr(self, name)
            least = 0 if name == "first_k_dense_replace" else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise CheckpointError(f"{name} is {value!r}: it must be a whole number >= {least}")
        for name in ("rms_norm_eps", "rope_theta", "routed_scaling_factor"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not value > 0:
                raise CheckpointError(f"{name} is {value!r}: it must be a number above 0")
        rank = self.q_lora_rank
        if rank is not None and not (isinstance(rank, int) and rank > 0):
            raise CheckpointError(f"q_lora_rank is {rank!r}: it must be 1 or more, or null")
        self._check_fit()

    def _check_fit(self) -> None:
        """Fields that must agree with each other."""
        _at_most(self, "num_experts_per_tok", "n_routed_experts")
        _at_most(self, "topk_group", "n_group")
        if self.n_routed_experts % self.n_group:
            raise CheckpointError(
                f"n_routed_experts {self.n_routed_experts} is not a multiple of n_group "
                f"{self.n_group}: groups must be equal"
            )
        eligible = self.n_routed_experts // self.n_group * self.topk_group
        if self.num_experts_per_tok > eligible:
            raise CheckpointError(
                f"num_experts_per_tok {self.num_experts_per_tok} exceeds the {eligible} experts of "
                f"topk_group {self.topk_group} groups: raise topk_group"
            )
        for name in ("qk_rope_head_dim", "qk_nope_head_dim", "kv_lora_rank"):
            if getattr(self, name) % 2:
                raise CheckpointError(
                    f"{name} {getattr(self, name)} is odd: rotary pairs need even widths"
                )


def _at_most(config: ModelConfig, name: str, limit: str) -> None:
    value, most = getattr(config, name), getattr(config, limit)
    if value > most:
        raise CheckpointError(f"{name} {value} exceeds {limit} {most}: lower it")


def _rope(raw: dict, path: Path) -> tuple[float, dict | None]:
    """Base and YaRN settings; transformers 5 keeps both in `rope_parameters`, older files apart."""
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = rope.get("rope_theta", raw.get("rope_theta", 10000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "yarn":
        raise CheckpointError(f"{path}: rope type {kind!r} is not supported, use default or yarn")
    if not isinstance(rope.get("factor"), int | float):
        raise CheckpointError(f"{path}: yarn needs a number as factor, not {rope.get('factor')!r}")
    trained = raw.get("max_position_embeddings", ModelConfig.max_position_embeddings)
    return theta, {"original_max_position_embeddings": trained, **rope, "rope_type": "yarn"}


def _refuse_other_architectures(raw: dict, path: Path) -> None:
    kind = raw.get("model_type")
    if kind != "deepseek_v3":
        raise CheckpointError(f"{path}: model_type {kind!r} is not supported, use 'deepseek_v3'")
    if raw.get("quantization_config"):
        raise CheckpointError(f"{path}: quantized weights are not supported, convert to bfloat16")
    fixed = {
        "hidden_act": "silu",
        "attention_bias": False,
        "rope_interleave": True,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "moe_layer_freq": 1,
    }
    for name, value in fixed.items():
        if raw.get(name, value) != value:
            raise CheckpointError(f"{path}: {name} {raw[name]!r} is not supported, use {value!r}")
