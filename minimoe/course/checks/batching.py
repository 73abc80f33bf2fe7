"""Exercise 3 of 02: steps of static and of continuous batching."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.perf.kv_cost import continuous_steps, static_steps


def steps_naive(lengths, slots):
    """Steps of static and of continuous batching."""
    return static_steps(lengths, slots), continuous_steps(lengths, slots)


def _sorted_first(lengths, slots):
    ordered = sorted(lengths)
    return static_steps(ordered, slots), continuous_steps(ordered, slots)


def _longest_first(lengths, slots):
    ordered = sorted(lengths, reverse=True)
    return static_steps(ordered, slots), continuous_steps(ordered, slots)


def _no_tail(lengths, slots):
    return static_steps(lengths, slots), -(-sum(lengths) // slots)


def _dealt_out(lengths, slots):
    """Request i to slot i modulo slots, whichever is free."""
    queues = [sum(lengths[slot::slots]) for slot in range(slots)]
    return static_steps(lengths, slots), max(queues)


def _longest_only(lengths, slots):
    return static_steps(lengths, slots), max(lengths, default=0)


def _a_step_too_long(lengths, slots):
    static, _ = steps_naive(lengths, slots)
    return static, steps_naive([length + 1 for length in lengths], slots)[1]


@register
class BatchingSteps(Check):
    """Exercise 3 of 02: steps with static and with continuous batching."""

    name = "02-batching-steps"
    wrong = [
        Wrong(_sorted_first, "order of arrival"),
        Wrong(_longest_first, "order of arrival"),
        Wrong(_no_tail, "places stay empty"),
        Wrong(_dealt_out, "whichever place is free first"),
        Wrong(_a_step_too_long, "right after a request's last token"),
        Wrong(_longest_only, "waits until a place is free"),
        Wrong(lambda lengths, slots: (sum(lengths), steps_naive(lengths, slots)[1]), "longest"),
    ]

    def cases(self, rng: random.Random):
        """None, fewer than the slots, one slot, a long one last, and random ones."""
        yield [3], 1
        yield [2, 5], 2
        yield [1, 9, 2, 2, 1], 2
        yield [], 4
        yield [4, 4], 8
        yield [3, 1, 2], 1
        yield [5, 5, 5, 5], 2
        yield [1, 1, 1, 1, 9], 4
        for _ in range(25):
            lengths = [rng.choice([1, 2, 3, 12]) for _ in range(rng.randrange(1, 16))]
            yield lengths, rng.randrange(1, 6)

    def expected(self, lengths, slots):
        return steps_naive(lengths, slots)

    def describe(self, lengths, slots):
        return f"lengths {lengths}, {slots} slots"

    def hint(self, got, lengths, slots):
        static, continuous = self.expected(lengths, slots)
        if tuple(got) in (_sorted_first(lengths, slots), _longest_first(lengths, slots)):
            return "requests start in their order of arrival: do not sort them"
        if got[0] != static:
            return "static: each batch of `slots` takes as many steps as its longest request"
        if got[1] == max(lengths, default=0) < continuous:
            return "continuous: a request waits until a place is free"
        if got[1] < continuous:
            return "continuous: at the end places stay empty, so tokens / slots is too few"
        if tuple(got) == _a_step_too_long(lengths, slots):
            return "continuous: too many; a place is free again right after a request's last token"
        return "continuous: the next request takes whichever place is free first"
