"""A mixture-of-experts layer: MoE = Router + Experts + one shared MLP that every token uses."""

import torch
import torch.nn.functional as F
from torch import nn

from minimoe.config import ModelConfig
from minimoe.ops.grouped_experts import experts_serve, experts_train, lay_out, silu_mul


class DenseMLP(nn.Module):
    """Gated MLP: `[..., D]` to `[..., D]` through `width` hidden values."""

    def __init__(self, hidden: int, width: int):
        super().__init__()
        self.gate_up = nn.Linear(hidden, 2 * width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(silu_mul(self.gate_up(x)))


class Router(nn.Module):
    """Chooses K of E experts per token (DeepSeek-V3, arXiv 2412.19437, 2.1.2).

    `bias [E]` takes part in choosing only: it keeps the load even without an auxiliary loss. The
    weights of the chosen come from the plain scores.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.n_routed_experts, config.hidden_size))
        self.register_buffer("bias", torch.zeros(config.n_routed_experts, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`x [T, D]` to expert ids `[T, K]`, weights `[T, K]`, and all scores `[T, E]`."""
        wide = x if x.dtype == torch.float64 else x.float()
        with torch.autocast(x.device.type, enabled=False):  # near ties need full precision
            scores = F.linear(wide, self.weight.to(wide.dtype)).sigmoid()  # [T, E]
        return *route(scores, self.bias, self.config), scores


def route(scores: torch.Tensor, bias: torch.Tensor, config: ModelConfig):
    """Scores `[T, E]` in (0, 1) and `bias [E]` to ids `[T, K]` and weights `[T, K]`."""
    ids, weights = choose(scores, bias, config)
    return ids, weights * config.routed_scaling_factor


def choose(scores: torch.Tensor, bias: torch.Tensor, config: ModelConfig):
    """`route` before scaling: each row of weights sums to 1 if `norm_topk_prob`."""
    choice = scores + bias
    if config.n_group > 1:
        choice = _keep_best_groups(choice, config)
    ids = torch.topk(choice, config.num_experts_per_tok, dim=-1).indices  # [T, K]
    weights = scores.gather(-1, ids)
    if config.norm_topk_prob:
        weights = weights / weights.sum(-1, keepdim=True)
    return ids, weights


def _keep_best_groups(choice: torch.Tensor, config: ModelConfig) -> torch.Tensor:
    """Group-limited routing: experts outside the best groups become -inf, `[T, E]`."""
    grouped = choice.unflatten(-1, (config.n_group, -1))  # [T, groups, E/groups]
    group_score = grouped.topk(min(2, grouped.shape[-1]), dim=-1).values.sum(-1)
    best = group_score.topk(config.topk_group, dim=-1).indices
    outside = torch.ones_like(group_score, dtype=torch.bool).scatter_(-1, best, False)
    return grouped.masked_fill(outside[..., None], float("-inf")).flatten(-2)


class Experts(nn.Module):
    """The routed experts' weights. Expert parallelism replaces this module and nothing else."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        E, D, width = config.n_routed_experts, config.hidden_size, config.moe_intermediate_size
        self.gate_up = nn.Parameter(torch.empty(E, 2 * width, D))
        self.down = nn.Parameter(torch.empty(E, D, width))

    def lay_out(self) -> None:
        """Put the weights in the memory order that serving reads fastest; values stay."""
        gate_up, down = lay_out(self.gate_up.data, self.down.data)
        self.gate_up.data, self.down.data = gate_up, down
        self._served = gate_up, down  # reading a parameter of a module takes a microsecond

    def serve(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """`forward` without gradients and without the cost of a module call, after `lay_out`."""
        return experts_serve(x, ids, weights, *self._served)

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """`x [T, D]`, `ids [T, K]`, `weights [T, K]` to `[T, D]`."""
        run = experts_train if torch.is_grad_enabled() else experts_serve
        return run(x, ids, weights, self.gate_up, self.down)


class MoE(nn.Module):
    """`x [..., D]` to `[..., D]`. In training mode it keeps `last_ids` and `last_scores`."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.router = Router(config)
        self.experts = Experts(config)
        shared_width = config.n_shared_experts * config.moe_intermediate_size
        self.shared = DenseMLP(config.hidden_size, shared_width)
        self.last_ids = self.last_scores = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, -2)  # [T, D]
        ids, weights, scores = self.router(flat)
        if self.training:
            self.last_ids, self.last_scores = ids, scores
        out = self.experts(flat, ids, weights).view_as(x)
        return out + self.shared(x)
