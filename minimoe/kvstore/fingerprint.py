"""What made a KV block: model, drafter, dtype, block size. Others must never read it as theirs."""

import hashlib
import json
from pathlib import Path

WHOLE = 64 * 1024**2  # files up to this size are hashed whole
PIECES, PIECE = 64, 1024**2  # of larger ones, this many pieces, evenly spread


def kv_fingerprint(model: str, dtype: str, block_size: int, drafter: str = "none") -> str:
    """One line that two engines share only if they make the same KV."""
    return f"model {model}, drafter {drafter}, {dtype}, blocks of {block_size} tokens"


def model_name(folder: str | Path) -> str:
    """Folder name and a hash over the config and the weights of a checkpoint."""
    folder, digest = Path(folder), hashlib.sha256()
    for path in [folder / "config.json", *sorted(folder.glob("*.safetensors"))]:
        digest.update(f"{path.name} {path.stat().st_size} ".encode())
        _update(digest, path)
    return f"{folder.resolve().name}-{digest.hexdigest()[:12]}"


def config_name(name: str, config) -> str:
    """Name and a hash over the config alone, for weights that follow from it."""
    text = json.dumps(vars(config), sort_keys=True, default=str)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _update(digest, path: Path) -> None:
    """Add a file to the hash: all of it, or evenly spread pieces of a large one."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        if size <= WHOLE:
            digest.update(file.read())
            return
        for i in range(PIECES):
            file.seek(i * (size - PIECE) // (PIECES - 1))
            digest.update(file.read(PIECE))
