"""`torchrun ... -m minimoe generate PROMPT`: the same ranks on one machine or several.

    torchrun --nproc-per-node 2 -m minimoe generate "def fib(n):"
    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:PORT \\
        -m minimoe generate "def fib(n):" --device cuda --dtype bfloat16

Here no parent hands requests out: rank 0 has the prompt, and the others serve their experts until
all agree that there is nothing left. When a rank dies, the others end with an error.
"""

import os
import sys
from collections.abc import Iterator
from datetime import timedelta

from minimoe.errors import MinimoeError

TIMEOUT = 60.0  # seconds that a message may take


def world_size() -> int:
    """Ranks that torchrun started, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1


class TorchrunLLM:
    """What `generate` needs of `LLM`, on each of the ranks that torchrun started.

    Raises MinimoeError when `size` is given and is not what torchrun started.
    """

    def __init__(self, size: int | None, options: dict):
        if size not in (None, world_size()):
            raise MinimoeError(
                f"expert_parallel_size is {size} and torchrun started {world_size()} ranks: "
                "make them equal, or leave the option out"
            )
        from torch.distributed import rendezvous

        from minimoe.engine.rank_engine import RankEngine
        from minimoe.parallel.rank import Context

        context = Context(_own_device(options["device"]))
        store, rank, size = next(rendezvous("env://", timeout=timedelta(seconds=TIMEOUT)))
        context.form(store, 0, rank, size, TIMEOUT)
        self.rank = RankEngine(context, options)
        self.tokenizer = self.rank.llm.tokenizer
        if context.rank:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (rank 0 speaks for all)

    def stream_outputs(self, prompt, params) -> Iterator:
        """On rank 0 like `LLM.stream_outputs`; the others give nothing until all are done."""
        request = None
        if self.rank.context.rank == 0:
            request = self.rank.engine.add_request("prompt", prompt, params)
        while self.rank.step_engine()[0]:
            if request:
                request.raise_error()
                yield request.text.take(final=request.seq.finished), request.output()


def _own_device(device: str | None) -> str:
    """The GPU of this rank on its machine, or the CPU."""
    import torch

    from minimoe.engine.arguments import check_device

    device = check_device(device)
    if device.startswith("cuda"):
        device = check_device(f"cuda:{os.environ['LOCAL_RANK']}")
        torch.cuda.set_device(device)
    return device
