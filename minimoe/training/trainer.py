"""One training run: the model, its two optimizers, and the step that moves them."""

import time
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minimoe.config import ModelConfig
from minimoe.model.transformer import Transformer, moe_layers
from minimoe.training.balance import expert_load, sequence_loss, update_bias
from minimoe.training.batches import Batches
from minimoe.training.optimizer import build_optimizers, set_lr
from minimoe.training.recipe import Recipe


def step_losses(model: nn.Module, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Run the model over rows of tokens.

    batch: [B, S + 1]. Returns the mean cross entropy of each row in nats [B], the sequence-wise
    balance loss (mean over layers), and the load of the experts [layers, E].
    """
    logits = model(batch[:, :-1])  # [B, S, V]
    wanted = batch[:, 1:]
    entropy = F.cross_entropy(logits.flatten(0, 1).float(), wanted.flatten(), reduction="none")
    rows = entropy.view(wanted.shape).mean(1)
    layers = moe_layers(model)
    balance = [sequence_loss(moe.last_scores, moe.last_ids, len(batch)) for moe in layers]
    load = [expert_load(moe.last_ids, moe.router.bias.numel()) for moe in layers]
    return rows, torch.stack(balance).mean(), torch.stack(load)


class Trainer:
    """Everything that changes while training. `step()` does one step."""

    def __init__(self, config: ModelConfig, batches: Batches, recipe: Recipe,
                 device: str = "cpu", compile: bool = False):  # fmt: skip
        torch.manual_seed(recipe.seed)
        self.recipe, self.batches, self.device = recipe, batches, torch.device(device)
        self.model = Transformer(config, recipe.dropout).init_weights(seed=recipe.seed)
        self.model.to(self.device).train()
        self.model.turns(self.device)  # made once, outside what is compiled
        self.optimizers = build_optimizers(self.model, recipe.lr, recipe.weight_decay)
        self.losses = (
            torch.compile(step_losses, fullgraph=True, dynamic=False) if compile else step_losses
        )
        self.done = 0  # steps
        self.seconds = 0.0  # spent in steps, without the first one, which compiles

    @property
    def progress(self) -> float:
        """The share of training done, from 0 to 1: by steps, or by the clock."""
        if self.recipe.steps is not None:
            return self.done / self.recipe.steps
        return min(1.0, self.seconds / (60 * self.recipe.minutes))

    def step(self) -> dict[str, Tensor]:
        """One step of gradient descent and of the balance bias.

        Returns, still on the device: `rows` the loss of each row [B], `load` [layers, E].
        """
        start = time.perf_counter()
        # Seeded by the step, so that a resumed run drops the same values.
        torch.manual_seed(self.recipe.seed * 1_000_003 + self.done)
        batch = self.batches.draw(self.done)
        with self._autocast():
            rows, balance, load = self.losses(self.model, batch)
        (rows.mean() + self.recipe.sequence_weight * balance).backward()
        self._descend()
        self._rebalance(load)
        self._forget_activations()
        self.done += 1
        if self.done > 1:
            self.seconds += time.perf_counter() - start
        if self.done == 1 or self.recipe.minutes is not None:
            self.settle()  # the schedule follows the clock, so the clock must be true
        return {"rows": rows.detach(), "load": load}

    def settle(self) -> None:
        """Wait for the device to finish the steps given to it, and count that time."""
        start = time.perf_counter()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        if self.done > 1:
            self.seconds += time.perf_counter() - start

    def _descend(self) -> None:
        set_lr(self.optimizers, self.recipe.lr_at(self.progress))
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def _rebalance(self, load: Tensor) -> None:
        rate = self.recipe.bias_rate_at(self.progress)
        for moe, counts in zip(moe_layers(self.model), load, strict=True):
            update_bias(moe.router.bias, counts, rate)

    def _forget_activations(self) -> None:
        for moe in moe_layers(self.model):
            moe.last_scores = moe.last_ids = None

    def _autocast(self):
        if self.device.type != "cuda":
            return nullcontext()
        return torch.autocast("cuda", torch.bfloat16)

    def state_dict(self) -> dict:
        """What a resumed run needs."""
        return {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "done": self.done,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue from the state of another run with the same recipe and corpus."""
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.done, self.seconds = state["done"], state["seconds"]
