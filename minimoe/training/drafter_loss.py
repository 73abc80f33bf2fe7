"""What a drafter is trained for: to be accepted."""

import torch
import torch.nn.functional as F
from torch import Tensor

CROSS_ENTROPY, VARIATION, CONFIDENCE = 0.1, 0.9, 1.0


def position_weights(length: int, gamma: float, device=None) -> Tensor:
    """exp(-(k - 1) / gamma) for k = 1..G, sum 1: a late position counts only if all before it were
    accepted."""
    weights = torch.exp(-torch.arange(length, device=device) / gamma)
    return weights / weights.sum()


def drafter_loss(logits, target, ids, confidence, weights) -> tuple[Tensor, Tensor]:
    """The loss of a batch of blocks (DSpark, arXiv 2607.05147, 3.3).

    0.1 cross entropy + 0.9 |q - p|_1 + the binary cross entropy of the confidence against the true
    chance of acceptance, 1 - |q - p|_1 / 2, all weighted by position.

    Args:
        logits, confidence: of the drafter, `[N, G, V]` and `[N, G]`.
        target: p, the target's probabilities for the same places, `[N, G, V]` float32.
        ids: the tokens that stand there, `[N, G]`; weights: `[G]`, from `position_weights`.

    Returns the loss, and the mean chance of acceptance at each position `[G]`.
    """
    logq = torch.log_softmax(logits.float(), -1)
    entropy = F.nll_loss(logq.flatten(0, 1), ids.flatten(), reduction="none").view(ids.shape)
    distance = (logq.exp() - target).abs().sum(-1)  # [N, G]
    chance = 1 - distance.detach() / 2
    sure = F.binary_cross_entropy_with_logits(confidence.float(), chance, reduction="none")
    total = CROSS_ENTROPY * entropy + VARIATION * distance + CONFIDENCE * sure
    return (total.mean(0) * weights).sum(), chance.mean(0)


def expected_length(chance: Tensor) -> Tensor:
    """Expected tokens of a pass, bonus included, from chances `[N, G]`, each given that all before
    it stood: 1 + the sum over k of the product of the first k. Gives `[N]`."""
    return 1 + chance.cumprod(-1).sum(-1)
