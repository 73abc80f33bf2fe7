"""Blocks of the KV planes as plain bytes, and back.

A plane is `[layers, blocks, block_size, width]`; a block's bytes are its layers one after another,
plane after plane in the order of their names. So a block travels whole: what the target and what
the drafter need of it together.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

Planes = Mapping[str, torch.Tensor]


def block_bytes(planes: Planes) -> int:
    """Bytes of one block over all planes."""
    return sum(plane[:, 0].numel() * plane.itemsize for plane in planes.values())


def pack(planes: Planes, blocks: Sequence[int]) -> np.ndarray:
    """A copy of the given blocks: `[len(blocks), block_bytes]` of uint8."""
    out = np.empty((len(blocks), block_bytes(planes)), np.uint8)
    start = 0
    for _, plane in sorted(planes.items()):
        for pages in _bytes(plane, blocks):  # layer by layer
            end = start + pages.shape[1]
            out[:, start:end] = pages
            start = end
    return out


def _bytes(plane: torch.Tensor, blocks: Sequence[int]):
    """The given blocks of each layer, `[len(blocks), bytes]`.

    On a CPU by NumPy: torch would wake its threads, beside a decode loop that needs them.
    """
    if plane.device.type != "cpu":
        plane = plane.index_select(1, torch.tensor(blocks, device=plane.device)).cpu()
        blocks = range(len(blocks))
    rows = plane.view(torch.uint8).flatten(2).numpy()  # [layers, blocks, bytes]
    for layer in rows:
        yield layer[list(blocks)]


def unpack(planes: Planes, blocks: Sequence[int], data: np.ndarray) -> None:
    """Write `data [len(blocks), block_bytes]` into the given blocks of the planes."""
    for plane, part in _parts(planes, torch.from_numpy(data)):
        index = torch.tensor(blocks, device=plane.device)
        plane.index_copy_(1, index, part.to(plane.device).transpose(0, 1))


def finite(planes: Planes, data: np.ndarray) -> np.ndarray:
    """Which blocks of `data` hold numbers only: `[blocks]` of bool. A NaN must not be kept.

    A sum is not finite where one of its terms is not.
    """
    good = np.ones(len(data), bool)
    for _, part in _parts(planes, torch.from_numpy(data)):
        if part.dtype not in (torch.float32, torch.float64):
            part = part.float()
        good &= np.isfinite(part.flatten(1).numpy().sum(axis=1))
    return good


def _parts(planes: Planes, data: torch.Tensor):
    """Each plane with its part of `data`, seen as `[blocks, layers, block_size, width]`."""
    start = 0
    for _, plane in sorted(planes.items()):
        layers, _, block_size, width = plane.shape
        end = start + plane[:, 0].numel() * plane.itemsize
        part = data[:, start:end].view(plane.dtype)  # [blocks, layers * block_size * width]
        yield plane, part.unflatten(1, (layers, block_size, width))
        start = end
