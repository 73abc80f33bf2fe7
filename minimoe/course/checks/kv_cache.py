"""Exercise 1 of 02: bytes per token."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, told, wrongs


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


def _plain(change):
    """Right for MLA, and `change(config, itemsize)` without."""
    return lambda config, itemsize: (
        bytes_naive(config, itemsize) if config["kv_lora_rank"] else change(config, itemsize)
    )


def _latent(change):
    """Right without MLA, and layers x `change(config)` x itemsize with it."""

    def answer(config, itemsize):
        if not config["kv_lora_rank"]:
            return bytes_naive(config, itemsize)
        return config["num_hidden_layers"] * change(config) * itemsize

    return answer


def _without_latent(config, itemsize):
    return bytes_naive({**config, "kv_lora_rank": None}, itemsize)


def _one_head(config, itemsize):
    return bytes_naive({**config, "num_key_value_heads": 1}, itemsize)


def _no_width(config, itemsize):
    return bytes_naive({**config, "head_dim": 1}, itemsize)


KEPT_ONCE = "the latent serves as key and as value: it is kept once"
SLIPS = {
    _one_layer: "every layer keeps its own: times the layers",
    _all_heads: "only num_key_value_heads heads have keys and values of their own",
    _plain(_one_head): "each of num_key_value_heads keeps a key and a value: times those",
    _plain(_no_width): "a key has head_dim numbers, and so has a value",
    _keys_only: "a key and a value are kept for each KV head",
    lambda config, itemsize: bytes_naive(config, 1): "each value has itemsize bytes",
    lambda config, itemsize: bytes_naive(config, 1) / itemsize: "times itemsize, not divided by it",
    lambda config, itemsize: 8 * bytes_naive(config, itemsize): "bytes, not bits",
    _without_latent: "where kv_lora_rank is a number the model keeps C + R numbers a layer instead",
    _latent_twice: KEPT_ONCE,
    _key_half_twice: KEPT_ONCE,
    _rope_per_head: "a layer keeps one rotary key for all heads",
    _no_rope: "the rotary key is kept beside the latent",
    _latent(
        lambda c: c["kv_lora_rank"] + 2 * c["qk_rope_head_dim"]
    ): "the rotary key is kept once: values have none",
    _latent(
        lambda c: (c["kv_lora_rank"] + c["qk_rope_head_dim"]) * c["num_attention_heads"]
    ): "the latent is one for all heads",
    lambda config, itemsize: (
        bytes_naive(config, itemsize)
        + (_without_latent(config, itemsize) if config["kv_lora_rank"] else 0)
    ): "with MLA the latent and "
    "the rotary key are all that is kept: no keys and values beside them",
}
ERRORS = {
    (AttributeError, "'dict' object"): 'config is a dict: config["head_dim"]',
    (TypeError, "NoneType"): "kv_lora_rank is None where the model has no MLA: ask for that first",
}


@register
class BytesPerToken(Check):
    """Exercise 1 of 02: cache bytes of one token, for several kinds of attention."""

    name = "02-bytes-per-token"
    wrong = [
        *wrongs(SLIPS),
        Wrong(lambda config, itemsize: config.head_dim * itemsize, "config is a dict"),
        Wrong(
            lambda c, itemsize: (c["kv_lora_rank"] + c["qk_rope_head_dim"]) * itemsize, "is None"
        ),
        Wrong(lambda config, itemsize: str(bytes_naive(config, itemsize)), "a number is expected"),
    ]

    def cases(self, rng: random.Random):
        """Grouped, latent, one layer of one head. The first two tell all known slips apart."""
        yield self._config(95, heads=60, kv_heads=12, dim=128), 4
        yield self._config(61, heads=128, kv_heads=7, C=512, R=64), 4
        yield self._config(1, heads=1, kv_heads=1, dim=2), 4
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

    def call(self, answer, *args):
        return told(answer, ERRORS, *args)

    def describe(self, config, itemsize):
        return f"{config}, itemsize {itemsize}"

    def hint(self, got, config, itemsize):
        """What a result that fits a known mistake suggests."""
        return got if got in ERRORS.values() else first_slip(SLIPS, got, config, itemsize)
