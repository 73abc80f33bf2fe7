"""Exercises 1 and 2 of 02: bytes per token, blocks and what is empty in them."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.perf.cache_size import blocks_for
from minimoe.perf.kv_cost import paged


def bytes_naive(config, itemsize):
    """MLA keeps C + R values a layer; other kinds a key and a value for each KV head."""
    if config["kv_lora_rank"]:
        width = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    else:
        width = 2 * config["num_key_value_heads"] * config["head_dim"]
    return config["num_hidden_layers"] * width * itemsize


def _one_layer(config, itemsize):
    return bytes_naive({**config, "num_hidden_layers": 1}, itemsize)


def _all_heads(config, itemsize):
    return bytes_naive({**config, "num_key_value_heads": config["num_attention_heads"]}, itemsize)


def _latent_twice(config, itemsize):
    return bytes_naive(config, itemsize) * (2 if config["kv_lora_rank"] else 1)


def _key_half_twice(config, itemsize):
    width = 2 * config["kv_lora_rank"] + config["qk_rope_head_dim"] if config["kv_lora_rank"] else 0
    return config["num_hidden_layers"] * width * itemsize or bytes_naive(config, itemsize)


def _rope_per_head(config, itemsize):
    rope = config["qk_rope_head_dim"] * config["num_attention_heads"]
    return bytes_naive({**config, "qk_rope_head_dim": rope}, itemsize)


def _keys_only(config, itemsize):
    return bytes_naive(config, itemsize) / (1 if config["kv_lora_rank"] else 2)


def _no_rope(config, itemsize):
    return bytes_naive({**config, "qk_rope_head_dim": 0}, itemsize)


@register
class BytesPerToken(Check):
    """Exercise 1 of 02: cache bytes of one token, for several kinds of attention."""

    name = "02-bytes-per-token"
    wrong = [
        Wrong(_one_layer, "every layer keeps its own"),
        Wrong(_all_heads, "num_key_value_heads"),
        Wrong(_latent_twice, "the latent serves as key and as value"),
        Wrong(_key_half_twice, "the latent serves as key and as value"),
        Wrong(_rope_per_head, "one rotary key for all heads"),
        Wrong(_keys_only, "a key and a value"),
        Wrong(_no_rope, "rotary key"),
        Wrong(lambda config, itemsize: bytes_naive(config, 1), "itemsize"),
    ]

    def cases(self, rng: random.Random):
        """Grouped and multi-head, latent, and one layer of one head."""
        yield self._config(1, heads=1, kv_heads=1, dim=2), 4
        yield self._config(95, heads=64, kv_heads=8, dim=128), 2
        yield self._config(61, heads=128, C=512, R=64), 2
        yield self._config(6, heads=6, C=64, R=16), 4
        for _ in range(20):
            kv_heads = rng.choice([1, 2, 8])
            shape = {"C": rng.choice([0, 64, 512]), "R": rng.choice([16, 64])}
            heads = kv_heads * rng.randrange(1, 9)
            yield self._config(rng.randrange(1, 99), heads, kv_heads, **shape), rng.choice([1, 2])

    @staticmethod
    def _config(layers, heads, kv_heads=1, dim=64, C=0, R=0):
        return {
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": dim,
            "kv_lora_rank": C or None,
            "qk_rope_head_dim": R if C else 0,
        }

    def expected(self, config, itemsize):
        return bytes_naive(config, itemsize)

    def describe(self, config, itemsize):
        return f"{config}, itemsize {itemsize}"

    def hint(self, got, config, itemsize):
        """What a result that fits a known mistake suggests."""
        mistakes = [
            (_one_layer, "every layer keeps its own: times the layers"),
            (_all_heads, "only num_key_value_heads heads have keys and values of their own"),
            (_latent_twice, "the latent serves as key and as value: it is kept once"),
            (_key_half_twice, "the latent serves as key and as value: it is kept once"),
            (_rope_per_head, "a layer keeps one rotary key for all heads"),
            (_keys_only, "a key and a value are kept for each KV head"),
            (_no_rope, "the rotary key is kept beside the latent"),
            (lambda config, itemsize: bytes_naive(config, 1), "each value has itemsize bytes"),
        ]
        for mistake, says in mistakes:
            if got == mistake(config, itemsize) != self.expected(config, itemsize):
                return says
        return None


def waste_naive(lengths, block_size):
    """Whole blocks for each request, and the positions in them that hold no token."""
    blocks = sum(blocks_for(length, block_size) for length in lengths)
    return blocks, paged(lengths, block_size) - sum(lengths)


def _one_more(lengths, block_size):
    blocks = sum(length // block_size + 1 for length in lengths)
    return blocks, blocks * block_size - sum(lengths)


def _joined(lengths, block_size):
    return waste_naive([sum(lengths)], block_size)


def _rounds_down(lengths, block_size):
    return sum(length // block_size for length in lengths), waste_naive(lengths, block_size)[1]


def _one_for_none(lengths, block_size):
    return waste_naive([max(1, length) for length in lengths], block_size)


def _counts_tokens(lengths, block_size):
    return waste_naive(lengths, block_size)[0], sum(lengths)


@register
class BlocksAndWaste(Check):
    """Exercise 2 of 02: blocks that requests take, and positions in them that hold no token."""

    name = "02-blocks-and-waste"
    wrong = [
        Wrong(_one_more, "exactly fills its blocks"),
        Wrong(_joined, "shares no block"),
        Wrong(_rounds_down, "the last block is begun"),
        Wrong(_counts_tokens, "hold no token"),
        Wrong(lambda *args: waste_naive(*args)[::-1], "blocks first"),
        Wrong(_one_for_none, "without tokens needs no block"),
    ]

    def cases(self, rng: random.Random):
        """No request, no tokens, exact multiples and their neighbours, and other block sizes."""
        yield [16], 16
        yield [17], 16
        yield [15, 1], 16
        yield [], 16
        yield [0], 16
        yield [32, 48, 16], 16
        yield [7, 8, 9], 1
        for _ in range(20):
            size = rng.choice([1, 4, 16, 64])
            edges = [size * rng.randrange(6) + rng.choice([-1, 0, 1]) for _ in range(4)]
            yield [max(0, length) for length in edges], size

    def expected(self, lengths, block_size):
        return waste_naive(lengths, block_size)

    def hint(self, got, lengths, block_size):
        blocks, waste = self.expected(lengths, block_size)
        if tuple(got) == (waste, blocks):
            return "give the blocks first, then the empty positions"
        if 0 in lengths and got[0] == _one_for_none(lengths, block_size)[0]:
            return "a request without tokens needs no block"
        if got[0] == _one_more(lengths, block_size)[0] > blocks:
            return "a request that exactly fills its blocks needs no further one"
        if got[0] == _joined(lengths, block_size)[0] < blocks:
            return "a request shares no block with another: round up for each"
        if got[0] < blocks:
            return "the last block is begun and counts as a whole one: round up"
        if got[0] == blocks:
            return "waste is the positions in these blocks that hold no token"
        return None
