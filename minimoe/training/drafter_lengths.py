"""Accepted length against the length of the text: a drafter, its ablation, and prompt look-up.

    python -m minimoe.training.drafter_lengths data/tiny-moe-dspark --corpus .corpus/corpus.npz

Greedy text of a small model soon repeats itself for ever, and a loop is easy for any drafter. So
the same texts are counted over their first 32, 48, 64, 96 and 128 new tokens, beside the share of
texts that loop by then: whose last eight tokens stood before among their new ones. The length to
report at is the longest at which fewer than half of the greedy code texts loop. The command writes
`lengths.json` into the drafter's folder.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from minimoe.checkpoint import load_checkpoint
from minimoe.model.serving import ServingModel
from minimoe.speculative.dspark_checkpoint import load_dspark
from minimoe.speculative.prompt_lookup import Matches
from minimoe.speculative.serving_dspark import ServingDSpark
from minimoe.training.command import pick_device
from minimoe.training.corpus import DOMAINS, load_corpus
from minimoe.training.drafter_evaluate import held_out_prompts
from minimoe.training.drafter_loop import DraftLoop, Passes

LENGTHS = (32, 48, 64, 96, 128)  # new tokens
GRAM = 8  # tokens that say "this stood here before"
NGRAMS = (1, 3)  # that prompt look-up looks for, as in the engine
DRAWS = 2000  # of the bootstrap over prompts


@dataclass
class Turns:
    """Passes of many texts, `[N]` each: which text, position of the anchor, drafts accepted."""

    sequence: np.ndarray
    start: np.ndarray
    accepted: np.ndarray

    @classmethod
    def of(cls, passes: Passes) -> "Turns":
        """From a draft-and-verify loop."""
        return cls(passes.sequence.numpy(), passes.start.numpy(), passes.accepted.numpy())

    def totals(self, texts: int, end: int) -> np.ndarray:
        """Tokens and passes of each text, `[texts, 2]`, of passes that start before `end`."""
        kept = self.start < end
        sequence, tokens = self.sequence[kept], self.accepted[kept] + 1
        return np.stack([np.bincount(sequence, tokens, texts), np.bincount(sequence, None, texts)],
                        axis=1)  # fmt: skip


def replay_lookup(ids: np.ndarray, first: int, length: int) -> Turns:
    """What prompt look-up would have guessed of the texts `ids [B, S]`, pass by pass, from the
    anchor at `first` on. Its guesses are not drawn, so a draft is accepted when it is what the
    text says next, at any temperature."""
    rows = []
    for number, text in enumerate(ids.tolist()):
        matches, at = Matches(*NGRAMS), first
        while at < len(text) - 1:
            guess, _ = matches.find(text[: at + 1], length)
            accepted = _agreeing(guess, text[at + 1 :])
            rows.append((number, at, accepted))
            at += accepted + 1
    return Turns(*np.array(rows).T)


def _agreeing(guess: list[int], text: list[int]) -> int:
    same = [a == b for a, b in zip(guess, text, strict=False)]
    return same.index(False) if False in same else len(same)


def repetition(new: np.ndarray) -> tuple[float, float]:
    """Of texts `[B, n]`, new tokens alone: the share of 8-grams that stood before in the text, and
    the share of texts that loop, whose last 8-gram did."""
    grams = np.lib.stride_tricks.sliding_window_view(new, GRAM, axis=1).tolist()
    before, loops = 0, 0
    for text in grams:
        seen: set[tuple] = set()
        for gram in map(tuple, text):
            again = gram in seen
            before += again
            seen.add(gram)
        loops += again
    return before / (len(grams) * len(grams[0])), loops / len(grams)


def ratio(totals: np.ndarray) -> float:
    """Tokens a pass from `totals [texts, 2]`."""
    tokens, passes = totals.sum(0)
    return float(tokens / passes)


def gap(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Difference of two accepted lengths on the same prompts, and its standard error by bootstrap
    over prompts."""
    picks = np.random.default_rng(0).integers(0, len(one), (DRAWS, len(one)))
    drawn = [totals[picks].sum(1) for totals in (one, other)]  # [draws, 2]
    differences = drawn[0][:, 0] / drawn[0][:, 1] - drawn[1][:, 0] / drawn[1][:, 1]
    return ratio(one) - ratio(other), float(differences.std())


def rows(main: Passes, ablated: Passes, first: int) -> list[dict]:
    """One row for each of `LENGTHS` that the texts reach, from both drafters' loops behind the same
    prompts, whose anchors stand at `first`. Look-up is replayed on the texts of `main`."""
    ids, G = main.ids.numpy(), main.confidence.shape[1]
    ways = {"dspark": Turns.of(main), "no_markov": Turns.of(ablated),
            "lookup": replay_lookup(ids, first, G)}  # fmt: skip
    out = []
    for tokens in (n for n in LENGTHS if first + n + G < ids.shape[1]):
        totals = {name: own.totals(len(ids), first + tokens) for name, own in ways.items()}
        difference, error = gap(totals["dspark"], totals["no_markov"])
        repeated, looping = repetition(ids[:, first + 1 : first + 1 + tokens])
        found = {name: ratio(own) for name, own in totals.items()}
        found |= {"over_no_markov": difference, "standard_error": error,
                  "times_lookup": found["dspark"] / found["lookup"],
                  "repeated": repeated, "looping": looping}  # fmt: skip
        out.append({"tokens": tokens} | {name: round(x, 4) for name, x in found.items()})
    return out


class Lengths:
    """The drafter in `folder` and its ablation, on the same prompts."""

    def __init__(self, folder: Path, corpus: dict, device: str, count: int, prompt: int):
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        model = load_checkpoint("tiny-moe", dtype, device)
        self.serving, self.prompt = ServingModel(model), prompt
        folders = (folder, folder / "ablations" / "no_markov")
        self.drafters = [ServingDSpark(load_dspark(f, model), self.serving) for f in folders]
        self.prompts = held_out_prompts(corpus, count, prompt)

    def measure(self, domain: str, temperature: float) -> list[dict]:
        """`rows` of one domain."""
        ids, new = self.prompts[domain], max(LENGTHS) + self.drafters[0].length  # whole last passes
        loops = [DraftLoop(self.serving, drafter, ids, new, temperature).run(seed)
                 for seed, drafter in enumerate(self.drafters)]  # fmt: skip
        about = {"domain": domain, "temperature": temperature}
        return [about | row for row in rows(*loops, self.prompt - 1)]


def render(found: list[dict]) -> str:
    """A table, one line a domain, temperature and length."""
    head = f"{'domain':8}{'T':>3}{'tokens':>8}{'dspark':>8}{'no markov':>11}{'gap':>8}{'+-':>6}"
    lines = [head + f"{'look-up':>9}{'times':>7}{'repeated':>10}{'looping':>9}"]
    for r in found:
        lines.append(
            f"{r['domain']:8}{r['temperature']:3g}{r['tokens']:8}{r['dspark']:8.2f}"
            f"{r['no_markov']:11.2f}{r['over_no_markov']:8.2f}{r['standard_error']:6.2f}"
            f"{r['lookup']:9.2f}{r['times_lookup']:7.2f}{r['repeated']:10.0%}{r['looping']:9.0%}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m minimoe.training.drafter_lengths")
    parser.add_argument("drafter", type=Path, help="the drafter's folder, with ablations/no_markov")
    parser.add_argument("--corpus", required=True, help="corpus.npz with held-out text")
    parser.add_argument("--out", type=Path, help="default: lengths.json in the folder")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument("--count", type=int, default=96, help="prompts a domain")
    parser.add_argument("--prompt-tokens", type=int, default=96)
    args = parser.parse_args()
    device = pick_device(args.device)
    corpus = load_corpus(args.corpus)
    lengths = Lengths(args.drafter, corpus, device, args.count, args.prompt_tokens)
    found = [row for t in (0, 1) for name in DOMAINS for row in lengths.measure(name, float(t))]
    where = "/".join(args.drafter.resolve().parts[-2:])  # no folder of this machine
    command = f"python -m minimoe.training.drafter_lengths {where} --corpus .corpus/corpus.npz"
    about = {
        "command": f"{command} --device {device}",
        "device": device,
        "prompts": args.count,
        "prompt_tokens": args.prompt_tokens,
    }
    out = args.out or args.drafter / "lengths.json"
    out.write_text(json.dumps({**about, "rows": found}, indent=1) + "\n", encoding="utf-8")
    print(render(found))


if __name__ == "__main__":
    main()
