"""What a drafter is worth on held-out prompts: expected while training, measured at the end."""

import numpy as np
import torch
from torch import Tensor

from minimoe.errors import MinimoeError
from minimoe.model.serving import ServingModel
from minimoe.model.transformer import Transformer
from minimoe.speculative.dspark import DSpark
from minimoe.speculative.serving_dspark import ServingDSpark
from minimoe.training.corpus import DOMAINS
from minimoe.training.drafter_loop import DraftLoop, Passes
from minimoe.training.drafter_loss import expected_length
from minimoe.training.drafter_text import generate
from minimoe.training.drafter_trainer import Blocks


def held_out_prompts(corpus: dict, count: int, length: int, begin_id: int = 0) -> dict:
    """`count` prompts `[count, length]` of each domain from text that no training read.

    Short documents are cut from their beginning; source files are long, so prompts are stretches
    spread evenly over them. Raises MinimoeError when the held-out text is too short for that.
    """
    return {name: _prompts(name, corpus[f"{name}_heldout"], count, length, begin_id)
            for name in DOMAINS}  # fmt: skip


def _prompts(name: str, tokens: np.ndarray, count: int, length: int, begin_id: int) -> Tensor:
    starts = np.arange(len(tokens) - length)
    if name != "code":
        starts = np.flatnonzero(tokens[: len(tokens) - length] == begin_id)
    if len(starts) < count:
        raise MinimoeError(
            f"held-out {name} has {len(starts)} places for a prompt and {count} were asked for: "
            "build a larger corpus"
        )
    starts = starts[np.linspace(0, len(starts) - 1, count).astype(int)]
    return torch.from_numpy(tokens.astype(np.int64)[starts[:, None] + np.arange(length)])


class ExpectedLength:
    """Expected accepted length in text that the target wrote behind held-out prompts.

    Every position of that text is an anchor once; nothing is drawn, so the figure is exact for this
    text at temperature 1: 1 + the sum over k of the product of the first k chances.
    """

    def __init__(self, model: Transformer, serving: ServingModel, prompts: dict, new_tokens: int):
        self.model, self.first = model, next(iter(prompts.values())).shape[1] - 1
        rows = torch.cat(list(prompts.values()))
        room = torch.zeros(len(rows), new_tokens, dtype=torch.long)
        lengths = torch.full((len(rows),), rows.shape[1])
        torch.manual_seed(1)
        text = generate(serving, torch.cat([rows, room], 1), lengths, torch.ones(len(rows)))
        self.text = dict(zip(prompts, text.clone().split([len(p) for p in prompts.values()]),
                             strict=True))  # fmt: skip

    @torch.no_grad()
    def measure(self, dspark: DSpark) -> dict[str, float]:
        """By domain."""
        return {name: round(self._of(dspark, ids), 4) for name, ids in self.text.items()}

    def _of(self, dspark: DSpark, ids: Tensor) -> float:
        G = dspark.config.length
        anchors = torch.arange(self.first, ids.shape[1] - G, device=ids.device)
        blocks = Blocks(self.model, dspark.config.taps, ids, anchors.expand(len(ids), -1), G)
        turns, head = self.model.turns(ids.device), self.model.head.weight
        embed = self.model.embed.weight
        hidden = dspark(embed, turns, blocks.taps.to(dspark.mask.dtype), ids, blocks.anchors)
        logits = dspark.logits(hidden, blocks.previous, head.to(hidden.dtype))
        q = torch.softmax(logits.float(), -1)
        chance = 1 - (q - blocks.target).abs().sum(-1) / 2  # [B, A, G]
        return float(expected_length(chance).mean())


def measure_loop(serving: ServingModel, drafter: ServingDSpark, prompts: dict, new_tokens: int,
                 temperature: float, seed: int = 0) -> Passes:  # fmt: skip
    """All domains' prompts in one draft-and-verify loop."""
    rows = torch.cat(list(prompts.values()))
    return DraftLoop(serving, drafter, rows, new_tokens, temperature).run(seed)


def summarise(passes: Passes, prompts: dict, eos_id: int) -> dict:
    """Accepted length and acceptance by domain.

    `accepted_length`: tokens a pass, bonus included, of the first `new_tokens` tokens;
    `to_end`: the same when a text stops at its end token; `by_position`: share of drafts accepted
    where all before them were; `mean` is over domains.
    """
    count = len(next(iter(prompts.values())))
    domain = passes.sequence // count
    out = {name: _of_domain(passes, domain == i, eos_id) for i, name in enumerate(prompts)}
    out["mean"] = {
        key: round(float(np.mean([out[name][key] for name in prompts])), 4)
        for key in ("accepted_length", "to_end")
    }
    return out


def _of_domain(passes: Passes, rows: Tensor, eos_id: int) -> dict:
    accepted = passes.accepted[rows]
    G = passes.confidence.shape[1]
    reached = [int((accepted >= k).sum()) for k in range(G + 1)]
    return {
        "accepted_length": round(float(accepted.float().mean()) + 1, 4),
        "to_end": _length_to_end(passes, rows, eos_id),
        "by_position": [
            round(b / max(a, 1), 4) for a, b in zip(reached, reached[1:], strict=False)
        ],
        "passes": len(accepted),
    }


def _length_to_end(passes: Passes, rows: Tensor, eos_id: int) -> float:
    """Tokens a pass when each text stops at its first end token behind the prompt."""
    first = int(passes.start.min())
    written = passes.ids[:, first + 1 :] == eos_id
    has_end, end = written.any(1), written.int().argmax(1) + first + 1
    last = torch.where(has_end, end, passes.ids.shape[1] - 1)[passes.sequence[rows]]
    start, accepted = passes.start[rows], passes.accepted[rows]
    live = start < last
    tokens = torch.minimum(accepted + 1, last - start)[live]
    return round(float(tokens.float().mean()), 4)


def validation_arrays(by_temperature: dict[int, Passes], prompts: dict) -> dict[str, np.ndarray]:
    """Confidence and outcome of every pass, as `validation.npz` holds them."""
    count = len(next(iter(prompts.values())))
    parts = []
    for temperature, passes in by_temperature.items():
        parts.append({
            "confidence": passes.confidence.numpy().astype(np.float16),
            "odds": passes.odds.numpy().astype(np.float16),
            "accepted": passes.accepted.numpy().astype(np.uint8),
            "temperature": np.full(len(passes.accepted), temperature, dtype=np.uint8),
            "domain": (passes.sequence // count).numpy().astype(np.uint8),
            "prompt": (passes.sequence % count).numpy().astype(np.uint16),
            "turn": passes.turn.numpy().astype(np.uint16),
        })  # fmt: skip
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return arrays | {"domains": np.array(list(prompts))}
