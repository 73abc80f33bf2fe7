"""What the engine does with logits: draws, which drafters share, and log probabilities."""

import torch

from minimoe.ops.sampling import exponential_noise, probabilities, sample

__all__ = ["exponential_noise", "probabilities", "sample", "top_logprobs"]


def top_logprobs(logits: torch.Tensor, chosen: int, count: int) -> dict[int, float]:
    """Log probabilities, before temperature and filters, of the likeliest `count` tokens of one row
    `[V]` and of the chosen one."""
    logp = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
    best = logp.topk(min(count, len(logp)))
    out = dict(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return out | {chosen: float(logp[chosen])}
