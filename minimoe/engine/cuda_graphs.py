"""Steps by replaying captured CUDA graphs: one launch for a whole step, one for a whole draft.

A step of a small model is hundreds of short kernels, and launching them from Python takes longer
than running them. A graph fixes kernels, shapes and addresses, so the step's inputs live in buffers
that never move (`StaticStep`), and its tokens are padded to the next captured size.
"""

from collections.abc import Callable

import torch

from minimoe.engine.scheduler import Scheduled
from minimoe.engine.sequence import Sequence
from minimoe.engine.static_check import StaticCheck
from minimoe.engine.static_step import BlockTables, StaticStep
from minimoe.model.moe import Experts
from minimoe.model.serving import ServingModel, ServingMoE
from minimoe.model.serving_attention import Pages
from minimoe.speculative.chances import StaticChances, kind_of
from minimoe.speculative.drafter import Draft, Drafter
from minimoe.speculative.dspark_drafter import DSparkDrafter, Guess

SIZES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


class Recorder:
    """Captures calls as graphs that share one pool of memory."""

    def __init__(self):
        self._pool = None

    def capture(self, run: Callable):
        """Run twice outside, so that kernels are compiled, then record the same calls. Gives a
        function that replays them, and what `run` gave, whose tensors each replay fills.

        All runs write the KV rows that the replay writes again with the same values.
        """
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            result = run()
        self._pool = graph.pool()
        return graph.replay, result


class Graphs:
    """Graphs by size, captured when one is first needed.

    `most` in the largest, of what the subclass counts; `capture` as in `Recorder`.
    """

    def __init__(self, most: int, capture: Callable | None = None):
        self.sizes = [size for size in SIZES if size < most] + [most]
        self._capture = capture or Recorder().capture
        self._captured: dict = {}

    def size_for(self, count: int) -> int:
        """The smallest captured size that holds `count`."""
        return next(size for size in self.sizes if size >= count)


class StepGraphs(Graphs):
    """Graphs of the target's steps by number of tokens, captured when a size is first needed.

    With a drafter, a step also hands on to it what it needs of the tokens computed.
    """

    def __init__(
        self,
        model: ServingModel,
        pages: list[Pages],
        tables: BlockTables,
        most: int,
        drafter: Drafter | None = None,
        capture: Callable | None = None,
    ):
        """`most` tokens in the largest step."""
        super().__init__(most, capture)
        self.model, self.pages, self.tables, self.drafter = model, pages, tables, drafter

    def fits(self, scheduled: Scheduled) -> bool:
        """The newest token of each and its drafts, not too many, and nothing watches or replaces
        the experts."""
        newest = all(seq.num_computed + 1 == len(seq.tokens) for seq, _ in scheduled)
        if not newest or sum(count for _, count in scheduled) > self.sizes[-1]:
            return False
        moes = [layer.ffn for layer in self.model.layers if isinstance(layer.ffn, ServingMoE)]
        return all(moe.on_route is None and type(moe.experts) is Experts for moe in moes)

    @torch.inference_mode()
    def run(self, scheduled: Scheduled) -> torch.Tensor:
        """Logits `[T, V]`; they stay valid until the next call."""
        seqs = [seq for seq, _ in scheduled]
        tokens = sum(count for _, count in scheduled)
        size = self.size_for(tokens)
        if size not in self._captured:
            self._captured[size] = self._prepare(size, seqs)
        static, replay, logits = self._captured[size]
        static.fill_check(seqs)
        replay()
        return logits[:tokens]

    def _prepare(self, size: int, seqs: list[Sequence]):
        taps = self.drafter.taps if self.drafter else ()
        static = StaticStep(size, self.tables, self.model.device, taps)
        static.fill_check(seqs)

        def run() -> torch.Tensor:
            static.begin()
            logits = self.model.forward(static.step, self.pages)
            if self.drafter:
                self.drafter.observe(static.step)
            return logits

        return static, *self._capture(run)


class DraftGraphs(Graphs):
    """Graphs of DSpark's drafts, backbone and draws together, by number of requests and by what
    the draws need."""

    def __init__(
        self,
        drafter: DSparkDrafter,
        tables: BlockTables,
        most: int,
        capture: Callable | None = None,
    ):
        """`most` requests at once."""
        super().__init__(most, capture)
        self.drafter, self.tables = drafter, tables

    @torch.inference_mode()
    def propose(self, seqs: list[Sequence]) -> Draft:
        """As `Drafter.propose`; the guesses come to the host in one transfer, q stays."""
        key = self.size_for(len(seqs)), kind_of(seqs), self.drafter.places
        if key not in self._captured:
            self._captured[key] = self._prepare(*key, seqs)
        static, chances, replay, (packed, q) = self._captured[key]
        self._fill(static, chances, seqs)
        replay()
        ids, confidence, odds = packed[: len(seqs)].cpu().chunk(3, dim=1)
        guess = Guess(ids.long(), confidence, odds, None if q is None else q[: len(seqs)])
        return self.drafter.calibrated([seq.params for seq in seqs], guess)

    def _prepare(self, size: int, kind: frozenset[int], places: int, seqs: list[Sequence]):
        drafter, device = self.drafter, self.tables.device.device
        vocab = drafter.served.target.config.vocab_size
        static = StaticStep(size * drafter.block, self.tables, device)
        chances = StaticChances(kind, size, places, vocab, device)
        self._fill(static, chances, seqs)

        def run():
            static.begin()
            chances.begin()
            anchors = static.step.ids[:: drafter.block].contiguous()
            guess = drafter.guess(anchors, static.step, chances, with_odds=True)
            parts = guess.ids, guess.confidence, guess.odds
            return torch.cat([part.float() for part in parts], dim=1), guess.q

        return static, chances, *self._capture(run)

    def _fill(self, static: StaticStep, chances: StaticChances, seqs: list[Sequence]) -> None:
        static.fill_blocks(seqs, self.drafter.block)
        chances.fill(seqs)


class CheckGraphs(Graphs):
    """Graphs of what follows the check of drafts: which stay, and the token after them; where there
    are none, the draws of a plain step."""

    def __init__(
        self,
        length: int,
        vocab: int,
        most: int,
        device: torch.device,
        capture: Callable | None = None,
    ):
        """`length` G of the drafts, `most` requests at once."""
        super().__init__(most, capture)
        self.length, self.vocab, self.device = length, vocab, device

    @torch.inference_mode()
    def run(self, logits: torch.Tensor, seqs: list[Sequence], q=None, rows=()):
        """What a step gives each request, from its `logits [T, V]`; drafts of free requests were
        drawn from `q [., G, V]`, in which request b has row `rows[b]`."""
        length = self.length if any(seq.draft for seq in seqs) else 0
        key = self.size_for(len(seqs)), kind_of(seqs), logits.dtype, length
        rows = rows or [0] * len(seqs)
        if key not in self._captured:
            static = StaticCheck(*key, self.vocab, self.device)
            static.fill(seqs, logits, q, rows)
            self._captured[key] = (static, *self._capture(static.run))
        static, replay, packed = self._captured[key]
        static.fill(seqs, logits, q, rows)
        replay()
        accepted, last = packed[:, : len(seqs)].tolist()
        return [
            [*seq.draft[:count], token]
            for seq, count, token in zip(seqs, accepted, last, strict=True)
        ]


def graphs_where_possible(
    model: ServingModel,
    pages: list[Pages],
    block_size: int,
    max_model_len: int,
    max_num_seqs: int,
    drafter: Drafter | None,
) -> tuple[StepGraphs | None, DraftGraphs | None, CheckGraphs | None]:
    """Graphs for steps, drafts and checks; None on a CPU, and where a kernel would fall back to a
    path that waits for the device."""
    if model.device.type != "cuda" or not _all_paths_capturable(model, pages[0].kv):
        return None, None, None
    reach = max(drafter.length, drafter.block) if drafter else 0
    width = -(-(max_model_len + reach) // block_size)
    tables = BlockTables(max_num_seqs, width, block_size, model.device)
    tokens = max_num_seqs * (1 + (drafter.length if drafter else 0))
    steps = StepGraphs(model, pages, tables, tokens, drafter)
    length = drafter.length if drafter else 0
    checks = CheckGraphs(length, model.config.vocab_size, max_num_seqs, model.device)
    drafts = None
    if isinstance(drafter, DSparkDrafter):
        drafts = DraftGraphs(drafter, tables, max_num_seqs)
    return steps, drafts, checks


def _all_paths_capturable(model: ServingModel, kv: torch.Tensor) -> bool:
    from minimoe.ops.grouped_experts import describe_path
    from minimoe.ops.mla_attention import decode_path

    row = kv.new_empty(1, model.config.num_attention_heads, model.config.kv_width)
    if decode_path(row, kv, model.config.kv_lora_rank)[1] != "decode_triton":
        return False
    moes = [layer.ffn for layer in model.layers if isinstance(layer.ffn, ServingMoE)]
    x = kv.new_empty(1, model.config.hidden_size)
    return all(describe_path(1, x, m.experts.gate_up) == "experts_triton" for m in moes)
