"""`Runner`: the model, its KV cache, and one forward pass over what was scheduled."""

import torch

from minimoe.engine.cuda_graphs import graphs_where_possible
from minimoe.engine.scheduler import Scheduled
from minimoe.engine.sequence import Sequence
from minimoe.engine.step_builder import build_draft_step, build_step
from minimoe.model.serving import ServingModel
from minimoe.model.step import FEW_PAIRS
from minimoe.speculative.drafter import Draft, Drafter


class Runner:
    """Owns the KV planes: `kv["target"]` is `[layers, blocks, block_size, C + R]`; a drafter that
    keeps KV of its own has `kv["draft"]`, with the same blocks."""

    def __init__(
        self,
        model: ServingModel,
        num_blocks: int,
        block_size: int,
        max_model_len: int,
        max_num_seqs: int,
        drafter: Drafter | None = None,
    ):
        self.model, self.block_size, self.drafter = model, block_size, drafter
        self.max_model_len = max_model_len
        self.kv = {"target": model.new_kv(num_blocks, block_size)}
        self.pages = model.pages(self.kv["target"])
        self.tap_layers = drafter.taps if drafter else ()
        if drafter:
            self._attach(drafter, num_blocks)
        self.graphs, self.draft_graphs, self.check_graphs = graphs_where_possible(
            model, self.pages, block_size, max_model_len, max_num_seqs, drafter
        )
        self.pairs = FEW_PAIRS if self.graphs else 0  # where graphs run, so does the GPU's kernel

    def _attach(self, drafter: Drafter, num_blocks: int) -> None:
        plane = None
        if drafter.plane:
            layers, width = drafter.plane
            shape = (layers, num_blocks, self.block_size, width)
            plane = torch.zeros(shape, dtype=self.model.dtype, device=self.model.device)
            self.kv["draft"] = plane
        drafter.attach(plane)

    def run(self, scheduled: Scheduled) -> tuple[torch.Tensor, list[Sequence]]:
        """Compute the scheduled tokens. Gives logits `[B', V]` of the requests that are now fully
        computed, and those requests: one row each, and one more for each draft."""
        if self.graphs and self.graphs.fits(scheduled):
            return self.graphs.run(scheduled), [seq for seq, _ in scheduled]
        model = self.model
        heads = model.config.num_attention_heads
        step, finishing = build_step(
            scheduled, self.block_size, heads, model.device, model.dtype, self.pairs
        )
        step.tap_layers = self.tap_layers
        logits = model.forward(step, self.pages)
        if self.drafter:
            self.drafter.observe(step)
        return logits, finishing

    def draft(self, seqs: list[Sequence], length: int | None = None) -> Draft:
        """Guesses for requests of which all but the newest token are computed; `length` will do."""
        self.drafter.wanted = length
        if self.draft_graphs:
            return self.draft_graphs.propose(seqs)
        step = None
        if self.drafter.plane:
            model = self.model
            step = build_draft_step(
                seqs, self.drafter.block, self.block_size, model.device, model.dtype
            )
        return self.drafter.propose(seqs, step)

    def clear(self, blocks: list[int]) -> None:
        """Zero pages that change hands: were a NaN left there, it would spread, since a masked
        position still takes part as 0 * NaN."""
        if blocks:
            for plane in self.kv.values():
                plane[:, blocks] = 0

    def clear_positions(self, seq: Sequence, start: int, end: int) -> None:
        """Zero the rows of some positions of one request, for the same reason."""
        for position in range(start, end):
            block = seq.blocks[position // self.block_size]
            for plane in self.kv.values():
                plane[:, block, position % self.block_size] = 0
