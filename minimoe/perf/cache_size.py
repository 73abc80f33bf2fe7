"""Bytes of KV cache that one more token costs, by kind of attention; label *derived*."""

from dataclasses import dataclass


def multi_head(layers: int, heads: int, head_dim: int, itemsize: float) -> float:
    """Every head keeps a key and a value."""
    return layers * 2 * heads * head_dim * itemsize


def grouped_query(layers: int, kv_heads: int, head_dim: int, itemsize: float) -> float:
    """Groups of query heads share a key and a value (GQA, arXiv 2305.13245)."""
    return multi_head(layers, kv_heads, head_dim, itemsize)


def latent(layers: int, C: int, R: int, itemsize: float) -> float:
    """MLA: one latent that is both key and value, and one rotary key (arXiv 2405.04434)."""
    return layers * (C + R) * itemsize


@dataclass(frozen=True)
class Compressed:
    """V4.1-Flash's compressed attention (CSA2): a few layers hold entries that others reuse.

    An entry stands for `ratio` tokens. Main part: `width` values in FP4 (half a byte) and a scale
    byte per `main_block`; the indexer's key: `index_width` FP4 values and a byte per `index_block`.
    """

    width: int = 512
    main_block: int = 16
    index_width: int = 128
    index_block: int = 32
    sources: tuple[int, ...] = (2, 2, 2, 1)  # tokens per entry of each layer that holds entries

    @property
    def entry(self) -> float:
        """Bytes of one entry."""
        main = self.width / 2 + self.width / self.main_block
        index = self.index_width / 2 + self.index_width / self.index_block
        return main + index

    @property
    def per_token(self) -> float:
        """Bytes per token over all layers."""
        return self.entry * sum(1 / ratio for ratio in self.sources)


def requests_until_cache_outweighs(weight_bytes: float, context: int, per_token: float) -> float:
    """Requests in the batch at which a decode step reads as much cache as weights."""
    return weight_bytes / (context * per_token)


def blocks_for(tokens: int, block_size: int) -> int:
    """Whole blocks that hold `tokens`."""
    return -(-tokens // block_size)
