"""Many sequences side by side on a paged cache, without a scheduler: for generating training text
and for measuring a drafter, where all rows run to the same length and none waits for another."""

from collections.abc import Callable

import torch
from torch import Tensor

from minimoe.engine.admission import BLOCK_SIZE
from minimoe.engine.cuda_graphs import Recorder
from minimoe.model.serving import ServingModel
from minimoe.model.step import ShortGroup, Step


class PagedRows:
    """B sequences of up to `length` positions; sequence b owns blocks b*M to (b+1)*M - 1."""

    def __init__(self, model: ServingModel, rows: int, length: int):
        self.model, self.length = model, length
        self.width = -(-length // BLOCK_SIZE)  # M
        self.blocks = rows * self.width
        self.table = torch.arange(self.blocks, device=model.device).view(rows, -1)  # [B, M]
        self.pages = model.pages(model.new_kv(self.blocks, BLOCK_SIZE))

    def step(self, ids: Tensor, positions: Tensor, lengths: Tensor | None = None) -> Step:
        """Tokens `ids [B, L]` at `positions [B, L]`, each a row of its own for attention; a token
        sees its first `lengths [B, L]` positions, by default up to its own."""
        lengths = positions + 1 if lengths is None else lengths
        blocks = self.table.gather(1, positions // BLOCK_SIZE)
        slots = blocks * BLOCK_SIZE + positions % BLOCK_SIZE
        group = ShortGroup(
            tokens=ids.numel(),
            requests=ids.numel(),
            block_table=self.table.repeat_interleave(ids.shape[1], dim=0).flatten(),
            length=self.length,
            mask=None,
            new_tokens=1,
            lengths=lengths.flatten(),
        )
        return Step(ids.flatten(), positions.flatten(), slots.flatten(), None, short=group)

    @torch.inference_mode()
    def run(self, step: Step, taps: tuple[int, ...] = ()) -> tuple[Tensor, Tensor | None]:
        """Logits `[B, L, V]`, and the residual stream after the layers of `taps`, `[T, n D]`."""
        step.tap_layers = taps
        logits = self.model.forward(step, self.pages)
        return logits.view(len(self.table), -1, logits.shape[1]), step.taps


def replayed(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """`work`, a function of no arguments on fixed tensors, to be called often. On CUDA it is run a
    few times now and recorded: a call replays the graph."""
    return Recorder().capture(work)[0] if device.type == "cuda" else work
