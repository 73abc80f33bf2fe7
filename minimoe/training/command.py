"""`python -m minimoe train`. What is slow to import is imported when the verb runs."""

import shutil
from functools import partial
from pathlib import Path

from minimoe.config import SHIPPED, ModelConfig
from minimoe.errors import MinimoeError
from minimoe.training.recipe import Recipe

TOKENIZER = SHIPPED / "tiny-moe"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
LAPTOP = {"rows": 8, "length": 256, "eval_every": 10}  # a step of about a second on two cores


def add_arguments(parser) -> None:
    parser.add_argument("--out", required=True, help="folder for the checkpoint and training.json")
    parser.add_argument("--minutes", type=float, help="how long to train (default 2)")
    parser.add_argument("--steps", type=int, help="how long to train, as a number of steps")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument("--corpus", help="corpus.npz (default: build a small one now)")
    parser.add_argument("--tokenizer", default=TOKENIZER, help="folder of tokenizer.json")
    parser.add_argument("--rows", type=int, help="sequences in a batch")
    parser.add_argument("--length", type=int, help="tokens in a sequence")
    parser.add_argument("--lr", type=float, help="peak learning rate of both optimizers")
    parser.add_argument("--dropout", type=float, help="share of values dropped")
    parser.add_argument(
        "--eval-every", type=int, help="with --steps: steps between held-out measurements"
    )
    parser.add_argument("--seed", type=int, help="of weights, rows and dropout (default 0)")
    parser.add_argument("--no-compile", action="store_true", help="do without torch.compile")
    parser.add_argument("--state", help="file to resume from, written as training goes on")


def main(args) -> dict:
    """Run the verb. Returns the record of training.json, with the command and the folder."""
    from minimoe.tokenizer import Tokenizer
    from minimoe.training.corpus import build_corpus, load_corpus
    from minimoe.training.history import write_record
    from minimoe.training.train import train

    device = pick_device(args.device)
    recipe = _recipe(args, device)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(args.tokenizer)
    corpus = load_corpus(args.corpus) if args.corpus else build_corpus(tokenizer, "small")
    _copy_tokenizer(Path(args.tokenizer), out)
    config = ModelConfig.tiny(vocab_size=tokenizer.vocab_size)
    total = recipe.steps or round(60 * recipe.minutes)
    with ProgressBar(total, "step" if recipe.steps else "s") as bar:
        record = train(config, corpus, recipe, out, device,
                       compile=device == "cuda" and not args.no_compile,
                       state=args.state, report=partial(_report, bar))  # fmt: skip
    record = {"command": _command(args), "corpus": _corpus_summary(corpus), **record}
    write_record(record, out)
    return {"out": str(out), **record}


def render(result: dict) -> str:
    """The result as a table: loss by domain at the first measurement, and of the kept weights."""
    first, best = result["curve"][0], result["results"]["held_out"]
    lines = [f"{'held-out loss, nats/token':26}{'first':>8}{'kept':>8}"]
    lines += [f"{n:26}{first['held_out'][n]:8.3f}{best[n]:8.3f}" for n in best]
    load = result["results"]["experts"]["training_mix"]
    lines.append(f"busiest expert {max(x['max'] for x in load):.2f}x the mean, "
                 f"idlest {min(x['min'] for x in load):.2f}x")  # fmt: skip
    lines.append(f"{result['steps']} steps, {result['tokens_per_second']:,} tokens/s, "
                 f"checkpoint in {result['out']}")  # fmt: skip
    return "\n".join(lines)


class ProgressBar:
    """A tqdm bar on stderr over the share of training done, with numbers by domain beside it."""

    def __init__(self, total: int, unit: str):
        from tqdm import tqdm

        self.bar = tqdm(total=total, unit=unit, desc="training")

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_) -> None:
        self.bar.close()

    def show(self, progress: float, numbers: dict[str, float]) -> None:
        """The share of training done, 0 to 1, and the latest measurement of each domain."""
        self.bar.n = round(progress * self.bar.total)
        self.bar.set_postfix({n: f"{x:.2f}" for n, x in numbers.items()}, refresh=False)
        self.bar.update(0)


def _report(bar, trainer, history) -> None:
    """After each step: the latest held-out losses."""
    bar.show(trainer.progress, history.curve[-1]["held_out"] if history.curve else {})


def pick_device(device: str | None) -> str:
    """The device asked for, or CUDA if there is one, else the CPU."""
    import torch

    has_cuda = torch.cuda.is_available()
    if device == "cuda" and not has_cuda:
        raise MinimoeError("device 'cuda' is not here: this PyTorch sees no GPU, use --device cpu")
    return device or ("cuda" if has_cuda else "cpu")


def _recipe(args, device: str) -> Recipe:
    given = {
        name: getattr(args, name)
        for name in ("minutes", "steps", "rows", "length", "lr", "dropout", "eval_every", "seed")
        if getattr(args, name) is not None
    }
    if not given.keys() & {"minutes", "steps"}:
        given["minutes"] = 2.0
    return Recipe(**({} if device == "cuda" else LAPTOP) | given)


def _copy_tokenizer(source: Path, out: Path) -> None:
    for name in TOKENIZER_FILES:
        if (source / name).is_file() and not (out / name).exists():
            shutil.copyfile(source / name, out / name)


def _corpus_summary(corpus: dict) -> dict:
    """Where the tokens came from, without the list of files."""
    meta = corpus["meta"]
    return {name: value for name, value in meta.items() if name != "code_files"}


def _command(args) -> str:
    """The command that makes this again, without folders of this machine."""
    words = ["python -m minimoe train"]
    for name in ("device", "minutes", "steps", "rows", "length", "lr", "dropout", "eval_every",
                 "seed"):  # fmt: skip
        if getattr(args, name) is not None:
            words.append(f"--{name.replace('_', '-')} {getattr(args, name)}")
    words += ["--corpus .corpus/corpus.npz"] if args.corpus else []
    return " ".join(words + ["--out data/tiny-moe"])
