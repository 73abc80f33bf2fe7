"""Exercises 1 and 2 of 00: route a token, count the parameters that it uses."""

import random
from dataclasses import replace

from minimoe.config import ModelConfig
from minimoe.course.check import Check, Wrong, register
from minimoe.course.parameters import DEEPSEEK_V3, outline, total_and_active


def route_naive(scores, bias, k, scale):
    """The K experts with the highest score + bias, ties to the lower id, and their weights.

    scores, bias: [E]. Returns expert id to weight; weights are shares of the chosen scores, times
    `scale`.
    """
    order = sorted(range(len(scores)), key=lambda e: (-(scores[e] + bias[e]), e))
    chosen = order[:k]
    total = sum(scores[e] for e in chosen)
    return {e: scale * scores[e] / total for e in chosen}


def _weighs_with_bias(scores, bias, k, scale):
    return route_naive(
        [s + b for s, b in zip(scores, bias, strict=True)], [0] * len(bias), k, scale
    )


def _ignores_bias(scores, bias, k, scale):
    return route_naive(scores, [0] * len(bias), k, scale)


def _shares_of_all(scores, bias, k, scale):
    chosen = route_naive(scores, bias, k, scale)
    return {e: scale * scores[e] / sum(scores) for e in chosen}


def _plain_scores(scores, bias, k, scale):
    return {e: scale * scores[e] for e in route_naive(scores, bias, k, scale)}


def _ties_to_the_higher(scores, bias, k, scale):
    last = len(scores) - 1
    flipped = route_naive(scores[::-1], bias[::-1], k, scale)
    return {last - e: weight for e, weight in flipped.items()}


@register
class Route(Check):
    """Exercise 1 of 00: the chosen experts and their weights."""

    name = "00-route"
    wrong = [
        Wrong(_weighs_with_bias, "the bias chooses and does not weigh"),
        Wrong(_ignores_bias, "other experts are chosen"),
        Wrong(_shares_of_all, "shares of the chosen scores"),
        Wrong(_plain_scores, "divide each chosen score by the sum"),
        Wrong(_ties_to_the_higher, "the lower id goes first"),
        Wrong(lambda s, b, k, scale: route_naive(s, b, k, 1.0), "times `scale`"),
        Wrong(lambda s, b, k, scale: list(route_naive(s, b, k, scale)), "a dict is expected"),
    ]

    def cases(self, rng: random.Random):
        """Scores are multiples of 1/64, so that sums are exact and ties are real ties."""
        yield [0.25, 0.75, 0.5], [0.0, 0.0, 0.0], 2, 1.0
        yield [0.25, 0.75, 0.5], [1.0, -1.0, 0.0], 2, 2.5
        yield [0.25, 0.75, 0.5], [0.5, 0.0, 0.0], 1, 1.5  # a tie that the bias makes
        yield [0.5, 0.5, 0.5, 0.5], [0.0] * 4, 2, 1.0
        yield [0.25, 0.75], [0.0, 0.0], 2, 1.0
        for _ in range(30):
            experts = rng.randrange(1, 12)
            scores = [rng.randrange(1, 64) / 64 for _ in range(experts)]
            bias = [rng.randrange(-32, 33) / 64 for _ in range(experts)]
            yield scores, bias, rng.randrange(1, experts + 1), rng.choice([1.0, 1.5, 2.5])

    def expected(self, scores, bias, k, scale):
        return route_naive(scores, bias, k, scale)

    def describe(self, scores, bias, k, scale):
        return f"scores {scores}, bias {bias}, k {k}, scale {scale}"

    def hint(self, got, scores, bias, k, scale):
        want = self.expected(scores, bias, k, scale)
        if got.keys() == want.keys():
            return self._weight_hint(got, scores, bias, scale)
        sums = sorted((s + b for s, b in zip(scores, bias, strict=True)), reverse=True)
        if len(sums) > k and sums[k - 1] == sums[k] and len(got) == k:
            return "two experts tie: the lower id goes first"
        return f"other experts are chosen: take the {k} with the highest score + bias"

    def _weight_hint(self, got, scores, bias, scale):
        chosen, weight = next(iter(got.items()))
        total = sum(scores[e] for e in got)
        biased = sum(scores[e] + bias[e] for e in got)
        if abs(weight - scale * scores[chosen]) < self.tolerance:
            return "the weights are shares: divide each chosen score by the sum of the chosen"
        if abs(weight - scores[chosen] / total) < self.tolerance:
            return "the weights are shares of the chosen scores times `scale`"
        if biased and abs(weight - scale * (scores[chosen] + bias[chosen]) / biased) < 1e-9:
            return "the bias chooses and does not weigh: use the plain scores for the weights"
        return "the weights are shares of the chosen scores, not of all, times `scale`"


def active_naive(total, c):
    """Parameters one token uses: all, less the E - K unused experts of each mixture layer."""
    expert = 3 * c.hidden_size * c.moe_intermediate_size
    unused = c.n_routed_experts - c.num_experts_per_tok
    return total - unused * expert * (c.num_hidden_layers - c.first_k_dense_replace)


def _chosen_alone(total, c):
    return active_naive(total, c) - active_naive(total, replace(c, num_experts_per_tok=0))


def _of_one_layer(total, c):
    return active_naive(total, replace(c, num_hidden_layers=c.first_k_dense_replace + 1))


@register
class Active(Check):
    """Exercise 2 of 00: parameters that one token uses."""

    name = "00-active"
    wrong = [
        Wrong(lambda total, c: active_naive(total, replace(c, first_k_dense_replace=0)), "dense"),
        Wrong(lambda total, c: total - (total - active_naive(total, c)) * 2 // 3, "three matrices"),
        Wrong(lambda total, c: total - active_naive(total, c), "are not used: subtract"),
        Wrong(lambda total, c: total - (total - active_naive(total, c)) // 3, "three matrices"),
        Wrong(lambda total, c: total * c.num_experts_per_tok // c.n_routed_experts, "only the"),
        Wrong(lambda total, c: active_naive(total, replace(c, num_experts_per_tok=0)), "does use"),
        Wrong(_of_one_layer, "each layer that has experts"),
        Wrong(lambda total, c: total, "subtract the experts"),
        Wrong(lambda total, c: _chosen_alone(total, c), "the chosen experts alone"),
        Wrong(
            lambda total, c: active_naive(total, replace(c, num_experts_per_tok=1)), "experts: a"
        ),
        Wrong(lambda total, c: active_naive(total, c) - c.hidden_size, "no multiple of one expert"),
        Wrong(lambda total, c: total + active_naive(total, c), "no multiple of one expert"),
    ]

    def cases(self, rng: random.Random):
        """Totals are counted from the model that `minimoe` builds at each shape."""
        tiny = ModelConfig.tiny()
        shapes = [
            tiny,
            DEEPSEEK_V3,
            replace(tiny, num_experts_per_tok=1),
            replace(tiny, num_experts_per_tok=64),
        ]
        for _ in range(5):
            experts = rng.choice([4, 8, 48])
            shapes.append(
                replace(
                    tiny,
                    n_routed_experts=experts,
                    num_experts_per_tok=rng.randrange(1, experts + 1),
                    num_hidden_layers=rng.randrange(2, 5),
                    first_k_dense_replace=rng.randrange(3),
                    moe_intermediate_size=rng.choice([16, 48]),
                )
            )
        for config in shapes:
            yield total_and_active(outline(config))[0], config

    def expected(self, total, config):
        return total_and_active(outline(config))[1]

    def describe(self, total, c):
        return (
            f"total {total}, {c.num_hidden_layers} layers, {c.first_k_dense_replace} dense; "
            f"D {c.hidden_size}, E {c.n_routed_experts}, K {c.num_experts_per_tok}, "
            f"F {c.moe_intermediate_size}"
        )

    def hint(self, got, total, config):
        unused = total - self.expected(total, config)
        if got == total:
            return "subtract the experts that a token does not use"
        if got == unused:
            return "these are the parameters that are not used: subtract them from the total"
        if got in (total - unused // 3, total - unused * 2 // 3):
            return "an expert has three matrices of D x F: gate, up and down"
        if abs(got - total * config.num_experts_per_tok / config.n_routed_experts) < 1:
            return "only the routed experts are used in part: all the rest is used by every token"
        if got == active_naive(total, replace(config, first_k_dense_replace=0)):
            return "the first layers are dense: they have no experts to subtract"
        if got == active_naive(total, replace(config, num_experts_per_tok=0)):
            return "a token does use K of the experts: do not subtract those"
        if got == _chosen_alone(total, config):
            return "these are the chosen experts alone: all that is no routed expert is used too"
        if got == _of_one_layer(total, config):
            return "this is for one layer: subtract in each layer that has experts"
        return self._subtracted_hint(total - got, config)

    @staticmethod
    def _subtracted_hint(taken, c):
        """What is left to say: how many experts the answer takes away, if a whole number."""
        expert = 3 * c.hidden_size * c.moe_intermediate_size
        if taken <= 0 or taken % expert:
            return f"what you subtract, {taken}, is no multiple of one expert, 3 x D x F = {expert}"
        return (
            f"you subtract {taken // expert} experts: a token leaves E - K unused in each layer "
            "that has experts"
        )
