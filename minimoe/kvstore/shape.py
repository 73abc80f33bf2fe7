"""What all users of one store must agree on; the first of them writes it down."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from minimoe.kvstore.metadata import TABLES, Metadata, StoreError


@dataclass(frozen=True)
class Shape:
    """What made the blocks, how large they are, and how segments are striped."""

    fingerprint: str
    block_bytes: int
    data: int
    parity: int

    def __str__(self) -> str:
        return f"{self.fingerprint}, {self.block_bytes} bytes a block, {self.data}+{self.parity}"


def claim(meta: Metadata, folder: Path, ours: Shape) -> None:
    """Name the store, or agree with its name. Raises StoreError with both where they differ."""
    theirs = Shape(**json.loads(meta.claim("shape", json.dumps(asdict(ours)))))
    if theirs != ours:
        meta.close()
        raise StoreError(
            f"KV store {folder} holds blocks of [{theirs}], this engine makes [{ours}]: "
            "give each its own folder"
        )


def read(folder: str | Path) -> Shape:
    """The shape of an existing store. Raises StoreError where there is none."""
    if not (Path(folder) / TABLES).is_file():
        raise StoreError(f"no KV store in {folder}: give the folder of an existing one")
    meta = Metadata(folder)
    shape = meta.fact("shape")
    meta.close()
    if shape is None:
        raise StoreError(f"the KV store in {folder} was never used: there is nothing to open")
    return Shape(**json.loads(shape))
