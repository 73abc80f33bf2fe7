"""Exercise 3 of 01: operations and bytes of one step through the layers with experts."""

import random
from dataclasses import replace

from minimoe.config import ModelConfig
from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import NOT_A_DICT, first_slip, told


def weights(c, experts, router=1, shared=None, matrices=3, layers=None):
    """Weights of all such layers: router, shared expert and so many routed ones."""
    layers = c.num_hidden_layers - c.first_k_dense_replace if layers is None else layers
    expert = matrices * c.hidden_size * c.moe_intermediate_size
    shared = c.n_shared_experts if shared is None else shared
    return layers * (router * c.hidden_size * c.n_routed_experts + (shared + experts) * expert)


def moe_cost_naive(c, tokens, hit, itemsize):
    """(FLOP, bytes) of all MoE layers: router, routed experts, shared expert."""
    return 2 * tokens * weights(c, c.num_experts_per_tok), weights(c, hit) * itemsize


def _counted(change):
    """Weights that both numbers are made of, with the change of `change(config)` to them."""
    return (
        lambda c, tokens, hit, i: 2 * tokens * weights(c, c.num_experts_per_tok, **change(c)),
        lambda c, tokens, hit, i: weights(c, hit, **change(c)) * i,
    )


BOTH = {
    _counted(lambda c: {"router": 0}): "the router, D x E, is a product and a weight too",
    _counted(lambda c: {"shared": 0}): "every token also uses the shared expert",
    _counted(lambda c: {"shared": 1}): "the shared expert is n_shared_experts times as wide",
    _counted(lambda c: {"shared": 0, "router": 0}): "router and shared expert count too",
    _counted(lambda c: {"layers": c.num_hidden_layers}): "the first layers are dense: they have no "
    "experts",
    _counted(
        lambda c: {"layers": c.first_k_dense_replace}
    ): "the first layers are dense: it is the others that have experts",
    _counted(lambda c: {"layers": 1}): "this is one layer: times the layers that have experts",
    _counted(lambda c: {"matrices": 2}): "an expert has three matrices of D x F: gate, up and down",
    _counted(lambda c: {"matrices": 1}): "an expert has three matrices of D x F: gate, up and down",
}


def _right(c, tokens, hit, itemsize):
    return moe_cost_naive(c, tokens, hit, itemsize)[0]


FLOP = {
    **{flop: text for (flop, _), text in BOTH.items()},
    lambda *args: _right(*args) / 2: "a multiply and an add are two operations",
    lambda *args: (
        _right(*args) / args[1]
    ): "these are the operations of one token: times the tokens",
    lambda *args: _right(*args) * args[3]: "operations do not depend on `itemsize`",
    lambda c, t, hit, i: 2 * t * weights(c, hit): "a token uses K experts, whatever the step hits",
    lambda c, t, hit, i: (
        2 * t * weights(c, c.n_routed_experts)
    ): "a token uses K experts, not all E",
}
BYTES = {
    **{read: text for (_, read), text in BOTH.items()},
    lambda c, t, hit, i: weights(c, hit): "each weight has `itemsize` bytes",
    lambda c, t, hit, i: t * weights(c, hit) * i: "weights are read once for all tokens",
    lambda c, t, hit, i: (
        weights(c, t * c.num_experts_per_tok) * i
    ): "an expert that many tokens chose is read once: use `hit`",
    lambda c, t, hit, i: weights(c, c.num_experts_per_tok) * i: "the step reads `hit` experts a "
    "layer, not K",
    lambda c, t, hit, i: weights(c, c.n_routed_experts) * i: "of the routed experts only those hit "
    "are read",
}


def _only(place, part):
    """An answer with one of the two numbers wrong."""

    def answer(*args):
        pair = list(moe_cost_naive(*args))
        pair[place] = part(*args)
        return pair

    return answer


@register
class MoeCost(Check):
    """Exercise 3 of 01: FLOP and bytes of one step through the layers with experts."""

    name = "01-moe-cost"
    wrong = [
        *(
            Wrong(lambda *args, pair=pair: [part(*args) for part in pair], says)
            for pair, says in BOTH.items()
        ),
        *(Wrong(_only(0, flop), f"FLOP: {says}") for flop, says in FLOP.items()),
        *(Wrong(_only(1, read), f"bytes: {says}") for read, says in BYTES.items()),
        Wrong(lambda *args: moe_cost_naive(*args)[::-1], "FLOP first"),
        Wrong(lambda *args: moe_cost_naive(*args)[0], "a pair"),
        Wrong(lambda c, *args: c["hidden_size"], "with a dot"),
    ]

    def cases(self, rng: random.Random):
        """First one that tells all known slips apart."""
        tiny = ModelConfig.tiny()
        yield self._first(tiny), 11, 17, 4
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
            hit = rng.randrange(4, experts + 1)
            yield config, rng.randrange(1, 300), hit, rng.choice([1, 2, 4])

    @staticmethod
    def _first(tiny):
        return replace(
            tiny,
            num_hidden_layers=7,
            first_k_dense_replace=2,
            num_experts_per_tok=3,
            n_shared_experts=2,
            moe_intermediate_size=56,
        )

    def expected(self, *args):
        return moe_cost_naive(*args)

    def call(self, answer, *args):
        return told(answer, NOT_A_DICT, *args)

    def describe(self, c, tokens, hit, itemsize):
        return (
            f"{c.num_hidden_layers} layers, {c.first_k_dense_replace} dense; D {c.hidden_size}, "
            f"F {c.moe_intermediate_size}, E {c.n_routed_experts}, K {c.num_experts_per_tok}, "
            f"{c.n_shared_experts} shared; {tokens} tokens hit {hit}, {itemsize} bytes a weight"
        )

    def hint(self, got, *args):
        if isinstance(got, str):
            return got
        if not hasattr(got, "__getitem__") or len(got) != 2:
            return "give a pair: FLOP, bytes"
        want = moe_cost_naive(*args)
        if (got[1], got[0]) == want:
            return "give FLOP first, then bytes"
        flop, read = first_slip(FLOP, got[0], *args), first_slip(BYTES, got[1], *args)
        if flop and flop == read:
            return flop
        if got[0] != want[0]:
            return f"FLOP: {flop or 'too ' + ('many' if got[0] > want[0] else 'few')}"
        return f"bytes: {read or 'too ' + ('many' if got[1] > want[1] else 'few')}"
