"""Watch the router: which experts each token went to, and how its residual grew."""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from minimoe.config import SHIPPED
from minimoe.model.transformer import Transformer, moe_layers
from minimoe.training.balance import expert_load


@dataclass(frozen=True)
class Routes:
    """What T tokens met on their way through the L mixture-of-experts layers of a model.

    ids: `[L, T, K]`, the experts chosen, most preferred first. weights: `[L, T, K]`, what each
    expert's output was multiplied by. norms: `[layers + 1, T]`, the length of the residual stream
    before the first layer and after each. first: the index of the first such layer in the model.
    """

    ids: torch.Tensor
    weights: torch.Tensor
    norms: torch.Tensor
    first: int


@torch.no_grad()
def follow(model: Transformer, ids: list[int]) -> Routes:
    """Run token `ids` through the textbook model once and record their routes."""
    chosen, norms = [], []
    with ExitStack() as hooks:
        for moe in moe_layers(model):
            hook = moe.router.register_forward_hook(lambda *call: chosen.append(call[2]))
            hooks.callback(hook.remove)
        for module in (model.embed, *model.layers):
            hook = module.register_forward_hook(lambda *call: norms.append(call[2][0].norm(dim=-1)))
            hooks.callback(hook.remove)
        model(torch.tensor([ids], device=model.embed.weight.device))
    return Routes(
        torch.stack([found[0] for found in chosen]).cpu(),
        torch.stack([found[1] for found in chosen]).cpu(),
        torch.stack(norms).cpu(),
        model.config.first_k_dense_replace,
    )


def expert_use(model: Transformer, ids: list[int], window: int = 512) -> torch.Tensor:
    """How often each expert was chosen over token `ids`, in windows: counts `[L, E]`."""
    experts = model.config.n_routed_experts
    total = 0
    for start in range(0, len(ids), window):
        routes = follow(model, ids[start : start + window])
        total = total + torch.stack([expert_load(layer, experts) for layer in routes.ids])
    return total


def shared_choices(routes: Routes, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """How many of its K experts a token has in common with another, per layer: two `[L]`.

    routes: of token `ids`. First the mean over all pairs of places that hold the same token, then
    over all pairs that hold different ones. A pair that does not occur gives NaN.
    """
    experts = int(routes.ids.max()) + 1
    chosen = torch.zeros(*routes.ids.shape[:2], experts).scatter(2, routes.ids.long(), 1.0)
    common = chosen @ chosen.transpose(1, 2)  # [L, T, T]
    word = torch.tensor(ids)
    same = word[:, None] == word[None, :]
    itself = torch.eye(len(ids), dtype=torch.bool)
    return _mean(common, same & ~itself), _mean(common, ~same)


def shared_table(routes: Routes, ids: list[int]) -> str:
    """`shared_choices` as text: a column per layer."""
    layers = range(routes.first, routes.first + len(routes.ids))
    rows = [f"{'experts in common':<20}" + "".join(f"layer {layer}".rjust(9) for layer in layers)]
    for name, means in zip(
        ("same token", "different tokens"), shared_choices(routes, ids), strict=True
    ):
        rows.append(f"{name:<20}" + "".join(f"{mean:>9.2f}" for mean in means.tolist()))
    return "\n".join(rows)


def _mean(common: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    return (common.double() * pairs).sum((1, 2)) / pairs.sum()


def training_mix(folder: str | Path = SHIPPED / "tiny-moe") -> dict[str, float]:
    """Each domain's share of the tokens that a shipped model was trained on, from its log."""
    tokens = json.loads((Path(folder) / "training.json").read_text(encoding="utf-8"))["tokens"]
    return {domain: count / sum(tokens.values()) for domain, count in tokens.items()}


def route_table(routes: Routes, position: int) -> str:
    """One token's way as text: per layer its experts with weights, and the residual's length."""
    rows = [f"{'layer':<7}{'residual':>9}   experts (weight)"]
    rows.append(f"{'embed':<7}{float(routes.norms[0, position]):>9.1f}")
    for layer in range(len(routes.norms) - 1):
        length = float(routes.norms[layer + 1, position])
        rows.append(f"{layer:<7}{length:>9.1f}   {_experts(routes, layer, position)}")
    return "\n".join(rows)


def _experts(routes: Routes, layer: int, position: int) -> str:
    if layer < routes.first:
        return "dense: every token uses all of it"
    row = layer - routes.first
    pairs = zip(routes.ids[row, position], routes.weights[row, position], strict=True)
    pairs = sorted(pairs, key=lambda pair: -pair[1])  # by weight: the router's order has the bias
    return "  ".join(f"{int(expert):>2} ({float(weight):.2f})" for expert, weight in pairs)
