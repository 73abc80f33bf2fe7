"""Decode by replaying captured CUDA graphs: one launch for a whole step.

A decode step of a small model is hundreds of short kernels, and launching them from Python takes
longer than running them. A graph fixes kernels, shapes and addresses, so the step's inputs live in
buffers that never move (`StaticStep`), and a batch is padded to the next captured size by repeating
its first request, whose row is then written twice with the same values.
"""

import numpy as np
import torch

from minimoe.engine.scheduler import Scheduled
from minimoe.engine.sequence import Sequence
from minimoe.model.moe import Experts
from minimoe.model.serving import ServingModel, ServingMoE
from minimoe.model.serving_attention import Pages
from minimoe.model.step import ShortGroup, Step

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class StaticStep:
    """A decode step of `size` requests in buffers at fixed addresses; `fill` renews the values."""

    def __init__(self, size: int, pages: int, block_size: int, device: torch.device):
        self.size, self.block_size = size, block_size
        pin = device.type == "cuda"
        self._meta = torch.zeros(4, size, dtype=torch.long, pin_memory=pin)
        self._table = torch.zeros(size, pages, dtype=torch.long, pin_memory=pin)
        self._blocks: list[list[int]] = [[] for _ in range(size)]  # what each table row holds
        self.meta = self._meta.to(device)
        self.table = self._table.to(device)
        ids, positions, slots, lengths = self.meta
        group = ShortGroup(
            tokens=size,
            requests=size,
            block_table=self.table.view(-1),
            length=pages * block_size,
            mask=None,
            new_tokens=1,
            lengths=lengths,
        )
        self.step = Step(ids=ids, positions=positions, slots=slots, logit_rows=None, short=group)

    def fill(self, seqs: list[Sequence]) -> None:
        """Take the last token of each request; rows beyond them repeat the first request."""
        meta = self._meta.numpy()
        meta[:, : len(seqs)] = np.array([self._row(seq) for seq in seqs]).T
        meta[:, len(seqs) :] = meta[:, :1]
        self.meta.copy_(self._meta, non_blocking=True)
        rows = [*(seq.blocks for seq in seqs), *[seqs[0].blocks] * (self.size - len(seqs))]
        if rows != self._blocks:
            self._fill_table(rows)
            self.table.copy_(self._table, non_blocking=True)

    def _row(self, seq: Sequence) -> tuple[int, int, int, int]:
        """Token id, position, KV slot and context length of a request's newest token."""
        position = seq.num_computed
        block = seq.blocks[position // self.block_size]
        slot = block * self.block_size + position % self.block_size
        return seq.tokens[position], position, slot, position + 1

    def _fill_table(self, rows: list[list[int]]) -> None:
        table = self._table.numpy()
        for i, blocks in enumerate(rows):
            if blocks != self._blocks[i]:
                table[i, : len(blocks)] = blocks
                self._blocks[i] = list(blocks)


class DecodeGraphs:
    """Graphs of decode steps, captured the first time a size is needed."""

    def __init__(
        self,
        model: ServingModel,
        pages: list[Pages],
        block_size: int,
        max_model_len: int,
        most: int,
    ):
        self.model, self.pages, self.block_size = model, pages, block_size
        self.table_width = -(-max_model_len // block_size)
        self.sizes = [size for size in SIZES if size < most] + [most]
        self._captured: dict[int, tuple[StaticStep, torch.cuda.CUDAGraph, torch.Tensor]] = {}
        self._pool = None

    @classmethod
    def where_possible(cls, model, pages, block_size, max_model_len, most) -> "DecodeGraphs | None":
        """None on a CPU, and where a kernel would fall back to a path that waits for the device."""
        if model.device.type != "cuda" or not _all_paths_capturable(model, pages[0].kv):
            return None
        return cls(model, pages, block_size, max_model_len, most)

    def fits(self, scheduled: Scheduled) -> bool:
        """The newest token of each, not too many, and nothing watches or replaces the experts."""
        newest = all(seq.num_computed + 1 == len(seq.tokens) for seq, _ in scheduled)
        if not newest or len(scheduled) > self.sizes[-1]:
            return False
        moes = [layer.ffn for layer in self.model.layers if isinstance(layer.ffn, ServingMoE)]
        return all(moe.on_route is None and type(moe.experts) is Experts for moe in moes)

    @torch.inference_mode()
    def run(self, scheduled: Scheduled) -> torch.Tensor:
        """Logits `[B, V]`; they stay valid until the next call."""
        seqs = [seq for seq, _ in scheduled]
        size = next(size for size in self.sizes if size >= len(seqs))
        if size not in self._captured:
            static = StaticStep(size, self.table_width, self.block_size, self.model.device)
            static.fill(seqs)
            self._captured[size] = (static, *self._capture(static))
        static, graph, logits = self._captured[size]
        static.fill(seqs)
        graph.replay()
        return logits[: len(seqs)]

    def _capture(self, static: StaticStep):
        """Run once outside, so that kernels are compiled, then record the same calls.

        Both write the KV rows that the replay writes again with the same values.
        """
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.model.forward(static.step, self.pages)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            logits = self.model.forward(static.step, self.pages)
        self._pool = graph.pool()
        return graph, logits


def _all_paths_capturable(model: ServingModel, kv: torch.Tensor) -> bool:
    from minimoe.ops.grouped_experts import describe_path
    from minimoe.ops.mla_attention import decode_path

    row = kv.new_empty(1, model.config.num_attention_heads, model.config.kv_width)
    if decode_path(row, kv, model.config.kv_lora_rank)[1] != "decode_triton":
        return False
    moes = [layer.ffn for layer in model.layers if isinstance(layer.ffn, ServingMoE)]
    x = kv.new_empty(1, model.config.hidden_size)
    return all(describe_path(1, x, m.experts.gate_up) == "experts_triton" for m in moes)
