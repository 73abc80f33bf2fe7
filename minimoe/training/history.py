"""The curve of a training run, its best checkpoint, and the record it leaves."""

import json
import platform
import time
from dataclasses import asdict
from pathlib import Path

import torch

from minimoe.checkpoint import load_checkpoint, save_checkpoint
from minimoe.perf.hardware import device_name
from minimoe.training.balance import load_spread
from minimoe.training.batches import held_out_rows
from minimoe.training.evaluate import balance_report, expert_usage, held_out_loss
from minimoe.training.trainer import Trainer

HELD_OUT_TOKENS = {"cuda": 65_536, "cpu": 2_048}  # measured per domain, each time
POINTS = 12  # on the curve of a run by the clock; a run by steps has one every `eval_every`


class History:
    """The curve of a run. It owns the best checkpoint and the file to resume from."""

    def __init__(self, trainer: Trainer, corpus: dict, out: Path, state: str | Path | None):
        self.trainer, self.out = trainer, out
        self.state = Path(state) if state else None
        self.started = time.time()
        length = trainer.recipe.length
        limit = max(2, HELD_OUT_TOKENS[trainer.device.type] // length)
        mix = trainer.recipe.mix
        self.rows = {n: held_out_rows(corpus[f"{n}_heldout"], length, limit) for n in mix}
        self.sizes = {name: len(corpus[f"{name}_train"]) for name in mix}
        self.curve: list[dict] = []
        self.best: dict | None = None
        self._clear()

    def _clear(self) -> None:
        self.losses, self.load, self.steps = 0.0, 0, 0

    def add(self, step: dict) -> None:
        """Count one step in; stays on the device."""
        self.losses = self.losses + step["rows"]
        self.load = self.load + step["load"]
        self.steps += 1

    def due(self) -> bool:
        """Whether it is time to measure: first step, last step, and evenly in between."""
        trainer, recipe = self.trainer, self.trainer.recipe
        if trainer.done == 1 or trainer.progress >= 1:
            return True
        if recipe.minutes is None:
            return trainer.done % recipe.eval_every == 0
        return trainer.progress >= len(self.curve) / POINTS

    def measure(self) -> dict:
        """Add a point to the curve; keep the weights if they are the best so far."""
        trainer = self.trainer
        trainer.settle()
        mix = trainer.recipe.mix
        by_domain = trainer.batches.by_domain(self.losses / self.steps)
        held_out = {name: held_out_loss(trainer.model, rows) for name, rows in self.rows.items()}
        point = {
            "step": trainer.done,
            "tokens": trainer.done * trainer.recipe.rows * trainer.recipe.length,
            "seconds": round(trainer.seconds, 2),
            "lr": trainer.recipe.lr_at(trainer.progress),
            "train": {name: round(float(rows.mean()), 4) for name, rows in by_domain.items()},
            "held_out": {name: round(loss, 4) for name, loss in held_out.items()},
            "held_out_mean": round(sum(mix[n] * held_out[n] for n in mix) / sum(mix.values()), 4),
            "load": [load_spread(layer) for layer in self.load],
        }
        self.curve.append(point)
        self._clear()
        if self.best is None or point["held_out_mean"] < self.best["held_out_mean"]:
            self.best = point
            save_checkpoint(trainer.model, self.out)
        self._save_state()
        return point

    def _save_state(self) -> None:
        if self.state:
            saved = {"trainer": self.trainer.state_dict(), "curve": self.curve, "best": self.best}
            torch.save(saved, self.state)

    def resume(self) -> None:
        """Continue from the state file, if there is one."""
        if self.state and self.state.is_file():
            saved = torch.load(self.state, weights_only=True)
            self.trainer.load_state_dict(saved["trainer"])
            self.curve, self.best = saved["curve"], saved["best"]

    def finish(self) -> dict:
        """Measure the kept checkpoint, write `training.json`, and return what it holds."""
        model = load_checkpoint(self.out, torch.float32, str(self.trainer.device))
        usage = {name: expert_usage(model, rows) for name, rows in self.rows.items()}
        record = {
            "recipe": asdict(self.trainer.recipe),
            "parameters": sum(p.numel() for p in model.parameters()),
            **self._size(),
            "device": worker(self.trainer.device.type),
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "date": time.strftime("%Y-%m-%d", time.gmtime(self.started)),
            "curve": self.curve,
            "best": self.best,
            "results": {
                "held_out": {n: round(held_out_loss(model, r), 4) for n, r in self.rows.items()},
                "experts": balance_report(usage, self.trainer.recipe.mix),
            },
        }
        write_record(record, self.out)
        return record

    def _size(self) -> dict:
        recipe, trainer = self.trainer.recipe, self.trainer
        drawn = {n: trainer.done * c * recipe.length for n, c in trainer.batches.counts.items()}
        rate = (trainer.done - 1) * recipe.rows * recipe.length / max(trainer.seconds, 1e-9)
        return {
            "steps": trainer.done,
            "tokens": drawn,
            "epochs": {name: round(drawn[name] / self.sizes[name], 2) for name in drawn},
            "seconds": round(trainer.seconds, 1),
            "wall_seconds": round(time.time() - self.started, 1),
            "tokens_per_second": round(rate),
        }


def worker(kind: str) -> str:
    """What did the work, for the record."""
    threads = "" if kind == "cuda" else f", {torch.get_num_threads()} threads"
    return device_name(kind) + threads


def write_record(record: dict, out: Path) -> None:
    """Write `training.json` into the folder `out`."""
    text = json.dumps(record, indent=1) + "\n"
    (out / "training.json").write_text(text, encoding="utf-8")
