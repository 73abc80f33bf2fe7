"""Measurements of a model on held-out text: loss, and which experts each domain uses."""

from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minimoe.model.transformer import moe_layers
from minimoe.training.balance import expert_load, load_spread, total_variation


@torch.no_grad()
def held_out_loss(model: nn.Module, rows: Tensor, batch: int = 16) -> float:
    """Mean cross entropy in nats per token over rows [R, S + 1], with dropout off."""
    was_training = model.training
    model.eval()
    total = sum(_row_losses(model, part).sum() for part in rows.split(batch))
    model.train(was_training)
    return float(total) / len(rows)


def _row_losses(model: nn.Module, rows: Tensor) -> Tensor:
    rows = rows.to(model.embed.weight.device)
    logits = model(rows[:, :-1])  # [B, S, V]
    loss = F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten(), reduction="none")
    return loss.view(len(rows), -1).mean(1)


@torch.no_grad()
def expert_usage(model: nn.Module, rows: Tensor, batch: int = 16) -> Tensor:
    """How often each expert is chosen over rows [R, S + 1]: counts [layers, E], dropout off."""
    layers, loads = moe_layers(model), []
    was_training = model.training
    model.eval()
    hooks = [moe.router.register_forward_hook(_keep_ids(moe)) for moe in layers]
    for part in rows.split(batch):
        model(part[:, :-1].to(model.embed.weight.device))
        loads.append(torch.stack([expert_load(m.last_ids, m.router.bias.numel()) for m in layers]))
    for hook, moe in zip(hooks, layers, strict=True):
        hook.remove()
        moe.last_ids = None
    model.train(was_training)
    return torch.stack(loads).sum(0).cpu()


def _keep_ids(moe):
    def keep(module, inputs, outputs):
        moe.last_ids = outputs[0]  # [T, K]

    return keep


def mixed_usage(usage: dict[str, Tensor], mix: dict[str, float]) -> Tensor:
    """Share of each expert [layers, E] when the domains come in these proportions.

    usage: counts [layers, E] per domain.
    """
    total = sum(mix.values())
    return sum(
        counts.double() / counts.sum(-1, keepdim=True) * (mix[name] / total)
        for name, counts in usage.items()
    )


def balance_report(usage: dict[str, Tensor], mix: dict[str, float]) -> dict:
    """Load per layer on the training mix and on an equal mix, and how far domains differ.

    `usage_difference` is the total variation between the experts of two domains, one value a layer.
    """
    equal = dict.fromkeys(usage, 1.0)
    return {
        "training_mix": [load_spread(layer) for layer in mixed_usage(usage, mix)],
        "equal_mix": [load_spread(layer) for layer in mixed_usage(usage, equal)],
        "usage_difference": {
            f"{a}-{b}": [total_variation(x, y) for x, y in zip(usage[a], usage[b], strict=True)]
            for a, b in combinations(usage, 2)
        },
    }
