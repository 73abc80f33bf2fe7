"""`Runner`: the model, its KV cache, and one forward pass over what was scheduled."""

import torch

from minimoe.engine.cuda_graphs import DecodeGraphs
from minimoe.engine.scheduler import Scheduled
from minimoe.engine.sequence import Sequence
from minimoe.engine.step_builder import build_step
from minimoe.model.serving import ServingModel


class Runner:
    """Owns the KV planes: `kv["target"]` is `[layers, blocks, block_size, C + R]`."""

    def __init__(
        self,
        model: ServingModel,
        num_blocks: int,
        block_size: int,
        max_model_len: int,
        max_num_seqs: int,
    ):
        self.model, self.block_size = model, block_size
        self.kv = {"target": model.new_kv(num_blocks, block_size)}
        self.pages = model.pages(self.kv["target"])
        self.graphs = DecodeGraphs.where_possible(
            model, self.pages, block_size, max_model_len, max_num_seqs
        )

    def run(self, scheduled: Scheduled) -> tuple[torch.Tensor, list[Sequence]]:
        """Compute the scheduled tokens. Gives logits `[B', V]` of the requests that are now fully
        computed, and those requests."""
        if self.graphs and self.graphs.fits(scheduled):
            return self.graphs.run(scheduled), [seq for seq, _ in scheduled]
        model = self.model
        heads = model.config.num_attention_heads
        step, finishing = build_step(scheduled, self.block_size, heads, model.device, model.dtype)
        return model.forward(step, self.pages), finishing

    def clear(self, blocks: list[int]) -> None:
        """Zero pages that change hands: were a NaN left there, it would spread, since a masked
        position still takes part as 0 * NaN."""
        if blocks:
            for plane in self.kv.values():
                plane[:, blocks] = 0
