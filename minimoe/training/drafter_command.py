"""`python -m minimoe train-drafter`. What is slow to import is imported when the verb runs."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from minimoe.errors import MinimoeError
from minimoe.training.drafter_recipe import DrafterRecipe

LAPTOP = {"rows": 4, "length": 256, "anchors": 24, "written": 32}


def add_arguments(parser) -> None:
    parser.add_argument("--out", required=True, help="folder for the drafter and training.json")
    parser.add_argument("--minutes", type=float, help="of training alone (default 2)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument("--model", default="tiny-moe", help="the target")
    parser.add_argument("--corpus", help="corpus.npz (default: build a small one now)")
    parser.add_argument("--layers", type=int, default=3, help="draft layers (default 3)")
    parser.add_argument("--markov-rank", type=int, default=64, help="0: no Markov head")
    parser.add_argument(
        "--ablations",
        action="store_true",
        help="train variants on the same batches: fewer layers, no Markov head",
    )
    parser.add_argument("--rows", type=int, help="sequences in a batch")
    parser.add_argument("--length", type=int, help="tokens in a sequence")
    parser.add_argument("--anchors", type=int, help="blocks in a sequence")
    parser.add_argument("--written", type=int, help="sequences that the target writes first")
    parser.add_argument("--lr", type=float, help="peak learning rate")
    parser.add_argument("--seed", type=int, help="of weights, text and batches (default 0)")


def main(args) -> dict:
    import torch

    from minimoe.checkpoint import load_checkpoint
    from minimoe.speculative.dspark_config import DSparkConfig
    from minimoe.training.command import ProgressBar, pick_device
    from minimoe.training.history import write_record
    from minimoe.training.train_drafter import MAIN, DrafterRun, ablations

    device = pick_device(args.device)
    recipe, out = _recipe(args, device), Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = load_checkpoint(args.model, dtype, device)
    own = DSparkConfig.of(model, target=Path(args.model).name, layers=args.layers,
                          markov_rank=args.markov_rank)  # fmt: skip
    configs = ablations(own) if args.ablations else {MAIN: own}
    corpus = _corpus(args)
    if recipe.length > model.config.max_position_embeddings:
        raise MinimoeError(
            f"--length {recipe.length} exceeds the model's {model.config.max_position_embeddings} "
            "positions: lower it"
        )
    with ProgressBar(round(60 * recipe.minutes), "s") as bar:
        record = DrafterRun(model, configs, corpus, recipe, out, partial(_report, bar)).train()
    record = {"command": _command(args), **record}
    write_record(record, out)
    return {"out": str(out), **record}


def render(result: dict) -> str:
    """Accepted length by domain of each drafter."""
    first = next(iter(result["results"].values()))["T=0"]
    domains = [name for name in first if name != "mean"]
    lines = [f"{'accepted length, bonus included':34}" + "".join(f"{d:>8}" for d in domains)
             + f"{'mean':>8}"]  # fmt: skip
    for name, by_temperature in result["results"].items():
        for label, row in by_temperature.items():
            values = [row[key]["accepted_length"] for key in (*domains, "mean")]
            lines.append(f"{name + ', ' + label:34}" + "".join(f"{v:8.2f}" for v in values))
    lines.append(
        f"{result['steps']} steps in {result['seconds']['training']} s, in {result['out']}"
    )
    return "\n".join(lines)


def _report(bar, run) -> None:
    """After each step: the expected lengths of the main drafter."""
    lengths = run.curve and next(iter(run.curve[-1]["drafters"].values()))["expected_length"]
    bar.show(run.trainer.progress, lengths or {})


def _recipe(args, device: str) -> DrafterRecipe:
    names = ("minutes", "rows", "length", "anchors", "written", "lr", "seed")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    base = DrafterRecipe(**({} if device == "cuda" else LAPTOP))
    return replace(base, **given)


def _corpus(args) -> dict:
    from minimoe.training.corpus import build_corpus, load_corpus

    if args.corpus:
        return load_corpus(args.corpus)
    from minimoe.checkpoint import checkpoint_folder
    from minimoe.tokenizer import Tokenizer

    return build_corpus(Tokenizer(checkpoint_folder(args.model)), "small")


def _command(args) -> str:
    """The command that makes this again, without folders of this machine."""
    words = ["python -m minimoe train-drafter"]
    for name in ("device", "minutes", "rows", "length", "anchors", "written", "lr", "seed"):
        if getattr(args, name) is not None:
            words.append(f"--{name} {getattr(args, name)}")
    words += [f"--layers {args.layers}", f"--markov-rank {args.markov_rank}"]
    words += ["--ablations"] if args.ablations else []
    words += ["--corpus .corpus/corpus.npz"] if args.corpus else []
    return " ".join(words + ["--out data/tiny-moe-dspark"])
