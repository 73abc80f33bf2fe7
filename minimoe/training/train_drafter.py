"""Train a DSpark drafter for a target, and ablations beside it: text, training, measurement."""

import platform
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from minimoe.model.serving import ServingModel
from minimoe.model.transformer import Transformer
from minimoe.speculative.dspark import DSpark
from minimoe.speculative.dspark_checkpoint import load_dspark, save_dspark
from minimoe.speculative.dspark_config import DSparkConfig
from minimoe.speculative.serving_dspark import ServingDSpark
from minimoe.training.batches import DomainStream
from minimoe.training.drafter_evaluate import (
    ExpectedLength,
    held_out_prompts,
    measure_loop,
    summarise,
    validation_arrays,
)
from minimoe.training.drafter_recipe import DrafterRecipe
from minimoe.training.drafter_text import DrafterBatches, prompt_rows, target_text
from minimoe.training.drafter_trainer import DrafterTrainer
from minimoe.training.history import worker, write_record

POINTS = 12  # on the curve
WRITING_ROWS = {"cuda": 2048, "cpu": 32}  # sequences that the target writes at once
HELD_OUT = {"cuda": {"count": 128, "new_tokens": 128}, "cpu": {"count": 4, "new_tokens": 32}}
PROMPT = 96  # tokens of a held-out prompt
WATCHED = 16  # held-out prompts a domain for the curve
MAIN = "main"


def ablations(main: DSparkConfig) -> dict[str, DSparkConfig]:
    """The drafter itself, and variants trained on the same batches: without the Markov head, and
    with every smaller number of layers."""
    made = {MAIN: main, "no_markov": _change(main, markov_rank=0)}
    depths = range(main.layers - 1, 0, -1)
    return made | {f"layers_{n}": _change(main, layers=n) for n in depths}


def _change(config: DSparkConfig, **changes) -> DSparkConfig:
    return DSparkConfig(**{**asdict(config), **changes})


class DrafterRun:
    """One run. `train()` leaves `config.json`, `model.safetensors` and `training.json` in `out`,
    and each ablation in a folder below `out/ablations`.

    Args:
        model: the target in evaluation mode; bfloat16 on CUDA.
        configs: drafters by name; "main" is the one that `out` itself holds.
        corpus: token streams, as load_corpus gives them.
        report: called after each step with the run.
    """

    def __init__(self, model: Transformer, configs: dict[str, DSparkConfig], corpus: dict,
                 recipe: DrafterRecipe, out: Path, report=None):  # fmt: skip
        self.model, self.configs, self.corpus, self.recipe = model, configs, corpus, recipe
        self.out, self.report = out, report
        self.device = model.embed.weight.device
        self.serving = ServingModel(model)
        self.times: dict[str, float] = {}
        self.curve: list[dict] = []

    def train(self) -> dict:
        """Write text, train, measure. Returns what `training.json` holds."""
        begun = self._begin("prompts")
        plan = HELD_OUT[self.device.type]
        self.prompts = held_out_prompts(self.corpus, plan["count"], PROMPT)
        watched = {
            name: rows[:: max(1, len(rows) // WATCHED)] for name, rows in self.prompts.items()
        }
        self.expected = ExpectedLength(self.model, self.serving, watched, plan["new_tokens"])
        begun = self._begin("writing", begun)
        batches = self._batches()
        begun = self._begin("capture", begun)
        self.trainer = DrafterTrainer(self.model, self.configs, batches, self.recipe)
        begun = self._begin("training", begun)
        self._descend()
        self._save()
        begun = self._begin("measuring", begun)
        results = {name: self._measure(name, plan["new_tokens"]) for name in self.configs}
        self._begin("end", begun)
        return self._record(results)

    def _begin(self, phase: str, since: tuple | None = None) -> tuple[str, float]:
        """Start the clock of a phase and stop that of the one before."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        if since:
            self.times[since[0]] = round(now - since[1], 1)
        return phase, now

    def _batches(self) -> DrafterBatches:
        recipe, counts = self.recipe, self.recipe.text_counts()
        streams = {
            name: DomainStream(name, self.corpus[f"{name}_train"], recipe.length,
                               self.model.config.bos_token_id, recipe.seed)
            for name in counts
        }  # fmt: skip
        corpus = prompt_rows(streams, counts)
        written = target_text(self.serving, corpus, WRITING_ROWS[self.device.type], recipe.seed)
        return DrafterBatches(corpus, written, recipe.row_counts(), recipe.seed, self.device)

    def _descend(self) -> None:
        trainer = self.trainer
        while trainer.progress < 1:
            trainer.step()
            if trainer.progress >= len(self.curve) / POINTS:
                trainer.settle()
                self._point()
            if self.report:
                self.report(self)

    def _point(self) -> None:
        """Add a point to the curve, and keep the weights so far."""
        trainer = self.trainer
        point = {"step": trainer.done, "seconds": round(trainer.seconds, 1),
                 "lr": round(self.recipe.lr_at(trainer.progress), 6), "drafters": {}}  # fmt: skip
        for index, (name, drafter) in enumerate(trainer.drafters.items()):
            point["drafters"][name] = {
                "loss": round(float(trainer.losses[index]), 4),
                "acceptance": [round(x, 4) for x in trainer.chances[index].tolist()],
                "expected_length": self.expected.measure(drafter),
            }
        self.curve.append(point)
        self._save()

    def _save(self) -> None:
        for name, drafter in self.trainer.drafters.items():
            save_dspark(drafter, self.folder(name))

    def folder(self, name: str) -> Path:
        """Where a drafter of this run is kept."""
        return self.out if name == MAIN else self.out / "ablations" / name

    def _measure(self, name: str, new_tokens: int) -> dict:
        """The kept weights in a real loop at temperature 0 and 1."""
        drafter = ServingDSpark(load_dspark(self.folder(name), self.model), self.serving)
        passes = {
            temperature: measure_loop(self.serving, drafter, self.prompts, new_tokens, temperature)
            for temperature in (0, 1)
        }
        if name == MAIN:
            arrays = validation_arrays(passes, self.prompts)
            np.savez_compressed(self.out / "validation.npz", **arrays)
        eos = self.model.config.eos_token_id
        return {f"T={t}": summarise(one, self.prompts, eos) for t, one in passes.items()}

    def _record(self, results: dict) -> dict:
        trainer = self.trainer
        record = {
            "recipe": asdict(self.recipe),
            "drafters": {
                name: {"parameters": count_parameters(drafter), **asdict(self.configs[name])}
                for name, drafter in trainer.drafters.items()
            },
            "steps": trainer.done,
            "blocks": trainer.done * self.recipe.rows * self.recipe.anchors,
            "seconds": self.times,
            "device": worker(self.device.type),
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "date": time.strftime("%Y-%m-%d"),
            "held_out": {"prompt_tokens": PROMPT, **HELD_OUT[self.device.type]},
            "curve": self.curve,
            "results": results,
        }
        write_record(record, self.out)
        return record


def count_parameters(dspark: DSpark) -> int:
    """Of the drafter alone, without the target's embedding and head."""
    return sum(parameter.numel() for parameter in dspark.parameters())
