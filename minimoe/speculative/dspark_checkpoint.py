"""Reading and writing a drafter's folder: `config.json` and `model.safetensors`."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from minimoe.config import SHIPPED
from minimoe.errors import CheckpointError
from minimoe.model.transformer import Transformer
from minimoe.speculative.dspark import DSpark
from minimoe.speculative.dspark_config import DSparkConfig

SUFFIX = "-dspark"  # the drafter of a shipped model "NAME" is shipped as "NAME-dspark"


def drafter_folder(name: str | Path) -> Path:
    """The folder of a shipped drafter such as "tiny-moe-dspark", or the given folder itself."""
    for folder in (Path(name), SHIPPED / name):
        if (folder / "config.json").is_file():
            return folder
    shipped = ", ".join(sorted(path.name for path in SHIPPED.glob(f"*{SUFFIX}")))
    raise CheckpointError(
        f"no drafter {str(name)!r}: give one of {shipped or '(none shipped)'}, or a folder that "
        "holds config.json"
    )


@torch.no_grad()
def save_dspark(dspark: DSpark, folder: str | Path) -> Path:
    """Write the folder; weights in bfloat16."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    dspark.config.save(folder)
    tensors = {
        name: value.detach().to("cpu", torch.bfloat16, copy=True).contiguous()
        for name, value in dspark.state_dict().items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@torch.no_grad()
def load_dspark(folder: str | Path, model: Transformer) -> DSpark:
    """The drafter of `model`, in the model's dtype and on its device.

    Raises CheckpointError when the folder is no drafter's, when a tensor is missing, unknown or of
    another shape, and when the drafter belongs to another vocabulary, shape or model.
    """
    folder = drafter_folder(folder)
    config = DSparkConfig.load(folder)
    config.check_weights(model)
    dspark = DSpark(config, model.config)
    _copy_tensors(_read(folder / "model.safetensors"), dspark, folder)
    embed = model.embed.weight
    return dspark.to(embed.device, embed.dtype).eval().requires_grad_(False)


def _read(file: Path) -> dict[str, torch.Tensor]:
    if not file.is_file():
        raise CheckpointError(f"{file} is missing: copy the whole drafter")
    try:
        return load_file(file)
    except SafetensorError as error:
        raise CheckpointError(f"{file}: {error}: copy the file again") from None


def _copy_tensors(tensors: dict, dspark: DSpark, folder: Path) -> None:
    own = dspark.state_dict()
    for name in sorted(own.keys() | tensors.keys()):
        if name not in tensors:
            raise CheckpointError(f"{folder}: tensor {name} is missing")
        if name not in own:
            raise CheckpointError(f"{folder}: tensor {name} is not part of a drafter")
        if own[name].shape != tensors[name].shape:
            raise CheckpointError(
                f"{folder}: tensor {name} has shape {list(tensors[name].shape)}, "
                f"but config.json asks for {list(own[name].shape)}"
            )
        own[name].copy_(tensors[name])
