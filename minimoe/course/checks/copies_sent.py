"""Exercise 3 of 03: rows that leave a rank, a copy for each expert or for each rank."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.expert_parallelism import first_slip


def copies_naive(chosen, per_rank, home):
    """(a copy per expert, a copy per rank) that leave the rank `home`."""
    by_expert, by_rank = 0, 0
    for experts in chosen:
        ranks = set()
        for expert in experts:
            rank = expert // per_rank
            if rank != home:
                by_expert += 1
                ranks.add(rank)
        by_rank += len(ranks)
    return by_expert, by_rank


def _home_too(chosen, per_rank, home):
    return (
        sum(len(experts) for experts in chosen),
        sum(len({e // per_rank for e in experts}) for experts in chosen),
    )


def _modulo(chosen, per_rank, home):
    turned = [[e % per_rank * per_rank for e in experts] for experts in chosen]
    return copies_naive(turned, per_rank, home)


def _over_all_tokens(chosen, per_rank, home):
    first, _ = copies_naive(chosen, per_rank, home)
    ranks = {e // per_rank for experts in chosen for e in experts} - {home}
    return first, len(ranks)


def _home_in_second(chosen, per_rank, home):
    return copies_naive(chosen, per_rank, home)[0], _home_too(chosen, per_rank, home)[1]


def _home_in_first(chosen, per_rank, home):
    return _home_too(chosen, per_rank, home)[0], copies_naive(chosen, per_rank, home)[1]


@register
class Copies(Check):
    """Rows that leave a rank, with one per expert and with one per rank."""

    name = "03-copies"
    wrong = [
        Wrong(_home_too, "stay at home"),
        Wrong(_home_in_second, "second count"),
        Wrong(_home_in_first, "first count"),
        Wrong(_modulo, "e // per_rank"),
        Wrong(_over_all_tokens, "each token"),
        Wrong(lambda *args: copies_naive(*args)[::-1], "first a copy per expert"),
        Wrong(lambda *args: copies_naive(*args)[0], "a pair"),
    ]

    def cases(self, rng: random.Random):
        """All on one rank, all at home, one each, K = 1, no tokens, and random choices."""
        yield [[0, 5, 6, 7]], 2, 0
        yield [[2, 3]], 2, 0
        yield [[0, 1]], 2, 0
        yield [[4], [4], [1]], 2, 1
        yield [], 4, 0
        for _ in range(20):
            per_rank, P = rng.randrange(1, 9), rng.randrange(2, 9)
            E = per_rank * P
            K = rng.randrange(1, min(6, E) + 1)
            chosen = [rng.sample(range(E), K) for _ in range(rng.randrange(1, 12))]
            yield chosen, per_rank, rng.randrange(P)

    def expected(self, *args):
        return copies_naive(*args)

    def describe(self, chosen, per_rank, home):
        return f"chosen {chosen}, {per_rank} experts a rank, tokens of rank {home}"

    def hint(self, got, *args):
        if not isinstance(got, tuple | list) or len(got) != 2:
            return "give a pair: copies per expert, copies per rank"
        slips = {
            _home_too: "copies for experts of `home` stay at home",
            _home_in_second: "the second count has `home` among its ranks: leave it out there too",
            _home_in_first: "the first count has copies for `home`: leave them out there too",
            _modulo: "rank r holds experts r * per_rank and on: expert e is on rank e // per_rank",
            _over_all_tokens: "each token travels by itself: count its ranks, then add up",
            lambda *a: copies_naive(*a)[::-1]: "first a copy per expert, then a copy per rank",
        }
        return first_slip(slips, got, *args)
