"""Checks of 01_compute_vs_memory_bound: batch at the knee, distinct experts, cost of MoE layers."""

import random
from dataclasses import replace

from minimoe.config import ModelConfig
from minimoe.course.check import Check, Wrong, register


def knee_batch_naive(rate, bandwidth, itemsize, experts, per_token):
    """Tokens at which weights of all `experts` take as long to read as to use."""
    flops_per_token = 2 * per_token  # for each weight of one expert
    bytes_in_all = itemsize * experts
    return (bytes_in_all / bandwidth) / (flops_per_token / rate)


@register
class KneeBatch(Check):
    """Exercise 1 of 01: tokens per step at which arithmetic takes as long as memory."""

    name = "01-knee-batch"
    wrong = [
        Wrong(lambda r, b, i, e, k: r / b, "FLOP per byte, not tokens"),
        Wrong(lambda r, b, i, e, k: knee_batch_naive(r, b, i, 1, 1), "E / K"),
        Wrong(lambda r, b, i, e, k: knee_batch_naive(r, b, i, k, e), "upside down"),
        Wrong(lambda r, b, i, e, k: 2 * knee_batch_naive(r, b, i, e, k), "two operations"),
        Wrong(lambda r, b, i, e, k: knee_batch_naive(r, b, 1, e, k), "bytes"),
        Wrong(lambda r, b, i, e, k: r / b * e / k, "two bytes a weight"),
    ]

    def cases(self, rng: random.Random):
        yield 1000.0, 10.0, 4, 24, 2
        yield 1000.0, 10.0, 2, 1, 1
        yield 800e12, 4e12, 2, 384, 6
        for _ in range(20):
            experts = rng.randrange(1, 400)
            chosen = rng.randrange(1, experts + 1)
            yield (
                rng.uniform(1e9, 1e15),
                rng.uniform(1e9, 1e13),
                rng.choice([1, 2, 4]),
                experts,
                chosen,
            )

    def expected(self, *args):
        return knee_batch_naive(*args)

    def describe(self, rate, bandwidth, itemsize, experts, per_token):
        return (
            f"{rate:.3g} FLOP/s, {bandwidth:.3g} bytes/s, {itemsize} bytes a weight, "
            f"E {experts}, K {per_token}"
        )

    def hint(self, got, rate, bandwidth, itemsize, experts, per_token):
        want = self.expected(rate, bandwidth, itemsize, experts, per_token)
        guesses = {
            rate / bandwidth: "this is the knee in FLOP per byte, not tokens",
            want * per_token / experts: "all E experts are read and each token uses K: E / K",
            want * (per_token / experts) ** 2: "E / K stands upside down",
            2 * want: "a multiply and an add are two operations",
            want / itemsize: "a weight is `itemsize` bytes",
            want / itemsize * 2: "that is for two bytes a weight: mind `itemsize`",
        }
        near = (text for value, text in guesses.items() if abs(got - value) < 1e-6 * abs(value))
        return next(near, None)


def expected_hit_naive(share, tokens):
    """Each expert is missed when all tokens miss it."""
    hit = 0.0
    for part in share:
        missed = 1.0
        for _ in range(tokens):
            missed *= 1 - part
        hit += 1 - missed
    return hit


@register
class ExpectedHit(Check):
    """Exercise 2 of 01: how many experts T tokens hit, on average."""

    name = "01-expected-hit"
    wrong = [
        Wrong(lambda share, t: sum(share) * t, "more experts than there are"),
        Wrong(lambda share, t: min(len(share), sum(share) * t), "choose the same"),
        Wrong(lambda share, t: len(share) - expected_hit_naive(share, t), "not hit"),
        Wrong(
            lambda share, t: expected_hit_naive([sum(share) / len(share)] * len(share), t),
            "its own share",
        ),
    ]

    def cases(self, rng: random.Random):
        """One hot expert, idle ones, no tokens, one token, and random shares."""
        yield [0.25] * 8, 1
        yield [0.25] * 8, 10
        yield [0.5, 0.5], 0
        yield [1.0, 0.0, 0.0], 5
        yield [1.0, 0.5, 0.25, 0.25], 2
        for _ in range(20):
            experts = rng.randrange(1, 20)
            yield [rng.random() for _ in range(experts)], rng.randrange(0, 40)

    def expected(self, share, tokens):
        return expected_hit_naive(share, tokens)

    def hint(self, got, share, tokens):
        want = self.expected(share, tokens)
        if abs(got - (len(share) - want)) < self.tolerance:
            return "this counts the experts that are not hit"
        if got > len(share):
            return "these are more experts than there are: count each once"
        mean = sum(share) / len(share)
        if abs(got - expected_hit_naive([mean] * len(share), tokens)) < self.tolerance:
            return "shares differ: each expert is missed by its own share"
        if got > want:
            return "two tokens may choose the same expert, and it is read once"
        return None


def moe_cost_naive(c, tokens, hit, itemsize):
    """(FLOP, bytes) of all MoE layers: router, routed experts, shared expert."""
    layers = c.num_hidden_layers - c.first_k_dense_replace
    router = c.hidden_size * c.n_routed_experts
    expert = 3 * c.hidden_size * c.moe_intermediate_size
    shared = expert * c.n_shared_experts
    used = router + shared + expert * c.num_experts_per_tok
    read = router + shared + expert * hit
    return layers * 2 * tokens * used, layers * read * itemsize


def _without_router(c, tokens, hit, itemsize):
    return moe_cost_naive(replace(c, n_routed_experts=0), tokens, hit, itemsize)


def _without_shared(c, tokens, hit, itemsize):
    return moe_cost_naive(replace(c, n_shared_experts=0), tokens, hit, itemsize)


def _all_layers(c, tokens, hit, itemsize):
    return moe_cost_naive(replace(c, first_k_dense_replace=0), tokens, hit, itemsize)


def _reads_per_token(c, tokens, hit, itemsize):
    flops, _ = moe_cost_naive(c, tokens, hit, itemsize)
    return flops, moe_cost_naive(c, tokens, tokens * c.num_experts_per_tok, itemsize)[1]


def _uses_all(c, tokens, hit, itemsize):
    flops, _ = moe_cost_naive(replace(c, num_experts_per_tok=hit), tokens, hit, itemsize)
    return flops, moe_cost_naive(c, tokens, hit, itemsize)[1]


def _two_matrices(c, tokens, hit, itemsize):
    none = replace(c, moe_intermediate_size=0)
    whole, rest = (moe_cost_naive(config, tokens, hit, itemsize) for config in (c, none))
    return tuple(less + (more - less) * 2 // 3 for more, less in zip(whole, rest, strict=True))


def _one_operation(c, tokens, hit, itemsize):
    flops, read = moe_cost_naive(c, tokens, hit, itemsize)
    return flops / 2, read


def _reads_all(c, tokens, hit, itemsize):
    flops, _ = moe_cost_naive(c, tokens, hit, itemsize)
    return flops, moe_cost_naive(c, tokens, c.n_routed_experts, itemsize)[1]


@register
class MoeCost(Check):
    """Exercise 3 of 01: FLOP and bytes of one step through the layers with experts."""

    name = "01-moe-cost"
    wrong = [
        Wrong(_without_router, "the router"),
        Wrong(_without_shared, "shared expert"),
        Wrong(_all_layers, "first layers are dense"),
        Wrong(_reads_per_token, "read once"),
        Wrong(_uses_all, "K experts, whatever"),
        Wrong(_two_matrices, "three matrices"),
        Wrong(_one_operation, "two operations"),
        Wrong(_reads_all, "only those hit are read"),
        Wrong(lambda *args: moe_cost_naive(*args)[::-1], "FLOP first"),
        Wrong(lambda *args: moe_cost_naive(*args)[0], "a pair"),
    ]

    def cases(self, rng: random.Random):
        tiny = ModelConfig.tiny()
        yield replace(tiny, num_experts_per_tok=3), 1, 3, 4
        yield tiny, 512, 64, 2
        yield replace(tiny, num_experts_per_tok=1), 7, 1, 4  # one hot expert
        for _ in range(12):
            experts = rng.randrange(4, 64)
            config = replace(
                tiny,
                n_routed_experts=experts,
                num_experts_per_tok=rng.randrange(1, 5),
                n_shared_experts=rng.randrange(1, 3),
                first_k_dense_replace=rng.randrange(1, 4),
                moe_intermediate_size=rng.choice([16, 48]),
            )
            yield (
                config,
                rng.randrange(1, 300),
                rng.randrange(4, experts + 1),
                rng.choice([1, 2, 4]),
            )

    def expected(self, *args):
        return moe_cost_naive(*args)

    def describe(self, c, tokens, hit, itemsize):
        return (
            f"{c.num_hidden_layers} layers, {c.first_k_dense_replace} dense; D {c.hidden_size}, "
            f"F {c.moe_intermediate_size}, E {c.n_routed_experts}, K {c.num_experts_per_tok}, "
            f"{c.n_shared_experts} shared; {tokens} tokens hit {hit}, {itemsize} bytes a weight"
        )

    def hint(self, got, *args):
        if not isinstance(got, tuple | list) or len(got) != 2:
            return "give a pair: FLOP, bytes"
        slips = {
            _without_router: "the router, D x E, is a product and a weight too",
            _without_shared: "every token also uses the shared expert",
            _all_layers: "the first layers are dense: they have no experts",
            _reads_per_token: "an expert that many tokens chose is read once: use `hit`",
            _uses_all: "a token uses K experts, whatever the step hits",
            _two_matrices: "an expert has three matrices of D x F: gate, up and down",
            _one_operation: "a multiply and an add are two operations",
            _reads_all: "of the routed experts only those hit are read",
            lambda *a: moe_cost_naive(*a)[::-1]: "give FLOP first, then bytes",
        }
        for slip, text in slips.items():
            pairs = zip(got, slip(*args), strict=True)
            if all(abs(mine - theirs) <= 1e-9 * abs(theirs) for mine, theirs in pairs):
                return text
        return None
