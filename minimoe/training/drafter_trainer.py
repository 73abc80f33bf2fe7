"""Training drafters of one target side by side: one pass of the target feeds them all."""

import time
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minimoe.model.transformer import Transformer
from minimoe.speculative.dspark import DSpark, hidden_and_taps
from minimoe.speculative.dspark_config import DSparkConfig
from minimoe.training.drafter_loss import drafter_loss, position_weights
from minimoe.training.drafter_recipe import DrafterRecipe
from minimoe.training.drafter_rows import replayed
from minimoe.training.drafter_text import DrafterBatches
from minimoe.training.optimizer import Muon, set_lr

SETTLE_EVERY = 20  # steps between two looks at the clock, for which the device is waited


class Blocks:
    """What the target says about the blocks of a batch: the same for every drafter."""

    def __init__(self, model: Transformer, taps: tuple[int, ...], ids: Tensor, anchors: Tensor,
                 length: int):  # fmt: skip
        hidden, self.taps = hidden_and_taps(model, ids, taps)  # [B, S, D], [B, S, 3D]
        self.ids, self.anchors = ids, anchors
        at = anchors[:, :, None] + torch.arange(length, device=ids.device)  # [B, A, G]
        self.previous = _pick(ids, at)
        self.next = _pick(ids, at + 1)
        rows = hidden.gather(1, at.flatten(1)[..., None].expand(-1, -1, hidden.shape[-1]))
        logits = F.linear(rows, model.head.weight).view(*at.shape, -1)
        self.target = torch.softmax(logits.float(), -1)  # p, [B, A, G, V]


def _pick(ids: Tensor, at: Tensor) -> Tensor:
    return ids.gather(1, at.flatten(1)).view(at.shape)


def run_drafter(dspark: DSpark, model: Transformer, blocks: Blocks, weights: Tensor):
    """One drafter over the blocks, as in training; gives the loss and the chances `[G]`."""
    turns = model.turns(blocks.ids.device)
    embed, head = model.embed.weight, model.head.weight
    hidden = dspark(embed, turns, blocks.taps, blocks.ids, blocks.anchors)  # [B, A, G, D]
    logits = dspark.logits(hidden, blocks.previous, head)
    confidence = dspark.confidence(hidden, blocks.previous)
    parts = (logits, blocks.target, blocks.next, confidence)
    return drafter_loss(*(part.flatten(0, 1) for part in parts), weights)


class DrafterTrainer:
    """All that changes while training. `step()` does one step for every drafter.

    Args:
        model: the target, frozen; on CUDA in bfloat16.
        configs: the drafters by name; they share taps and block length.
    """

    def __init__(self, model: Transformer, configs: dict[str, DSparkConfig],
                 batches: DrafterBatches, recipe: DrafterRecipe):  # fmt: skip
        self.model, self.recipe, self.batches = model, recipe, batches
        self.device = model.embed.weight.device
        self.drafters = {
            name: DSpark(config, model.config).init_weights(seed=recipe.seed).to(self.device)
            for name, config in configs.items()
        }
        first = next(iter(configs.values()))
        self.length, self.taps = first.length, first.taps
        self.weights = position_weights(first.length, recipe.gamma, self.device)
        self.optimizers = [o for d in self.drafters.values() for o in drafter_optimizers(d, recipe)]
        self.random = torch.Generator(self.device).manual_seed(recipe.seed)
        self.ids = batches.draw(0)
        self.anchors = torch.zeros(
            recipe.rows, recipe.anchors, dtype=torch.long, device=self.device
        )
        self.losses = torch.zeros(len(configs), device=self.device)
        self.chances = torch.zeros(len(configs), self.length, device=self.device)
        self.done, self.seconds, self._since = 0, 0.0, None
        self._draw()
        self._forward_backward = replayed(self._work, self.device)

    @property
    def progress(self) -> float:
        """The share of training done, 0 to 1, by the clock."""
        return min(1.0, self.seconds / (60 * self.recipe.minutes))

    def step(self) -> None:
        """One step of every drafter. `losses` and `chances` stay on the device."""
        if self._since is None:
            self._since = time.perf_counter()
        self._draw()
        self._forward_backward()
        set_lr(self.optimizers, self.recipe.lr_at(self.progress))
        for drafter in self.drafters.values():
            nn.utils.clip_grad_norm_(drafter.parameters(), self.recipe.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        self.done += 1
        if self.done % SETTLE_EVERY == 0 or self.device.type == "cpu":
            self.settle()

    def settle(self) -> None:
        """Wait for the device and count the time since the last look at the clock."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        if self._since is not None:
            self.seconds += time.perf_counter() - self._since
        self._since = None

    def _draw(self) -> None:
        """The step's rows and anchors, into the tensors that the graph reads."""
        self.ids.copy_(self.batches.draw(self.done))
        self.anchors.random_(1, self.ids.shape[1] - self.length, generator=self.random)

    def _work(self) -> None:
        """Gradients of every drafter. On a replay they land where the recorded step put them."""
        with torch.no_grad():
            blocks = Blocks(self.model, self.taps, self.ids, self.anchors, self.length)
        for index, drafter in enumerate(self.drafters.values()):
            drafter.zero_grad(set_to_none=True)
            with self._autocast():
                loss, chance = run_drafter(drafter, self.model, blocks, self.weights)
            loss.backward()
            self.losses[index] = loss.detach()
            self.chances[index] = chance

    def _autocast(self):
        if self.device.type != "cuda":
            return nullcontext()
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)  # a graph keeps no cache


def drafter_optimizers(dspark: DSpark, recipe: DrafterRecipe) -> list[torch.optim.Optimizer]:
    """Muon for the matrices; AdamW for the Markov tables, the confidence and the vectors."""
    tables = ("markov", "confident")
    matrices, rest, vectors = [], [], []
    for name, parameter in dspark.named_parameters():
        if parameter.ndim < 2:
            vectors.append(parameter)
        else:
            (rest if name.startswith(tables) else matrices).append(parameter)
    groups = [
        {"params": rest, "weight_decay": recipe.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, 0.95), fused=True)
    return [Muon(matrices, lr=recipe.lr, weight_decay=recipe.weight_decay), adamw]
