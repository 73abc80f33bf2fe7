"""Storage nodes that are down for a while: their folders are renamed, and renamed back."""

import os
from pathlib import Path

import numpy as np


def hide_nodes(store, count: int) -> list[Path]:
    """Rename node folders, as if their nodes were down; the ones that hold most data shards."""
    held = np.zeros(store.nodes.nodes)
    for segment in store.meta.all_segments():
        for shard in range(store.code.data):
            held[
                store.nodes.folders.index(os.path.dirname(store.nodes.path(segment.name, shard)))
            ] += 1
    folders = [Path(store.nodes.folders[node]) for node in np.argsort(-held)[:count]]
    for folder in folders:
        os.replace(folder, f"{folder}.hidden")
    return folders


def show_nodes(hidden: list[Path]) -> None:
    """Undo `hide_nodes`, also where the store made a folder anew meanwhile."""
    for folder in hidden:
        folder.mkdir(exist_ok=True)
        away = Path(f"{folder}.hidden")
        for path in away.iterdir():
            os.replace(path, folder / path.name)
        away.rmdir()
