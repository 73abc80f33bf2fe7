"""`DSparkConfig`: the shape of a drafter, and which target it was trained for."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from minimoe.config import ModelConfig
from minimoe.errors import CheckpointError
from minimoe.model.transformer import Transformer

COUNTS = ("length", "layers", "intermediate_size", "vocab_size", "hidden_size", "kv_width")


@dataclass(frozen=True)
class DSparkConfig:
    """Shape of a DSpark drafter. `config.json` of its folder holds these fields.

    Args:
        length: G, tokens drafted in one block.
        layers: draft layers.
        taps: target layers (counted from 0) after which the residual stream is read, ascending.
        intermediate_size: width of a draft layer's MLP.
        markov_rank: rank of the Markov head; 0 for none.
        target: name of the model it was trained for, and `target_weights` a hash of its weights.
        vocab_size, hidden_size, kv_width: V, D and C + R of that model.
    """

    vocab_size: int
    hidden_size: int
    kv_width: int
    target: str = "tiny-moe"
    target_weights: str = ""
    length: int = 5
    layers: int = 3
    taps: tuple[int, ...] = (1, 3, 5)
    intermediate_size: int = 512
    markov_rank: int = 64

    @classmethod
    def of(cls, model: Transformer, **changes) -> "DSparkConfig":
        """For a drafter of `model`; taps spread over its layers, the last one among them."""
        config, last = model.config, model.config.num_hidden_layers - 1
        fields = {
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
            "kv_width": config.kv_width,
            "target_weights": weights_hash(model),
            "taps": tuple(sorted({last // 5, last * 3 // 5, last})),
        }
        made = cls(**{**fields, **changes})
        made.validate()
        made.check_target(config)
        return made

    @classmethod
    def load(cls, folder: str | Path) -> "DSparkConfig":
        """Read `config.json`. Raises CheckpointError when it is missing or no drafter's."""
        path = Path(folder) / "config.json"
        if not path.is_file():
            raise CheckpointError(f"no config.json in {folder}: give the folder of a drafter")
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CheckpointError(f"{path} is not valid JSON ({error}): write it again") from None
        kind = raw.pop("model_type", None) if isinstance(raw, dict) else None
        if kind != "dspark":
            raise CheckpointError(f"{path}: model_type {kind!r} is no drafter, use 'dspark'")
        known = set(cls.__dataclass_fields__)
        if missing := {"vocab_size", "hidden_size", "kv_width", "taps", "length"} - set(raw):
            raise CheckpointError(f"{path}: {sorted(missing)[0]} is missing: copy the file again")
        config = cls(**{name: value for name, value in raw.items() if name in known})
        config.validate()
        return config

    def __post_init__(self):
        if isinstance(self.taps, list):
            object.__setattr__(self, "taps", tuple(self.taps))

    def save(self, folder: str | Path) -> None:
        """Write `config.json`."""
        record = {"model_type": "dspark", **asdict(self)}
        text = json.dumps(record, indent=2, sort_keys=True) + "\n"
        (Path(folder) / "config.json").write_text(text, encoding="utf-8")

    def validate(self) -> None:
        """Raise CheckpointError for a shape that no drafter can have."""
        for name in (*COUNTS, "markov_rank"):
            value, least = getattr(self, name), 0 if name == "markov_rank" else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise CheckpointError(f"{name} is {value!r}: it must be a whole number >= {least}")
        taps = self.taps
        whole = isinstance(taps, tuple) and all(isinstance(tap, int) and tap >= 0 for tap in taps)
        if not whole or not taps or list(taps) != sorted(set(taps)):
            raise CheckpointError(f"taps is {taps!r}: give layer numbers in ascending order")

    def check_target(self, model: ModelConfig) -> None:
        """Raise CheckpointError unless the drafter fits this shape of target."""
        for name, what in (("vocab_size", "tokens"), ("hidden_size", "hidden values"),
                           ("kv_width", "values a cached row")):  # fmt: skip
            own, theirs = getattr(self, name), getattr(model, name)
            if own != theirs:
                raise CheckpointError(
                    f"the drafter is for a model of {own} {what} ({self.target!r}) and this one "
                    f"has {theirs}: use a drafter that was trained for it"
                )
        if self.taps[-1] >= model.num_hidden_layers:
            raise CheckpointError(
                f"the drafter reads layer {self.taps[-1]} and the model has "
                f"{model.num_hidden_layers} layers: use a drafter that was trained for it"
            )

    def check_weights(self, model: Transformer) -> None:
        """Raise CheckpointError unless `model` has the weights the drafter was trained for."""
        self.check_target(model.config)
        found = weights_hash(model)
        if self.target_weights and found != self.target_weights:
            raise CheckpointError(
                f"the drafter was trained for {self.target!r} with weights {self.target_weights} "
                f"and this model has {found}: train one for it with `python -m minimoe "
                "train-drafter`"
            )


def weights_hash(model: Transformer) -> str:
    """12 hex digits over embedding, head, norms and attention, as bfloat16: the same in every
    dtype that the checkpoint is loaded in, and wherever the experts live."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if ".ffn." not in name:
            bits = value.to("cpu", torch.bfloat16).contiguous().view(torch.int16)
            digest.update(name.encode() + bits.numpy().tobytes())
    return digest.hexdigest()[:12]
