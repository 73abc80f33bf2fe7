"""Exercise 1 of 00: route a token."""

import math
import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, wrongs


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


def _every_expert(scores, bias, k, scale):
    return {e: 0.0 for e in range(len(scores))} | route_naive(scores, bias, k, scale)


def _keys_as_text(scores, bias, k, scale):
    return {str(e): weight for e, weight in route_naive(scores, bias, k, scale).items()}


def _weighed(weight):
    """The right experts, with other weights: weight(score, bias, those of the chosen, scale)."""

    def answer(scores, bias, k, scale):
        chosen = list(route_naive(scores, bias, k, scale))
        pairs = [(scores[e], bias[e]) for e in chosen]
        return {e: weight(scores[e], bias[e], pairs, scale) for e in chosen}

    return answer


def _sum(pairs):
    return sum(score for score, _ in pairs)


WITHOUT_BIAS = "the bias chooses and does not weigh: use the plain scores for the weights"
WEIGHTS = {
    _plain_scores: "the weights are shares: divide each chosen score by the sum of the chosen",
    _weighed(lambda s, b, pairs, scale: s / _sum(pairs)): "the weights are shares of the chosen "
    "scores times `scale`",
    _shares_of_all: "the weights are shares of the chosen scores, not of all",
    _weighed(
        lambda s, b, pairs, scale: scale * (s + b) / (_sum(pairs) + sum(c for _, c in pairs))
    ): (WITHOUT_BIAS),
    _weighed(lambda s, b, pairs, scale: scale * s / (_sum(pairs) + sum(c for _, c in pairs))): (
        WITHOUT_BIAS
    ),
    _weighed(lambda s, b, pairs, scale: scale * (s + b) / _sum(pairs)): WITHOUT_BIAS,
    _weighed(lambda s, b, pairs, scale: s / _sum(pairs) / scale): "multiply the shares by `scale`",
    _weighed(
        lambda s, b, pairs, scale: scale / len(pairs)
    ): "the weights are not equal: the larger the score, the larger the share",
    _weighed(
        lambda s, b, pairs, scale: scale * math.exp(s) / sum(math.exp(c) for c, _ in pairs)
    ): "no exp: a share is the score itself over the sum of the chosen scores",
}


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
        Wrong(lambda s, b, k, scale: route_naive(s, b, k + 1, scale), "choose k = 2 experts"),
        Wrong(_every_expert, "choose k = 2 experts"),
        Wrong(_keys_as_text, "keys are the experts' ids as plain numbers"),
        *wrongs(WEIGHTS),
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
        if not hasattr(got, "keys"):
            return None
        if any(not hasattr(expert, "__index__") for expert in got) or not _whole(got):
            return "the keys are the experts' ids as plain numbers: `int(e)`, or `tolist()`"
        if got.keys() == want.keys():
            says = first_slip(WEIGHTS, got, scores, bias, k, scale)
            return says or "the weights are shares of the chosen scores, times `scale`"
        if len(got) != k:
            return f"choose k = {k} experts, and give no other: here are {len(got)}"
        sums = sorted((s + b for s, b in zip(scores, bias, strict=True)), reverse=True)
        if sorted((scores[e] + bias[e] for e in got), reverse=True) == sums[:k]:
            return "two experts tie: the lower id goes first"
        return f"other experts are chosen: take the {k} with the highest score + bias"


def _whole(got) -> bool:
    """Are the keys numbers that a dict can be asked for? Tensors are not."""
    return all(int(expert) in got for expert in got)
