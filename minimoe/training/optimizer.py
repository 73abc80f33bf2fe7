"""Muon for the weight matrices, AdamW for everything else.

Muon (Jordan et al., 2024) replaces a matrix's momentum by the nearest matrix whose singular values
are all about one, so every direction moves equally far. The scale that lets it share AdamW's
learning rate is from "Muon is Scalable for LLM Training" (Liu et al., 2025).
"""

import torch
from torch import Tensor, nn

QUINTIC = (3.4445, -4.7750, 2.0315)  # steepest at zero: small singular values grow fastest


def orthogonalise(matrix: Tensor, steps: int = 5) -> Tensor:
    """Push the singular values of each matrix towards one by a Newton-Schulz iteration.

    matrix: [..., rows, columns]; every leading dimension is a batch, so stacked experts are
    orthogonalised one by one. Returns the same shape, in bf16 on CUDA and fp32 elsewhere. Singular
    values land within roughly 0.7 to 1.2, which is near enough for an update.
    """
    dtype = torch.bfloat16 if matrix.is_cuda else torch.float32
    tall = matrix.shape[-2] > matrix.shape[-1]
    x = (matrix.mT if tall else matrix).float()  # rows <= columns keeps the Gram matrix small
    shape = x.shape
    x = x.reshape(-1, *shape[-2:])  # [batch, rows, columns]
    x = (x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)).to(dtype)
    a, b, c = QUINTIC
    for _ in range(steps):
        gram = x @ x.mT  # [batch, rows, rows]
        gram = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, gram, x, beta=a)
    x = x.view(shape)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised, with decoupled weight decay.

    Parameters are matrices [rows, columns] or stacks of them [E, rows, columns]. Those of one shape
    are updated in one batch: a small model has dozens of matrices and few shapes, and one launch a
    matrix would cost more than the arithmetic.
    """

    def __init__(self, params, lr=4e-3, momentum=0.95, weight_decay=0.1):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))
        for group in self.param_groups:
            for param in group["params"]:
                if param.ndim not in (2, 3):
                    raise ValueError(
                        f"Muon takes matrices or stacks of matrices, got shape "
                        f"{tuple(param.shape)}; give it to AdamW"
                    )

    @torch.no_grad()
    def step(self, closure=None):
        """Update every parameter that has a gradient."""
        if closure is not None:
            raise ValueError("Muon takes no closure; call backward() before step()")
        for group in self.param_groups:
            for params in _by_shape(group["params"]):
                self._step_shape(params, group)

    def _step_shape(self, params: list[Tensor], group: dict) -> None:
        gradients = [param.grad for param in params]
        averages = [self._average(param) for param in params]
        torch._foreach_lerp_(averages, gradients, 1 - group["momentum"])
        # Nesterov: look one step ahead along the average before projecting.
        ahead = torch._foreach_lerp(gradients, averages, group["momentum"])
        update = orthogonalise(torch.stack(ahead)).to(params[0].dtype)
        step = group["lr"] * match_adamw(params[0].shape)
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(params, list(update.unbind(0)), alpha=-step)

    def _average(self, param: Tensor) -> Tensor:
        state = self.state[param]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(param)
        return state["momentum"]


def match_adamw(shape: torch.Size) -> float:
    """The factor that gives an orthogonal update the size (RMS 0.2) of a typical AdamW update."""
    return 0.2 * max(shape[-2], shape[-1]) ** 0.5


def _by_shape(params: list[Tensor]) -> list[list[Tensor]]:
    groups: dict[torch.Size, list[Tensor]] = {}
    for param in params:
        if param.grad is not None:
            groups.setdefault(param.shape, []).append(param)
    return list(groups.values())


def split_parameters(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """Split a model's parameters into (matrices for Muon, the rest for AdamW).

    Embedding and head are tables of rows rather than maps between spaces: they go to AdamW with the
    norms.
    """
    tables = {id(model.embed.weight), id(model.head.weight)}
    matrices, rest = [], []
    for param in model.parameters():
        is_matrix = param.ndim >= 2 and id(param) not in tables
        (matrices if is_matrix else rest).append(param)
    return matrices, rest


def build_optimizers(
    model: nn.Module, lr: float = 4e-3, weight_decay: float = 0.1
) -> list[torch.optim.Optimizer]:
    """Muon and AdamW over one model, both at the same learning rate. Norms are not decayed."""
    matrices, rest = split_parameters(model)
    groups = [
        {"params": [p for p in rest if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)
    return [Muon(matrices, lr=lr, weight_decay=weight_decay), adamw]


def set_lr(optimizers: list[torch.optim.Optimizer], lr: float) -> None:
    """Give every parameter group the learning rate of this step."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr
