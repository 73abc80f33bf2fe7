"""`PrefixIndex`: which cached block holds which 16 tokens, after which prefix.

The key of a block is a hash over (key of the block before it, its own tokens, salt), so equal
tokens under another prefix or another salt are another block. Keys are the same in every process,
which lets a store on disk use them too. The index maps keys to blocks and owns nothing: the pool
decides which blocks live.

Source: block-hash chains as in vLLM's automatic prefix caching (arXiv 2309.06180 for the pages).
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence

BLOCK_SIZE = 16  # positions in a block


class BlockKey:
    """Identity of one full block. Equal only where the whole prefix is equal, token by token.

    `digest` is what a store keeps. In memory the tokens are compared as well, so the index would
    stay right under a hash that collides; a parent that is the very same object ends the walk, so
    a comparison along a chain costs one step.
    """

    __slots__ = ("digest", "parent", "salt", "slot", "tokens")

    def __init__(self, digest: bytes, parent: "BlockKey | None", tokens: tuple, salt: str | None):
        self.digest, self.parent, self.tokens, self.salt = digest, parent, tokens, salt
        self.slot = int.from_bytes(digest[:8], "little")

    def __hash__(self) -> int:
        return self.slot

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockKey):
            return NotImplemented
        a, b = self, other
        while a is not b:
            if a is None or b is None or a.digest != b.digest:
                return False
            if a.tokens != b.tokens or a.salt != b.salt:
                return False
            a, b = a.parent, b.parent
        return True

    def __repr__(self) -> str:
        return f"BlockKey({self.digest.hex()[:12]}, tokens={self.tokens})"


def hash_fields(fields: Sequence[bytes], bits: int = 256) -> bytes:
    """SHA-256 over length-prefixed fields, so ("a", "bc") and ("ab", "c") differ. 32 bytes.

    `bits` below 256 keeps only that many, for tests that want collisions.
    """
    digest = hashlib.sha256(b"".join(struct.pack("<Q", len(f)) + f for f in fields)).digest()
    if bits >= 256:
        return digest
    return (int.from_bytes(digest, "big") >> (256 - bits)).to_bytes(32, "big")


class PrefixIndex:
    """Keys to block numbers, for full blocks of `block_size` tokens.

    `fingerprint` names what made the values (model, drafter, dtype, block size); it is the root of
    every chain, so two models never share a key.
    """

    def __init__(self, fingerprint: str = "", block_size: int = BLOCK_SIZE, hash_bits: int = 256):
        self.block_size, self.hash_bits = block_size, hash_bits
        root = hash_fields([b"root", fingerprint.encode(), str(block_size).encode()], hash_bits)
        self.root = BlockKey(root, None, (fingerprint,), None)
        self._blocks: dict[BlockKey, int] = {}
        self._keys: dict[int, BlockKey] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def child(self, parent: BlockKey | None, tokens: Sequence[int], salt: str | None) -> BlockKey:
        """Key of the full block `tokens` after `parent` (None: the block starts the prompt)."""
        parent = parent or self.root
        tokens = tuple(tokens)
        if len(tokens) != self.block_size:
            raise ValueError(f"a key covers {self.block_size} tokens, got {len(tokens)}")
        body = struct.pack(f"<{len(tokens)}q", *tokens)
        extra = [] if salt is None else [salt.encode("utf-8", "surrogatepass")]
        digest = hash_fields([parent.digest, body, *extra], self.hash_bits)
        return BlockKey(digest, parent, tokens, salt)

    def chain(self, tokens: Sequence[int], salt: str | None = None) -> list[BlockKey]:
        """Keys of all full blocks of `tokens`; a partial last block has none."""
        keys, parent = [], None
        for piece in full_blocks(tokens, self.block_size):
            parent = self.child(parent, piece, salt)
            keys.append(parent)
        return keys

    def lookup(self, tokens: Sequence[int], salt: str | None = None) -> list[int]:
        """Blocks that hold the longest cached run of leading full blocks, in order."""
        return self.run(self.chain(tokens, salt))

    def run(self, keys: list[BlockKey]) -> list[int]:
        """Blocks of the cached leading keys, for keys that `chain` made.

        Found keys are replaced in the list by the index's own, so that the next comparison along
        the chain takes one step.
        """
        blocks = []
        for i, key in enumerate(keys):
            if i and key.parent is not keys[i - 1]:
                key.parent = keys[i - 1]  # equal, and now the same object
            block = self._blocks.get(key)
            if block is None:
                break
            keys[i] = self._keys[block]
            blocks.append(block)
        return blocks

    def find(self, key: BlockKey) -> int | None:
        """The block of one key, or None."""
        return self._blocks.get(key)

    def key_of(self, block: int) -> BlockKey | None:
        """The key under which `block` can be found, or None."""
        return self._keys.get(block)

    def insert(self, key: BlockKey, block: int) -> bool:
        """Make `block` findable. False, and nothing changes, where the key has a block already.

        Raises ValueError where `block` still answers to another key: forget it first, or a page
        used again would be found under its old contents.
        """
        if key in self._blocks:
            return False
        if block in self._keys:
            raise ValueError(f"block {block} still has a key: call forget({block}) before insert")
        self._blocks[key] = block
        self._keys[block] = key
        return True

    def forget(self, block: int) -> BlockKey | None:
        """Remove the block's key, if it has one: it is about to be written again."""
        key = self._keys.pop(block, None)
        if key is not None:
            del self._blocks[key]
        return key

    def clear(self) -> None:
        """Forget every block."""
        self._blocks.clear()
        self._keys.clear()


def full_blocks(tokens: Sequence[int], block_size: int) -> Iterator[Sequence[int]]:
    """Consecutive slices of exactly `block_size` tokens; the rest is left out."""
    for start in range(0, len(tokens) - block_size + 1, block_size):
        yield tokens[start : start + block_size]


def lookup_naive(cached: list[tuple], tokens: Sequence[int], salt=None, block_size=BLOCK_SIZE):
    """The oracle, without hashes: `cached` holds (prefix up to the block's end, salt, block)."""
    found = []
    for end in range(block_size, len(tokens) + 1, block_size):
        prefix = tuple(tokens[:end])
        hits = [block for entry, mark, block in cached if entry == prefix and mark == salt]
        if not hits:
            break
        found.append(hits[0])
    return found
