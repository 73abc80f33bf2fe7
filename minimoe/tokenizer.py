"""Text to token ids and back: a byte-level BPE read from `tokenizer.json`.

The file is the one Hugging Face `transformers` reads, so both give the same ids.
"""

import codecs
import hashlib
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer as Backend

from minimoe.errors import MinimoeError

BEGIN, END, USER, ASSISTANT, PAD = SPECIAL_TOKENS = (
    "<|begin|>",
    "<|end|>",
    "<|user|>",
    "<|assistant|>",
    "<|pad|>",
)
ROLES = {"user": USER, "assistant": ASSISTANT}


class Tokenizer:
    """The tokenizer of a checkpoint folder.

    Args:
        folder: holds `tokenizer.json`. MinimoeError when it is missing, unreadable or lacks one of
            the special tokens `<|begin|> <|end|> <|user|> <|assistant|>`.
    """

    def __init__(self, folder: str | Path):
        self.path = Path(folder) / "tokenizer.json"
        self.backend = _read(self.path)
        self.backend.no_padding()
        self.backend.no_truncation()
        self.vocab_size = self.backend.get_vocab_size()
        self.special = {name: self._special_id(name) for name in SPECIAL_TOKENS[:4]}
        self.bos_id, self.eos_id = self.special[BEGIN], self.special[END]
        self.fingerprint = hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]
        self._bytes = _byte_table(self.backend)
        self._special_ids = frozenset(self.backend.get_added_tokens_decoder())

    def encode(self, text: str, bos: bool = False, parse_special: bool = True) -> list[int]:
        """Ids of `text`, with `<|begin|>` in front if `bos`.

        With parse_special=False a `<|end|>` in the text is seven plain characters, not the token.
        """
        if not isinstance(text, str):
            raise MinimoeError(f"the text to encode is a {type(text).__name__}; pass a str")
        if not text.isascii() and text.encode("utf-8", "ignore").decode() != text:
            raise MinimoeError("the text has a lone surrogate, which is no character; remove it")
        self.backend.encode_special_tokens = not parse_special
        ids = self.backend.encode(text, add_special_tokens=False).ids
        return [self.bos_id, *ids] if bos else ids

    def encode_documents(self, texts: list[str]) -> list[list[int]]:
        """Training documents, each as `<|begin|>` text `<|end|>`; a text may end with `<|end|>`."""
        self.backend.encode_special_tokens = False
        encoded = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [self._closed([self.bos_id, *e.ids]) for e in encoded]

    def _closed(self, ids: list[int]) -> list[int]:
        return ids if ids[-1] == self.eos_id else [*ids, self.eos_id]

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Text of `ids`; bytes that are no UTF-8 become U+FFFD. MinimoeError for an unknown id."""
        return self.bytes_of(ids, skip_special).decode("utf-8", "replace")

    def bytes_of(self, ids: Iterable[int], skip_special: bool = True) -> bytes:
        """The exact bytes behind `ids`."""
        return b"".join(self._bytes_of_one(int(i), skip_special) for i in ids)

    def chat_ids(self, messages: list[dict], add_generation_prompt: bool = True) -> list[int]:
        """Ids of a conversation: `<|begin|>` then `<|user|>`text`<|assistant|>`text`<|end|>` ...

        Args:
            messages: [{"role": "user" | "assistant", "content": str}], starting with the user and
                taking turns; MinimoeError otherwise.
            add_generation_prompt: end with `<|assistant|>`, for the model to go on.
        """
        return self.encode(self.chat_text(messages, add_generation_prompt))

    def chat_text(self, messages: list[dict], add_generation_prompt: bool = True) -> str:
        """The conversation as one string, special tokens spelled out."""
        _check_turns(messages)
        parts = [BEGIN]
        for message in messages:
            parts += ROLES[message["role"]], message["content"]
            parts += [END] if message["role"] == "assistant" else []
        return "".join(parts) + (ASSISTANT if add_generation_prompt else "")

    def stream(self, skip_special: bool = True) -> "TextStream":
        """A decoder for ids that arrive bit by bit."""
        return TextStream(self, skip_special)

    def _bytes_of_one(self, token: int, skip_special: bool) -> bytes:
        if not 0 <= token < self.vocab_size:
            raise MinimoeError(
                f"token id {token} is outside 0..{self.vocab_size - 1}; "
                "were the ids made by another tokenizer?"
            )
        return b"" if skip_special and token in self._special_ids else self._bytes[token]

    def _special_id(self, name: str) -> int:
        token = self.backend.token_to_id(name)
        if token is None:
            raise MinimoeError(f"{self.path} has no token {name}; use a tokenizer made for minimoe")
        return token


class TextStream:
    """Turns ids into text as they come, holding back the bytes of an unfinished character."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True):
        self.tokenizer = tokenizer
        self.skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """The text that is complete now and was not before."""
        return self._decoder.decode(self.tokenizer.bytes_of(ids, self.skip_special))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character cut short. The stream can be reused."""
        return self._decoder.decode(b"", final=True)


def _read(path: Path) -> Backend:
    if not path.is_file():
        raise MinimoeError(f"{path} not found; give a folder that holds tokenizer.json")
    try:
        return Backend.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises bare Exception for any fault in the file
        raise MinimoeError(f"{path} is not a tokenizer file: {error}") from None


def _check_turns(messages: list[dict]) -> None:
    if not messages:
        raise MinimoeError('no messages; pass [{"role": "user", "content": "..."}]')
    for i, message in enumerate(messages):
        expected = ("user", "assistant")[i % 2]
        if message.get("role") != expected:
            raise MinimoeError(
                f"message {i} has role {message.get('role')!r}; turns alternate, so it must be "
                f"{expected!r} (this model knows no system role)"
            )
        if not isinstance(message.get("content"), str):
            raise MinimoeError(f"message {i} needs a str as content")


def _byte_table(backend: Backend) -> list[bytes]:
    """bytes of each id. Byte-level BPE spells a byte as one printable character (GPT-2)."""
    letter = {char: byte for byte, char in _printable_bytes().items()}
    special = {i: t.content for i, t in backend.get_added_tokens_decoder().items()}
    table = []
    for i in range(backend.get_vocab_size()):
        text = special.get(i)
        spelled = backend.id_to_token(i)
        table.append(text.encode() if text else bytes(letter[char] for char in spelled))
    return table


def _printable_bytes() -> dict[int, str]:
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in set(kept)]
    return {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(others)}
