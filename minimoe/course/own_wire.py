"""A reader's own all-to-all in the engine: what an exercise of 03 plugs in.

The engine's expert layers are spread over virtual ranks (`VirtualExperts` in the place of
`ServingMoE.run_experts`), and every message between those goes through the reader's function.
"""

from collections.abc import Callable, Sequence

import torch

from minimoe import LLM, SamplingParams
from minimoe.model.serving import ServingMoE
from minimoe.parallel.dispatch import VirtualExperts
from minimoe.parallel.placement import in_order
from minimoe.parallel.wire import VirtualWire


class OwnWire(VirtualWire):
    """Carries rows by `exchange(rows, counts)` on plain lists of rows; counts what it carried."""

    def __init__(self, size: int, exchange: Callable):
        super().__init__(size)
        self.exchange, self.calls = exchange, 0

    def all_to_all(
        self, rows: list[torch.Tensor], send: list[Sequence[int]], kind: str
    ) -> list[torch.Tensor]:
        """Rank r sends `send[r][q]` of `rows[r]` to rank q, in order."""
        self.calls += 1
        arrived = self.exchange([list(own) for own in rows], [list(sizes) for sizes in send])
        return [
            torch.stack(own) if own else like.new_empty(0, *like.shape[1:])
            for own, like in zip(arrived, rows, strict=True)
        ]


def serve(llm: LLM, prompts: list, ranks: int, exchange: Callable | None, new_tokens: int = 8):
    """Greedy tokens of each prompt with the experts on virtual ranks, and the all-to-alls made.

    exchange: a reader's `all_to_all(rows, counts)`, or None for the library's own.
    """
    config = llm.config
    wires, before = [], []
    for moe in (layer.ffn for layer in llm.model.layers if isinstance(layer.ffn, ServingMoE)):
        wire = OwnWire(ranks, exchange) if exchange else VirtualWire(ranks)
        weights = moe.experts.gate_up.data, moe.experts.down.data
        placement = in_order(1, config.n_routed_experts, ranks)
        before.append((moe, moe.run_experts))
        moe.run_experts = VirtualExperts(0, placement, *weights, wire)
        wires.append(wire)
    params = SamplingParams(max_tokens=new_tokens, temperature=0.0, ignore_eos=True)
    try:
        outputs = llm.generate(prompts, params)
    finally:
        for moe, own in before:
            moe.run_experts = own
    calls = sum(wire.calls for wire in wires) if exchange else 0
    return [out.outputs[0].token_ids for out in outputs], calls
