"""Train the byte-level BPE tokenizer: python -m minimoe.training.train_tokenizer --out FOLDER

2,048 tokens: 5 special ones, 256 bytes and 1,787 merges, learnt mostly from code. Digits stay
single, so that a sum is worked out digit by digit. A line break with the indentation after it is
one piece, so that deep Python code costs one token a line for its white space.
"""

import argparse
import json
import random
import re
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from minimoe.errors import MinimoeError
from minimoe.tokenizer import BEGIN, END, PAD, SPECIAL_TOKENS
from minimoe.training import chat, code, records, story

VOCAB_SIZE = 2048
# A word with at most one character before it, a digit, punctuation, or line breaks with the
# indentation after them. Punctuation and line break are never one token: a prompt that ends in
# `):` must be able to go on with the line break.
PIECES = r" ?\p{L}+|[^\r\n\p{L}\p{N} ]\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|[\r\n]+[ \t]*|[ \t]+"
SPECIAL = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))
BYTES_PER_DOMAIN = {"code": 20_000_000, "story": 600_000, "chat": 600_000, "json": 600_000}
CHAT_TEMPLATE = (
    "{{- bos_token -}}"
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'user' -%}{{- '<|user|>' + message['content'] -}}"
    "{%- elif message['role'] == 'assistant' -%}"
    "{{- '<|assistant|>' + message['content'] + eos_token -}}"
    "{%- else -%}{{- raise_exception('roles are user and assistant') -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def train_tokenizer(texts, vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """A byte-level BPE tokenizer of exactly `vocab_size` tokens, special tokens first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        raise MinimoeError(
            f"the text gave {tokenizer.get_vocab_size()} tokens, not {vocab_size}; use more text"
        )
    return tokenizer


def training_texts(seed: int = 0):
    """Documents of the four domains, weighted to code."""
    yield from _up_to(_code_documents(seed), BYTES_PER_DOMAIN["code"])
    for name, domain in (("story", story), ("chat", chat), ("json", records)):
        documents = domain.documents(random.Random(f"tokenizer {name} {seed}"))
        yield from _up_to(documents, BYTES_PER_DOMAIN[name])


def _code_documents(seed: int):
    """The library once as it is and once renamed, so that no odd name earns a token."""
    train, _ = code.split(code.read_files())
    return code.renamed_copies(train, 1, random.Random(seed))


def _up_to(documents, limit: int):
    size = 0
    for text in documents:
        if size >= limit:
            return
        size += len(text)
        yield SPECIAL.sub("\n", text)


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int = 2048) -> None:
    """Write tokenizer.json and tokenizer_config.json, as transformers reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for tokenizer.json")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    save_tokenizer(train_tokenizer(training_texts(args.seed)), args.out)
    print(f"wrote {args.out / 'tokenizer.json'}: {VOCAB_SIZE} tokens")


if __name__ == "__main__":
    main()
