"""Exercise 3 of 03: rows that leave a rank, a copy for each expert or for each rank."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, wrongs


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


def _same_twice(place):
    return lambda *args: (copies_naive(*args)[place],) * 2


def _one_for_each_token(chosen, per_rank, home):
    leave = [any(e // per_rank != home for e in experts) for experts in chosen]
    return copies_naive(chosen, per_rank, home)[0], sum(leave)


def _home_tokens_left_out(chosen, per_rank, home):
    away = [experts for experts in chosen if all(e // per_rank != home for e in experts)]
    return copies_naive(away, per_rank, home)


def _home_taken_off(chosen, per_rank, home):
    first, second = _home_in_second(chosen, per_rank, home)
    return first, second - len(chosen)


def _not_whole(chosen, per_rank, home):
    away = [[e / per_rank for e in experts if e / per_rank != home] for experts in chosen]
    return sum(map(len, away)), sum(len(set(ranks)) for ranks in away)


def _what_is_saved(chosen, per_rank, home):
    first, second = copies_naive(chosen, per_rank, home)
    return first, first - second


def _first_token(chosen, per_rank, home):
    return copies_naive(chosen[:1], per_rank, home)


def _distinct_experts(chosen, per_rank, home):
    away = {e for experts in chosen for e in experts if e // per_rank != home}
    return len(away), copies_naive(chosen, per_rank, home)[1]


def _by_token(chosen, per_rank, home):
    return [copies_naive([experts], per_rank, home) for experts in chosen]


EACH = "each token travels by itself: count its ranks, then add up"
SLIPS = {
    _home_too: "copies for experts of `home` stay at home",
    _home_in_second: "the second count has `home` among its ranks: leave it out there too",
    _home_in_first: "the first count has copies for `home`: leave them out there too",
    _home_taken_off: "take off `home` only where a token has an expert there",
    _home_tokens_left_out: "a token with an expert at home sends its other copies all the same",
    _first_token: "add up over all tokens",
    _modulo: "rank r holds experts r * per_rank and on: expert e is on rank e // per_rank",
    _not_whole: "a rank is a whole number: e // per_rank, not e / per_rank",
    _over_all_tokens: EACH,
    _distinct_experts: EACH,
    _one_for_each_token: "second, a copy for each rank that a token goes to, not one a token",
    _same_twice(0): "second, only one copy for each rank: count different ranks",
    _same_twice(1): "first, a copy for each expert, not for each rank",
    lambda *a: copies_naive(*a)[::-1]: "first a copy per expert, then a copy per rank",
    _what_is_saved: "second, the rows that are sent, not those that are saved",
}


@register
class Copies(Check):
    """Rows that leave a rank, with one per expert and with one per rank."""

    name = "03-copies"
    wrong = [
        *wrongs(SLIPS),
        Wrong(_by_token, "for all tokens together"),
        Wrong(lambda *args: copies_naive(*args)[0], "a pair"),
    ]

    def cases(self, rng: random.Random):
        """All on one rank, all at home, one each, K = 1, no tokens, and random choices."""
        yield [[1, 3, 4, 5, 6, 7]], 2, 0  # tells apart what one token can
        yield [[0, 5, 6, 7], [2, 3, 4, 6]], 2, 0
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
        if not hasattr(got, "__len__") or len(got) != 2 or hasattr(got[0], "__len__"):
            return "give a pair for all tokens together: copies per expert, copies per rank"
        return first_slip(SLIPS, got, *args)
