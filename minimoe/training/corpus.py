"""Build the training corpus: python -m minimoe.training.corpus --out FOLDER --size small|full

Four domains as streams of token ids, for training and held out. A document is `<|begin|>` text
`<|end|>`; a chat ends each answer with `<|end|>`. The same seed and Python give the same file.

`corpus.npz` holds `<domain>_train` and `<domain>_heldout` (uint16) and `meta` (JSON as uint8).
"""

import argparse
import json
import platform
import random
import time
import zipfile
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np

from minimoe.errors import MinimoeError
from minimoe.tokenizer import Tokenizer
from minimoe.training import chat, code, records, story

DOMAINS = ("code", "story", "chat", "json")
GENERATORS = {"story": story, "chat": chat, "json": records}
# Copies of each file besides the original (None: do not read them); tokens of the other domains.
SIZES = {
    "full": {"copies": 4, "test_copies": 1, "story": 6_000_000, "chat": 10_000_000,
             "json": 6_000_000, "heldout": 200_000},
    "small": {"copies": 0, "test_copies": None, "story": 150_000, "chat": 150_000,
              "json": 150_000, "heldout": 20_000},
}  # fmt: skip
SMALL_CODE_FILES = 60
DEFAULT_TOKENIZER = Path(__file__).parents[2] / "data" / "tiny-moe"
BATCH = 256  # documents encoded at once


def build_corpus(
    tokenizer: Tokenizer, size: str = "full", seed: int = 0, tests: bool = True
) -> dict:
    """{"code_train": uint16 [tokens], ..., "meta": dict}. MinimoeError for an unknown size.

    Args:
        tests: the full size reads the library's test files too, about twice the library itself;
            False leaves them, for a Python that is installed without them.
    """
    if size not in SIZES:
        raise MinimoeError(f"size {size!r} is not known; use one of {', '.join(SIZES)}")
    plan, corpus = SIZES[size], {}
    test_copies = plan["test_copies"] if tests else None
    train, held_out = _code_files(size)
    documents = code.renamed_copies(train, plan["copies"], random.Random(f"code {seed}"))
    if test_copies is not None:
        documents = chain(documents, _test_documents(test_copies, seed))
    corpus["code_train"] = _encode(tokenizer, documents)
    corpus["code_heldout"] = _encode(tokenizer, (held_out[p] for p in sorted(held_out)))
    for name, module in GENERATORS.items():
        for part, limit in (("train", plan[name]), ("heldout", plan["heldout"])):
            documents = module.documents(random.Random(f"{name} {part} {seed}"))
            corpus[f"{name}_{part}"] = _encode(tokenizer, documents, limit)
    sizes = {key: len(ids) for key, ids in corpus.items()}
    corpus["meta"] = {
        "size": size,
        "seed": seed,
        "copies": plan["copies"],
        "test_copies": test_copies,
        "python": platform.python_version(),
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": tokenizer.fingerprint,
        "tokens": sizes,
        "code_files": {"train": len(train), "heldout": sorted(held_out)},
    }
    return corpus


def _code_files(size: str) -> tuple[dict[str, str], dict[str, str]]:
    train, held_out = code.split(code.read_files())
    if size == "small":
        train = {p: train[p] for p in sorted(train, key=lambda p: (len(train[p]), p))}
        train = dict(islice(train.items(), len(train) // 4, len(train) // 4 + SMALL_CODE_FILES))
        held_out = dict(sorted(held_out.items(), key=lambda item: len(item[1]))[:4])
    return train, held_out


def _test_documents(copies: int, seed: int) -> Iterator[str]:
    files = code.read_files(tests=True)
    return code.renamed_copies(files, copies, random.Random(f"tests {seed}"))


def _encode(tokenizer: Tokenizer, documents: Iterable[str], limit: int | None = None) -> np.ndarray:
    """The documents as one stream of ids, at most `limit` long."""
    pieces, total = [], 0
    for batch in _batches(iter(documents)):
        ids = list(chain.from_iterable(tokenizer.encode_documents(batch)))
        pieces.append(np.array(ids, dtype=np.uint16))
        total += len(ids)
        if limit is not None and total >= limit:
            break
    return np.concatenate(pieces)[:limit]


def _batches(documents: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(documents, BATCH)):
        yield batch


def save_corpus(corpus: dict, path: Path) -> None:
    """Write the corpus as one compressed .npz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = np.frombuffer(json.dumps(corpus["meta"]).encode(), dtype=np.uint8)
    partial = path.with_name(f"{path.name}.partial.npz")
    np.savez_compressed(partial, **{k: v for k, v in corpus.items() if k != "meta"}, meta=meta)
    partial.replace(path)  # a reader never sees half a file


def load_corpus(path: str | Path) -> dict:
    """{"code_train": uint16 [tokens], ..., "meta": dict}. MinimoeError when it is not a corpus."""
    path = Path(path)
    if not path.is_file():
        raise MinimoeError(
            f"{path} not found; make it with: python -m minimoe.training.corpus --out {path.parent}"
        )
    if not zipfile.is_zipfile(path):
        raise MinimoeError(f"{path} is not a corpus: it is no .npz archive")
    with np.load(path, allow_pickle=False) as stored:
        wanted = [*(f"{d}_{part}" for d in DOMAINS for part in ("train", "heldout")), "meta"]
        missing = [key for key in wanted if key not in stored]
        if missing:
            raise MinimoeError(f"{path} is not a corpus: it has no {', '.join(missing)}")
        corpus = {key: stored[key] for key in wanted}
        return corpus | {"meta": json.loads(stored["meta"].tobytes())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for corpus.npz")
    parser.add_argument("--tokenizer", type=Path, default=DEFAULT_TOKENIZER)
    parser.add_argument("--size", choices=sorted(SIZES), default="full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--without-tests", action="store_true", help="do not read the library's test files"
    )
    args = parser.parse_args()
    start = time.perf_counter()
    tokenizer = Tokenizer(args.tokenizer)
    corpus = build_corpus(tokenizer, args.size, args.seed, tests=not args.without_tests)
    save_corpus(corpus, args.out / "corpus.npz")
    for key, count in corpus["meta"]["tokens"].items():
        print(f"{key:15} {count:>12,} tokens")
    size = (args.out / "corpus.npz").stat().st_size
    print(
        f"{args.out / 'corpus.npz'}: {size / 2**20:.1f} MiB in {time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
