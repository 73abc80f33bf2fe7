"""`Runner`: the model, its KV cache, and one forward pass over what was scheduled."""

import torch

from minimoe.engine.scheduler import Scheduled
from minimoe.engine.sequence import Sequence
from minimoe.engine.step_builder import build_step
from minimoe.model.serving import ServingModel


class Runner:
    """Owns the KV planes: `kv["target"]` is `[layers, blocks, block_size, C + R]`."""

    def __init__(self, model: ServingModel, num_blocks: int, block_size: int):
        self.model, self.block_size = model, block_size
        self.kv = {"target": model.new_kv(num_blocks, block_size)}

    def run(self, scheduled: Scheduled) -> tuple[torch.Tensor, list[Sequence]]:
        """Compute the scheduled tokens. Gives logits `[B', V]` of the requests that are now fully
        computed, and those requests."""
        step, finishing = build_step(
            scheduled, self.block_size, self.model.device, self.model.dtype
        )
        return self.model.forward(step, self.kv["target"]), finishing

    def clear(self, blocks: list[int]) -> None:
        """Zero the pages of a request that went wrong: a NaN left there would spread, since a
        masked position still takes part as 0 * NaN."""
        for plane in self.kv.values():
            plane[:, blocks] = 0
