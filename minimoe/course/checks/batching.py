"""Exercise 3 of 02: steps of static and of continuous batching."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, told, wrongs
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


def _continuous(change):
    """The right number of static steps, and change(lengths, slots) as continuous ones."""
    return lambda lengths, slots: (static_steps(lengths, slots), change(lengths, slots))


def _frees(lengths, slots):
    """When each place gets free for good, and when the request that starts last ends."""
    free, end = [0] * slots, 0
    for length in lengths:
        place = free.index(min(free))
        free[place] = end = free[place] + length
    return free, end


def _one_start_a_step(lengths, slots):
    waiting, running, steps = list(lengths), [], 0
    while waiting or running:
        if waiting and len(running) < slots:
            running.append(waiting.pop(0))
        running = [left - 1 for left in running if left > 1]
        steps += 1
    return steps


def _whole_batches_only(lengths, slots):
    whole = lengths[: len(lengths) // slots * slots]
    return static_steps(whole, slots), continuous_steps(lengths, slots)


def _static_sorted(lengths, slots):
    return static_steps(sorted(lengths), slots), continuous_steps(lengths, slots)


SORTED = "requests start in their order of arrival: do not sort them"
SLIPS = {
    _sorted_first: SORTED,
    _longest_first: SORTED,
    _continuous(lambda lengths, slots: continuous_steps(sorted(lengths), slots)): SORTED,
    _static_sorted: SORTED,
    _continuous(lambda lengths, slots: continuous_steps(sorted(lengths)[::-1], slots)): SORTED,
    lambda *args: steps_naive(*args)[::-1]: "static first, then continuous",
    _whole_batches_only: "static: the last batch counts too, though it is not full",
    _dealt_out: "continuous: the next request takes whichever place is free first",
    _continuous(_one_start_a_step): "continuous: all places that are free are filled in the next "
    "step, not one a step",
    _a_step_too_long: "continuous: too many; a place is free right after a request's last token",
    _continuous(
        lambda lengths, slots: sum(lengths)
    ): "continuous: up to `slots` requests run at once",
    _longest_only: "continuous: a request waits until a place is free",
    _no_tail: "continuous: at the end places stay empty, so tokens / slots is too few",
    _continuous(
        lambda *args: _frees(*args)[1]
    ): "continuous: the request that starts last need not end last",
    _continuous(lambda *args: min(_frees(*args)[0])): "continuous: the place that gets free last "
    "counts, not the first",
}
EMPTY = {(ValueError, "empty"): "without requests there are no steps: (0, 0)"}


def _raises_without_requests(lengths, slots):
    return steps_naive(lengths, slots) if max(lengths) else (0, 0)


@register
class BatchingSteps(Check):
    """Exercise 3 of 02: steps with static and with continuous batching."""

    name = "02-batching-steps"
    wrong = [
        *wrongs(SLIPS),
        Wrong(lambda lengths, slots: (sum(lengths), steps_naive(lengths, slots)[1]), "longest"),
        Wrong(lambda lengths, slots: static_steps(lengths, slots), "a pair"),
        Wrong(_continuous(lambda lengths, slots: max(lengths)), "a request waits"),
        Wrong(_raises_without_requests, "no steps"),
    ]

    def cases(self, rng: random.Random):
        """None, fewer than the slots, one slot, a long one last, and random ones."""
        yield [3], 1
        yield [2, 5], 2
        yield [2, 7, 4, 3, 2], 2
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

    def call(self, answer, lengths, slots):
        return told(answer, {} if lengths else EMPTY, lengths, slots)

    def hint(self, got, lengths, slots):
        if isinstance(got, str):
            return got
        if not hasattr(got, "__len__") or len(got) != 2:
            return "give a pair of numbers: static, continuous"
        says = first_slip(SLIPS, got, lengths, slots)
        if says:
            return says
        static, continuous = self.expected(lengths, slots)
        if got[0] != static:
            return "static: each batch of `slots` takes as many steps as its longest request"
        if not lengths:
            return "without requests there are no steps"
        return (
            f"continuous: too {'few' if got[1] < continuous else 'many'} steps; follow each place"
        )
