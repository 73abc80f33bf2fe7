"""Exercise 4 of 01: an expert layer of one's own, which fetches each expert once."""

import random
from functools import partial

import torch

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, told, wrongs
from minimoe.course.experts_lab import by_token


def toy_expert(number: int):
    """Rows `[n, D]` to `[n, D]`: not linear, and another for each number."""
    return lambda rows: rows.square() * (number + 1) + rows.flip(-1)


def _grouped(x, ids, weights, fetch, experts=None, weigh=True, add=True, before=False):
    """The right answer, or with one of its parts left out."""
    out = torch.zeros_like(x)
    for e in ids.unique().tolist() if experts is None else experts:
        token, place = (ids == e).nonzero(as_tuple=True)
        share = weights[token, place, None] if weigh else 1
        rows = fetch(e)(share * x[token]) if before else share * fetch(e)(x[token])
        if add:
            out.index_add_(0, token, rows)
        else:
            out[token] = rows
    return out


def _all_up_to_the_last(x, ids, weights, fetch):
    return _grouped(x, ids, weights, fetch, experts=range(int(ids.max()) + 1))


def _first_choice_only(x, ids, weights, fetch):
    return _grouped(x, ids[:, :1], weights[:, :1], fetch)


def _one_short(x, ids, weights, fetch):
    return _grouped(x, ids, weights, fetch, experts=ids.unique().tolist()[:-1])


NO_TENSOR = "give a tensor [T, D]: the engine goes on with it (`torch.stack` makes one of rows)"


def _weighed(weights_of):
    """The right sums but for the weights: weights_of(weights, ids) `[T, K]` stand for them."""
    return lambda x, ids, weights, fetch: _grouped(x, ids, weights_of(weights, ids), fetch)


def _onto_the_rows(x, ids, weights, fetch):
    return x + _grouped(x, ids, weights, fetch)


def _flat_weights(x, ids, weights, fetch):
    out = torch.zeros_like(x)
    for e in ids.unique().tolist():
        token, place = (ids == e).nonzero(as_tuple=True)
        out.index_add_(0, token, weights[token, place] * fetch(e)(x[token]))
    return out


WRONG_WEIGHT = "an expert counts with the weight at its own place: weights[token, place]"
SUMS = {
    _weighed(lambda weights, ids: weights[:, :1].expand_as(weights)): WRONG_WEIGHT,
    _weighed(lambda weights, ids: weights.sum(1, keepdim=True).expand_as(weights)): WRONG_WEIGHT,
    _weighed(lambda weights, ids: weights.gather(1, ids % ids.shape[1])): WRONG_WEIGHT,
    _weighed(lambda weights, ids: weights.flip(1)): WRONG_WEIGHT,
    _weighed(
        lambda weights, ids: weights / weights.sum(1, keepdim=True)
    ): "use the weights as they are, whatever they add up to",
    _weighed(lambda weights, ids: weights / ids.shape[1]): "add up, and do not divide by K",
    _onto_the_rows: "start from zeros: the layer's answer is the experts' sum alone",
}
SHAPES = {
    (RuntimeError, "must match the size"): "weights [n] do not go with rows [n, D]: give them an "
    "axis for D, `[:, None]`",
}
SLIPS = [
    ({"weigh": False}, "multiply an expert's result by the weight that the token gives it"),
    ({"add": False}, "a token has K experts: add their results up, do not replace them"),
    ({"before": True}, "the weight belongs to the expert's result, not to what it is given"),
]


@register
class RunExperts(Check):
    """Right sums, and each chosen expert fetched exactly once."""

    name = "01-run-experts"
    wrong = [
        Wrong(by_token, "fetch it once"),
        Wrong(lambda *args: _grouped(*args).tolist(), "give a tensor"),
        Wrong(_all_up_to_the_last, "no token chose it"),
        Wrong(_first_choice_only, "was not fetched"),
        Wrong(_one_short, "was not fetched"),
        Wrong(lambda *args: _grouped(*args, weigh=False), "multiply"),
        Wrong(lambda *args: _grouped(*args, add=False), "add their results"),
        Wrong(lambda *args: _grouped(*args, before=True), "belongs to the expert's result"),
        Wrong(_flat_weights, "an axis for D"),
        Wrong(lambda *args: _grouped(*args)[:, None].expand(-1, 2, -1), "one row for each token"),
        *wrongs(SUMS),
    ]

    def cases(self, rng: random.Random):
        """One token, one hot expert, K = 1, all of them, and random choices."""
        yield self._case(rng, [[2, 0]])
        yield self._case(rng, [[3, 1], [1, 3], [1, 5]])
        yield self._case(rng, [[4]] * 6)
        yield self._case(rng, [[0, 1, 2, 3]] * 3)
        for _ in range(12):
            E, K = rng.randrange(4, 12), rng.randrange(1, 5)
            yield self._case(rng, [rng.sample(range(E), K) for _ in range(rng.randrange(1, 20))])

    @staticmethod
    def _case(rng: random.Random, ids: list):
        x = torch.tensor([[rng.uniform(-1, 1) for _ in range(3)] for _ in ids])
        weights = torch.tensor([[rng.uniform(0.1, 1) for _ in row] for row in ids])
        return x, torch.tensor(ids), weights

    def expected(self, x, ids, weights):
        return self.call(_grouped, x, ids, weights)

    def call(self, answer, x, ids, weights):
        """The rows `[T, D]`, and the experts that were fetched."""
        fetched = []

        def fetch(expert):
            fetched.append(int(expert))
            return toy_expert(int(expert))

        out = told(answer, SHAPES, x, ids, weights, fetch)
        if out is None or out is ... or (isinstance(out, str) and out in SHAPES.values()):
            return out
        return [out, sorted(fetched)] if isinstance(out, torch.Tensor) else NO_TENSOR

    def describe(self, x, ids, weights):
        return f"tokens with experts {ids.tolist()}"

    def hint(self, got, x, ids, weights):
        if isinstance(got, str):
            return got
        out, fetched = got
        chosen = set(ids.flatten().tolist())
        for expert in fetched:
            if expert not in chosen:
                return f"expert {expert} was fetched, and no token chose it"
            if fetched.count(expert) > 1:
                return (
                    f"expert {expert} was fetched {fetched.count(expert)} times: gather the rows "
                    "of all tokens that chose it, then fetch it once"
                )
        if chosen - set(fetched):
            return f"expert {min(chosen - set(fetched))} was chosen and was not fetched"
        if out.shape != x.shape:
            return "give one row for each token, [T, D]: add up its experts' results"
        says = first_slip(self._results(SUMS), out, x, ids, weights)
        if says:
            return says
        for slip, text in SLIPS:
            wrong = self.call(partial(_grouped, **slip), x, ids, weights)[0]
            if torch.allclose(torch.as_tensor(out), wrong, atol=1e-5):
                return text
        return None

    def _results(self, slips: dict) -> dict:
        """The same slips, as functions of one case that give the rows `[T, D]` alone."""
        return {partial(self._rows, slip): text for slip, text in slips.items()}

    def _rows(self, slip, *case):
        return self.call(slip, *case)[0]
