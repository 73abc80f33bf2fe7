"""Train the model and keep the best weights seen on held-out text."""

from pathlib import Path

from minimoe.config import ModelConfig
from minimoe.training.batches import Batches
from minimoe.training.history import History
from minimoe.training.recipe import Recipe
from minimoe.training.trainer import Trainer


def train(config: ModelConfig, corpus: dict, recipe: Recipe, out: str | Path, device: str = "cpu",
          compile: bool = False, state: str | Path | None = None, report=None) -> dict:  # fmt: skip
    """Train a model and write its checkpoint and `training.json` to the folder `out`.

    The checkpoint is written again whenever the held-out loss, weighted by the mix, is the lowest
    so far, so an interrupted run leaves its best weights.

    Args:
        corpus: token streams `<domain>_train` and `<domain>_heldout`, as load_corpus gives them.
        compile: run the forward and backward pass through torch.compile.
        state: a file for resuming. It is read first if it exists, and written at each measurement.
        report: called after each step with (trainer, history).

    Returns what `training.json` holds: recipe, curve, results, device, versions.
    """
    streams = {name: corpus[f"{name}_train"] for name in recipe.mix}
    batches = Batches(streams, recipe.row_counts(), recipe.length, config.bos_token_id,
                      recipe.seed, device)  # fmt: skip
    trainer = Trainer(config, batches, recipe, device, compile)
    history = History(trainer, corpus, Path(out), state)
    history.resume()
    while trainer.progress < 1:
        history.add(trainer.step())
        if history.due():
            history.measure()
        if report:
            report(trainer, history)
    return history.finish()
