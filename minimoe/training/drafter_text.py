"""Text for training a drafter: half from the corpus, half written by the target itself.

A drafter is checked against what the target says next in text that the target wrote, so that is
what it must see: prompts from the training corpus, continued at temperatures between 0 and 1.
"""

import zlib

import numpy as np
import torch
from torch import Tensor

from minimoe.model.serving import ServingModel
from minimoe.training.batches import DomainStream
from minimoe.training.drafter_rows import PagedRows, replayed

COLD = 1e-6  # a temperature that no draw survives, in place of 0
PROMPT = (16, 192)  # tokens, drawn between


@torch.inference_mode()
def generate(model: ServingModel, rows: Tensor, prompts: Tensor, temperatures: Tensor) -> Tensor:
    """Continue each row's prompt to the row's end.

    Args:
        rows: `[B, S]` token ids, of which the first `prompts [B]` are kept.
        temperatures: `[B]`, 0 for the likeliest token.

    Returns `[B, S]`. An end of text is a token like any other: the model goes on with a new one, as
    in its training rows.
    """
    ids, paged = rows.to(model.device, copy=True), PagedRows(model, *rows.shape)
    prompts = prompts.to(model.device)
    temperatures = temperatures.to(model.device).clamp_min(COLD)[:, None]
    position = torch.zeros(len(ids), 1, dtype=torch.long, device=model.device)

    def work():
        logits, _ = paged.run(paged.step(ids.gather(1, position), position))
        noise = torch.empty_like(logits[:, 0], dtype=torch.float32).exponential_().log_().neg_()
        drawn = (logits[:, 0].float() / temperatures + noise).argmax(-1, keepdim=True)
        position.add_(1)
        kept = ids.gather(1, position)
        ids.scatter_(1, position, torch.where(position < prompts[:, None], kept, drawn))

    replay = replayed(work, model.device)  # on CUDA that has run it a few times
    ids.copy_(rows)
    position.zero_()
    for _ in range(rows.shape[1] - 1):
        replay()
    return ids


def prompt_rows(streams: dict[str, DomainStream], counts: dict[str, int]) -> dict[str, Tensor]:
    """The first rows of each domain's stream, `[count, length]`."""
    return {name: streams[name].rows(0, n)[:, :-1].long() for name, n in counts.items()}


def target_text(
    model: ServingModel, rows: dict[str, Tensor], batch: int, seed: int
) -> dict[str, Tensor]:
    """Rewrite `rows [n, S]` of each domain behind a prompt: half at temperature 1, a quarter
    greedy, a quarter between. All domains share batches of `batch` rows."""
    random = torch.Generator().manual_seed(seed)
    everything = torch.cat(list(rows.values()))
    order = torch.randperm(len(everything), generator=random)
    longest = min(PROMPT[1], everything.shape[1] // 2)
    prompts = torch.randint(min(PROMPT[0], longest - 1), longest, (len(order),), generator=random)
    heat = torch.rand(len(order), generator=random) * 4 - 1  # below 0: greedy; above 1: one
    out = torch.empty_like(everything)
    torch.manual_seed(seed)
    for part in order.split(batch):
        heats = heat[part].clamp(0, 1)
        out[part] = generate(model, everything[part], prompts[part], heats).to(out.device)
    return dict(zip(rows, out.split([len(part) for part in rows.values()]), strict=True))


class DrafterBatches:
    """Batches of rows on the device: a fixed number from each domain, half of them the target's."""

    def __init__(
        self, corpus: dict[str, Tensor], written: dict[str, Tensor], counts: dict[str, int],
        seed: int, device: torch.device,
    ):  # fmt: skip
        self.counts, self.seed, self.device = counts, seed, device
        self.rows = {
            (name, kind): rows.to(device, torch.int32)
            for kind, side in (("corpus", corpus), ("written", written))
            for name, rows in side.items()
        }

    def draw(self, step: int) -> Tensor:
        """The batch of this step, `[B, S]` int64 on the device."""
        return torch.cat([self._draw(step, name, n) for name, n in self.counts.items()]).long()

    def _draw(self, step: int, name: str, count: int) -> Tensor:
        random = np.random.default_rng((self.seed, zlib.crc32(name.encode()), step))
        written = (count + step % 2) // 2  # half over two steps, if the count is odd
        parts = []
        for kind, number in (("written", written), ("corpus", count - written)):
            rows = self.rows[name, kind]
            chosen = torch.from_numpy(random.integers(len(rows), size=number))
            parts.append(rows[chosen.to(self.device)])
        return torch.cat(parts)
