"""Operations and bytes of a step, counted from the config; and the time they predict.

A multiply and an add are two operations. Bytes are the fewest that must move: each weight that is
used once, each cached row once, activations left out where they are small beside the weights. Of
the experts only the *distinct* ones hit are read, however many tokens chose each.

    seconds = overhead + bytes / bandwidth + operations / rate

The sum of the last two terms is an upper bound of what perfect overlap would give (their maximum),
off by at most a factor of two at the knee and close to it elsewhere. Label: *derived*.
"""

from dataclasses import dataclass

from minimoe.config import ModelConfig


@dataclass(frozen=True)
class Work:
    """What a piece of a step must do: operations (FLOP) and bytes to or from memory."""

    flops: float
    bytes: float

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.bytes + other.bytes)

    def times(self, count: float) -> "Work":
        """The same work `count` times over."""
        return Work(self.flops * count, self.bytes * count)

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes


def matmul(rows: float, inputs: int, outputs: int, itemsize: int) -> Work:
    """`[rows, inputs] @ [inputs, outputs]`, where the second is a weight."""
    return Work(2 * rows * inputs * outputs, inputs * outputs * itemsize)


def expert_layer(rows: float, hit: float, D: int, F: int, itemsize: int) -> Work:
    """`rows` routed rows (tokens x K) over `hit` distinct experts of hidden size F."""
    per_row = 2 * 3 * D * F  # gate, up and down
    weights = hit * 3 * D * F * itemsize
    return Work(rows * per_row, weights)


def expert_activations(rows: float, D: int, F: int, itemsize: int) -> float:
    """Bytes that `rows` routed rows move besides weights: input read, hidden values and expert
    outputs written and read again, result written. Small beside the weights in decode; in prefill
    they are most of the traffic."""
    return itemsize * rows * (D + 2 * F + 2 * D + D)


def attention_decode(contexts: float, heads: int, C: int, R: int, itemsize: int) -> Work:
    """Absorbed MLA over `contexts` cached positions in all: scores over C + R, values over C."""
    return Work(2 * heads * (2 * C + R) * contexts, contexts * (C + R) * itemsize)


def step_work(
    config: ModelConfig,
    tokens: int,
    contexts: float,
    requests: int | None = None,
    hit: float | None = None,
    itemsize: int = 4,
) -> dict[str, Work]:
    """One forward pass over `tokens` new tokens that see `contexts` cached positions in all.

    `requests` rows get logits (None: every token). `hit` is the mean number of distinct experts
    per MoE layer (None: expected under uniform routing).
    """
    c, L, T = config, config.num_hidden_layers, tokens
    D, H, K = c.hidden_size, c.num_attention_heads, c.num_experts_per_tok
    hit = distinct_uniform(c.n_routed_experts, K, T) if hit is None else hit
    moe = c.num_moe_layers
    shared = c.n_shared_experts * c.moe_intermediate_size
    experts = expert_layer(T * K, hit, D, c.moe_intermediate_size, itemsize)
    read_cache = attention_decode(contexts, H, c.kv_lora_rank, c.qk_rope_head_dim, itemsize)
    return {
        "attention weights": _attention_weights(c, T, itemsize).times(L),
        "cache": read_cache.times(L),
        "dense MLP": matmul(T, D, 3 * c.intermediate_size, itemsize).times(L - moe),
        "router": matmul(T, D, c.n_routed_experts, itemsize).times(moe),
        "shared expert": matmul(T, D, 3 * shared, itemsize).times(moe),
        "experts": experts.times(moe),
        "head": matmul(requests or T, D, c.vocab_size, itemsize),
    }


def _attention_weights(c: ModelConfig, T: int, itemsize: int) -> Work:
    """Projections of one MLA layer in absorbed form."""
    D, H, C, N = c.hidden_size, c.num_attention_heads, c.kv_lora_rank, c.qk_nope_head_dim
    q_in = c.q_lora_rank or D
    parts = [
        matmul(T, q_in, H * c.qk_head_dim, itemsize),  # queries
        matmul(T, D, c.kv_width, itemsize),  # the new cache row
        matmul(T, H * N, C, itemsize),  # absorb the key up-projection, head by head
        matmul(T, H * c.v_head_dim, C, itemsize),  # and the value up-projection
        matmul(T, H * c.v_head_dim, D, itemsize),  # output
    ]
    if c.q_lora_rank:
        parts.append(matmul(T, D, c.q_lora_rank, itemsize))
    return total(parts)


def total(parts) -> Work:
    """Sum of works, given as a list or as the dict of `step_work`."""
    parts = parts.values() if isinstance(parts, dict) else parts
    out = Work(0.0, 0.0)
    for part in parts:
        out = out + part
    return out


def predict(work: Work, bandwidth: float, rate: float, overhead: float = 0.0) -> float:
    """Seconds: overhead, then memory, then arithmetic."""
    return overhead + work.bytes / bandwidth + work.flops / rate


def roof(intensity: float, bandwidth: float, rate: float) -> float:
    """Attainable FLOP/s at this intensity: the two straight lines of the roofline plot."""
    return min(rate, intensity * bandwidth)


def away_from_knee(work: Work, bandwidth: float, rate: float, factor: float = 2.5) -> bool:
    """True where one of the two terms is at least `factor` times the other."""
    memory, arithmetic = work.bytes / bandwidth, work.flops / rate
    return max(memory, arithmetic) >= factor * min(memory, arithmetic)


def distinct_uniform(E: int, K: int, T: float) -> float:
    """Expected distinct experts hit by T tokens that each choose K of E at random."""
    return E * (1 - (1 - K / E) ** T)


def distinct_expected(share: list[float], T: float) -> float:
    """The same for real routing: `share[e]` is the part of all tokens that chose expert e (they
    sum to K). Tokens are taken as independent, which neighbours in a text are not quite."""
    return sum(1 - (1 - min(p, 1.0)) ** T for p in share)


def knee_tokens(E: int, K: int, knee: float, itemsize: int) -> float:
    """Tokens per step at which an expert layer leaves the memory-bound side.

    With all E experts read, T tokens do 2 T K operations for every E weights of `itemsize` bytes:
    intensity 2 T K / (E itemsize). A dense layer is E = K: an MoE needs E / K times its batch.
    """
    return knee * itemsize * E / (2 * K)
