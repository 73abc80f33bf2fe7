"""Measure a trained drafter again, and keep every pass: what a calibration is fitted to.

    python -m minimoe.training.drafter_validation data/tiny-moe-dspark --corpus .corpus/corpus.npz

writes `validation.npz` into the drafter's folder: real draft-and-verify passes on held-out prompts,
at temperatures 0 and 1.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from minimoe.checkpoint import load_checkpoint
from minimoe.model.serving import ServingModel
from minimoe.speculative.dspark_checkpoint import load_dspark
from minimoe.speculative.serving_dspark import ServingDSpark
from minimoe.training.command import pick_device
from minimoe.training.corpus import load_corpus
from minimoe.training.drafter_evaluate import held_out_prompts, measure_loop, validation_arrays


def validate(folder: Path, corpus: dict, device: str, count: int, new_tokens: int, prompt: int):
    """The arrays of `validation.npz` for the drafter in `folder`."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = load_checkpoint("tiny-moe", dtype, device)
    serving = ServingModel(model)
    served = ServingDSpark(load_dspark(folder, model), serving)
    prompts = held_out_prompts(corpus, count, prompt)
    passes = {t: measure_loop(serving, served, prompts, new_tokens, float(t)) for t in (0, 1)}
    return validation_arrays(passes, prompts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m minimoe.training.drafter_validation")
    parser.add_argument("drafter", type=Path, help="the drafter's folder")
    parser.add_argument("--corpus", required=True, help="corpus.npz with held-out text")
    parser.add_argument("--out", type=Path, help="default: validation.npz in the folder")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument("--count", type=int, default=128, help="prompts a domain")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--prompt-tokens", type=int, default=96)
    args = parser.parse_args()
    arrays = validate(
        args.drafter, load_corpus(args.corpus), pick_device(args.device), args.count,
        args.new_tokens, args.prompt_tokens,
    )  # fmt: skip
    out = args.out or args.drafter / "validation.npz"
    np.savez_compressed(out, **arrays)
    for temperature in (0, 1):
        kept = arrays["temperature"] == temperature
        print(f"T={temperature}: {kept.sum()} passes, {arrays['accepted'][kept].mean() + 1:.3f}")


if __name__ == "__main__":
    main()
