"""Exercise 2 of 00: count the parameters that a token uses."""

import random
from dataclasses import replace

from minimoe.config import ModelConfig
from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import NOT_A_DICT, told
from minimoe.course.parameters import DEEPSEEK_V3, outline, total_and_active


def active_naive(total, c):
    """Parameters one token uses: all, less the E - K unused experts of each mixture layer."""
    expert = 3 * c.hidden_size * c.moe_intermediate_size
    unused = c.n_routed_experts - c.num_experts_per_tok
    return total - unused * expert * (c.num_hidden_layers - c.first_k_dense_replace)


def _chosen_alone(total, c):
    return active_naive(total, c) - active_naive(total, replace(c, num_experts_per_tok=0))


def _of_one_layer(total, c):
    return active_naive(total, replace(c, num_hidden_layers=c.first_k_dense_replace + 1))


def _of_dense_layers(total, c):
    return active_naive(total, replace(c, num_hidden_layers=2 * c.first_k_dense_replace))


def _subtracts_used(total, c):
    return active_naive(total, replace(c, n_routed_experts=2 * c.num_experts_per_tok))


def _width_twice(total, c):
    return active_naive(total, replace(c, moe_intermediate_size=c.hidden_size))


def _one_matrix_of_one_layer(total, c):
    return total - (total - _of_one_layer(total, c)) // 3


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
        Wrong(lambda total, c: total - c["hidden_size"], "config.hidden_size, with a dot"),
        Wrong(_of_dense_layers, "those layers have no experts"),
        Wrong(_subtracts_used, "E - K unused"),
        Wrong(_width_twice, "no multiple of one expert"),
        Wrong(_one_matrix_of_one_layer, "no multiple of one expert"),
    ]

    def cases(self, rng: random.Random):
        """Totals are counted from the model that `minimoe` builds at each shape."""
        tiny = ModelConfig.tiny()
        shapes = [
            # numbers without common factors, so that every mistake gives another result
            replace(
                tiny,
                num_hidden_layers=7,
                first_k_dense_replace=2,
                num_experts_per_tok=3,
                moe_intermediate_size=56,
            ),
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

    def call(self, answer, total, config):
        return told(answer, NOT_A_DICT, total, config)

    def describe(self, total, c):
        return (
            f"total {total}, {c.num_hidden_layers} layers, {c.first_k_dense_replace} dense; "
            f"D {c.hidden_size}, E {c.n_routed_experts}, K {c.num_experts_per_tok}, "
            f"F {c.moe_intermediate_size}"
        )

    def hint(self, got, total, config):
        if isinstance(got, str):
            return got
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
        if got == _of_dense_layers(total, config):
            return (
                "first_k_dense_replace counts the layers to leave out: those layers have no experts"
            )
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
