"""Exercises 1 and 2 of 03: bytes on the wire, an all-to-all by hand."""

import random

from minimoe.course.check import Check, Wrong, register
from minimoe.course.checks.slips import first_slip, wrongs


def wire_bytes_naive(pairs, width, itemsize):
    """Count every row that crosses from one rank to another, there and back."""
    out = []
    for r in range(len(pairs)):
        rows = 0
        for q in range(len(pairs)):
            if q != r:
                rows += pairs[r][q]  # own tokens, to the rank that has the expert
                rows += pairs[q][r]  # results of others' tokens, back to them
        out.append(rows * width * itemsize)
    return out


def _own_rows_too(pairs, width, itemsize):
    P = range(len(pairs))
    return [sum(pairs[r][q] + pairs[q][r] for q in P) * width * itemsize for r in P]


def _one_way(pairs, width, itemsize):
    P = range(len(pairs))
    return [sum(pairs[r][q] for q in P if q != r) * width * itemsize for r in P]


def _there_twice(pairs, width, itemsize):
    return [2 * sent for sent in _one_way(pairs, width, itemsize)]


def _back_twice(pairs, width, itemsize):
    P = range(len(pairs))
    return [2 * sum(pairs[q][r] for q in P if q != r) * width * itemsize for r in P]


def _diagonal_once(pairs, width, itemsize):
    P = range(len(pairs))
    rows = [sum(pairs[r]) + sum(pairs[q][r] for q in P) - pairs[r][r] for r in P]
    return [count * width * itemsize for count in rows]


def _rows_of(change):
    """As right, but change(rank, pairs) rows; times width and itemsize."""
    return lambda pairs, width, itemsize: [
        change(r, pairs) * width * itemsize for r in range(len(pairs))
    ]


OWN_ROWS = "a row for an expert on its own rank does not use the wire"
BOTH_WAYS = "rows go there, and results come back: a rank sends both kinds"
SENDS = {
    _own_rows_too: OWN_ROWS,
    _rows_of(lambda r, pairs: sum(pairs[r])): OWN_ROWS + "; and a rank sends results back, too",
    _rows_of(lambda r, pairs: 2 * sum(pairs[r])): OWN_ROWS + "; and what it returns is its column",
    _diagonal_once: "pairs[r][r] is in the row and in the column: take it off twice",
    _one_way: BOTH_WAYS,
    _rows_of(lambda r, pairs: sum(row[r] for row in pairs) - pairs[r][r]): BOTH_WAYS,
    _there_twice: "it returns as many rows as it got of other ranks' tokens: a column",
    _back_twice: "it also sends its own tokens' rows to others: a row of the table",
    _rows_of(lambda r, pairs: sum(pairs[r][q] + pairs[q][r] for q in range(r + 1, len(pairs)))): (
        "every other rank counts, those before r too: q != r"
    ),
    lambda *a: [2 * sent for sent in wire_bytes_naive(*a)]: "each row is sent once: the receiver "
    "does not count",
    lambda *a: [sum(wire_bytes_naive(*a))] * len(a[0]): "this is all ranks together",
    lambda *a: sum(wire_bytes_naive(*a)): "give a list, with a number for each rank",
    lambda *a: max(wire_bytes_naive(*a)): "give a list, with a number for each rank",
    lambda pairs, width, itemsize: wire_bytes_naive(pairs, 1, 1): "a row has `width` values of "
    "`itemsize` bytes",
    lambda pairs, width, itemsize: wire_bytes_naive(pairs, width, 1): "`itemsize` bytes a value",
    lambda pairs, width, itemsize: wire_bytes_naive(pairs, 1, itemsize): "a row has `width` values",
}


@register
class WireBytes(Check):
    """What each rank sends in one layer, from who computes whose pairs."""

    name = "03-wire-bytes"
    wrong = wrongs(SENDS)

    def cases(self, rng: random.Random):
        """Two ranks, a rank without tokens, one hot rank, one rank alone, and random ones."""
        yield [[1, 2, 5], [3, 4, 9], [8, 0, 6]], 10, 4  # tells all known slips apart
        yield [[1, 2], [3, 4]], 10, 4
        yield [[0, 0, 0], [5, 1, 2], [0, 0, 0]], 8, 2
        yield [[9, 0, 0], [9, 0, 0], [9, 0, 0]], 3, 4
        yield [[7]], 16, 4
        for _ in range(20):
            P = rng.randrange(2, 6)
            pairs = [[rng.randrange(0, 20) for _ in range(P)] for _ in range(P)]
            yield pairs, rng.randrange(1, 300), rng.choice([1, 2, 4])

    def expected(self, *args):
        return wire_bytes_naive(*args)

    def describe(self, pairs, width, itemsize):
        return f"pairs {pairs}, {width} values of {itemsize} bytes"

    def hint(self, got, *args):
        return first_slip(SENDS, got, *args)


def all_to_all_naive(rows, counts):
    """Cut each rank's rows by its counts, then collect every rank's part for each."""
    P = len(rows)
    parts = []
    for r in range(P):
        start, own = 0, []
        for q in range(P):
            own.append(rows[r][start : start + counts[r][q]])
            start += counts[r][q]
        parts.append(own)
    return [[row for r in range(P) for row in parts[r][q]] for q in range(P)]


def _equal_parts(rows, counts):
    P = len(rows)
    parts = [[own[q * len(own) // P : (q + 1) * len(own) // P] for q in range(P)] for own in rows]
    return [[row for r in range(P) for row in parts[r][q]] for q in range(P)]


def _last_sender_first(rows, counts):
    P = len(rows)
    turned = all_to_all_naive(rows[::-1], counts[::-1])
    return turned if P else []


def _counts_of_receiver(rows, counts):
    P = range(len(counts))
    return all_to_all_naive(rows, [[counts[q][r] for q in P] for r in P])


def _appended(rows, counts):
    P = len(rows)
    out = [[] for _ in range(P)]
    for own, sizes in zip(rows, counts, strict=True):
        for q in range(P):
            out[q].append(own[sum(sizes[:q]) : sum(sizes[: q + 1])])
    return out


def _without_own(rows, counts):
    own = [sizes[r] for r, sizes in enumerate(counts)]
    kept = all_to_all_naive(rows, counts)
    starts = [sum(counts[q][r] for q in range(r)) for r in range(len(rows))]
    return [r[:at] + r[at + n :] for r, at, n in zip(kept, starts, own, strict=True)]


def _one_list(rows, counts):
    return [[row for own in all_to_all_naive(rows, counts) for row in own]] * len(rows)


def _own_first(rows, counts):
    result = all_to_all_naive(rows, counts)
    return [sorted(own, key=lambda row: row not in rows[r]) for r, own in enumerate(result)]


@register
class AllToAll(Check):
    """Lists cut into uneven parts and put together again."""

    name = "03-all-to-all"
    wrong = [
        Wrong(lambda rows, counts: rows, "stays where it was"),
        Wrong(_equal_parts, "uneven"),
        Wrong(_last_sender_first, "order of the senders"),
        Wrong(_counts_of_receiver, "counts[r] cuts"),
        Wrong(_appended, "not `append`"),
        Wrong(_one_list, "one list"),
        Wrong(_without_own, "to itself"),
        Wrong(lambda rows, counts: all_to_all_naive(rows, counts)[:1], "one list for each rank"),
        Wrong(lambda rows, counts: all_to_all_naive(rows, counts)[0], "not a str"),
        Wrong(lambda *args: [iter(own) for own in all_to_all_naive(*args)], "not a list_iterator"),
        Wrong(_own_first, "order of the senders"),
    ]

    def cases(self, rng: random.Random):
        """Even, uneven, a rank with nothing, all to one, one rank alone, and random ones."""
        yield [["a0", "a1", "a2"], ["b0", "b1", "b2"]], [[1, 2], [0, 3]]
        yield [["a0", "a1", "a2"], ["b0", "b1", "b2"]], [[1, 2], [2, 1]]
        yield [["a0", "a1"], [], ["c0"]], [[0, 1, 1], [0, 0, 0], [1, 0, 0]]
        yield [["a0"], ["b0", "b1"], ["c0"]], [[0, 1, 0], [0, 2, 0], [0, 1, 0]]
        yield [["a0", "a1"]], [[2]]
        yield [[], []], [[0, 0], [0, 0]]
        for _ in range(20):
            P = rng.randrange(2, 5)
            counts = [[rng.randrange(0, 4) for _ in range(P)] for _ in range(P)]
            rows = [[f"{'abcd'[r]}{i}" for i in range(sum(own))] for r, own in enumerate(counts)]
            yield rows, counts

    def expected(self, *args):
        return all_to_all_naive(*args)

    def describe(self, rows, counts):
        return f"rows {rows}, counts {counts}"

    def hint(self, got, rows, counts):
        if len(got) > 1 and all(own is got[0] for own in got):
            return "every rank has the very same list: `[[]] * P` is one list, P times"
        if isinstance(got, dict):
            return None
        odd = next((own for own in got if not isinstance(own, list | tuple)), None)
        if odd is not None:
            return f"give a list for each rank, not a {type(odd).__name__}"
        got = [list(own) for own in got]
        if any(isinstance(row, list | tuple) for own in got for row in own):
            return "join the parts: `+=` or `extend`, not `append`"
        if got == [list(own) for own in rows]:
            return "everything stays where it was: rank q gets what the others have for it"
        if len(got) != len(rows):
            return "give one list for each rank"
        if got == _equal_parts(rows, counts):
            return "parts are uneven: counts[r][q] says how long each is"
        if got == _without_own(rows, counts) != self.expected(rows, counts):
            return "a rank's part to itself stays: it is in the result, in its place"
        if sorted(map(str, sum(got, []))) != sorted(map(str, sum(rows, []))):
            return "rows are lost or doubled: counts[r] cuts rank r's rows, part after part"
        if [sorted(own) for own in got] == [sorted(own) for own in self.expected(rows, counts)]:
            return "the right rows, but they must lie in the order of the senders"
        return "rank r's first counts[r][0] rows are for rank 0, the next counts[r][1] for rank 1"
