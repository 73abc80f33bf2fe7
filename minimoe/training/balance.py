"""Keep the experts evenly busy: a bias nudged between steps, and a small loss within a sequence.

The bias rule is "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts" (Wang et al.,
2024), the sequence-wise loss is from the DeepSeek-V3 report (2024), section 2.1.2. The bias only
chooses experts; it never enters their weights, so it pulls no gradient through the model.
"""

import torch
from torch import Tensor


def expert_load(ids: Tensor, experts: int, real: Tensor | None = None) -> Tensor:
    """Count how many tokens each expert was given.

    ids: [T, K]. real: [T] bool, False for padding, which is not counted. Returns [E] int64, whose
    sum is K times the number of real tokens.
    """
    ones = torch.ones_like(ids) if real is None else real[:, None].expand_as(ids).to(ids.dtype)
    load = torch.zeros(experts, dtype=torch.int64, device=ids.device)
    return load.scatter_add(0, ids.reshape(-1).long(), ones.reshape(-1).long())  # [E]


@torch.no_grad()
def update_bias(bias: Tensor, load: Tensor, rate: float) -> None:
    """Raise the bias of experts below the mean load by `rate`, lower it above; in place.

    bias: [E]. load: [E] counts. An expert at the mean exactly is left alone.
    """
    load = load.to(bias.device, bias.dtype)
    bias.add_(torch.sign(load.mean() - load), alpha=rate)


def sequence_loss(scores: Tensor, ids: Tensor, sequences: int, real: Tensor | None = None):
    """The sequence-wise balance loss, averaged over sequences; 1 when every expert is used evenly.

    scores: [T, E] sigmoid scores (differentiable). ids: [T, K] the chosen experts. T is a number of
    `sequences` of equal length, one after another. real: [T] bool, False for padding. For each
    sequence, sum over experts of (share of choices x E) x (mean normalised score).
    """
    tokens, experts = scores.shape
    if tokens % sequences:
        raise ValueError(f"{tokens} tokens are not {sequences} sequences of one length")
    weight = torch.ones(tokens, device=scores.device) if real is None else real.float()  # [T]
    chosen = torch.zeros_like(scores, dtype=torch.float32)
    chosen = chosen.scatter(1, ids.long(), 1.0) * weight[:, None]  # [T, E]
    share = scores.float() / scores.float().sum(-1, keepdim=True) * weight[:, None]  # [T, E]
    count = weight.view(sequences, -1).sum(1).clamp_min(1)[:, None]  # [sequences, 1]
    frequency = chosen.view(sequences, -1, experts).sum(1) / count * (experts / ids.shape[1])
    probability = share.view(sequences, -1, experts).sum(1) / count  # [sequences, E]
    return (frequency * probability).sum(-1).mean()


def load_spread(load: Tensor) -> dict[str, float]:
    """Busiest and idlest expert relative to the mean. load: [E] counts."""
    load = load.double()
    mean = load.mean().clamp_min(1e-9)
    return {"max": float(load.max() / mean), "min": float(load.min() / mean)}


def total_variation(first: Tensor, second: Tensor) -> float:
    """Half the summed absolute difference of two usages [E]: 0 the same experts, 1 disjoint."""
    first, second = first.double() / first.sum(), second.double() / second.sum()
    return float((first - second).abs().sum() / 2)
