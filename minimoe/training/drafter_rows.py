"""Many sequences side by side on a paged cache, without a scheduler: for generating training text
and for measuring a drafter, where all rows run to the same length and none waits for another."""

from collections.abc import Callable

import torch
from torch import Tensor

from minimoe.model.serving import ServingModel
from minimoe.model.step import ShortGroup, Step
from minimoe.ops.norm import rms_norm

BLOCK_SIZE = 16


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
        model, kept = self.model, []
        x = model.embed.index_select(0, step.ids)  # [T, D]
        turns = model.turns.index_select(0, step.positions)
        for index, (layer, pages) in enumerate(zip(model.layers, self.pages, strict=True)):
            y = rms_norm(x, layer.attn_norm, model.floor)
            layer.attn.add_to(x, y, pages, step, turns)
            y = rms_norm(x, layer.ffn_norm, model.floor)
            layer.ffn.add_to(x, y)
            if index in taps:
                kept.append(x.clone())  # x is updated in place
        logits = torch.mm(rms_norm(x, model.norm, model.floor), model.head_t)
        return logits.view(len(self.table), -1, logits.shape[1]), torch.cat(
            kept, 1
        ) if kept else None


class Replay:
    """`work`, a function of no arguments on fixed tensors; on CUDA a graph of it is replayed."""

    def __init__(self, work: Callable[[], None], device: torch.device):
        self.work, self.graph = work, None
        if device.type == "cuda":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                work()  # kernels are compiled here
                work()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                work()

    def __call__(self) -> None:
        if self.graph is None:
            self.work()
        else:
            self.graph.replay()
