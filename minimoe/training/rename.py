"""Rename the identifiers of a Python file, consistently, into other plausible names.

The unit is the word, not the identifier: if `socket` becomes `panel`, then `socket_timeout` becomes
`panel_timeout`, `SocketServer` becomes `PanelServer` and a comment on "the socket" speaks of the
panel. Words that many files share (`get`, `name`, `index`) stay, and so do keywords, builtins and
whatever a file imports, so that a copy still reads like code that someone wrote.
"""

import random
import re
from collections import Counter

from minimoe.training.outline import RESERVED, Outline, Place, outline, shape

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|_+|[^\W\d_a-zA-Z]+")
NAME = re.compile(r"(?<![\\\w])[A-Za-z_]\w*")
COMMON_SHARE = 0.10  # a word in more than this share of files is common and stays
PROSE_QUOTES = ('"""', "'''")


def words_of(name: str) -> list[str]:
    """`maxRetry_count2` -> ['max', 'Retry', '_', 'count', '2']."""
    return WORD.findall(name)


class Renamer:
    """Renames the files of one library; words and their frequencies come from that library.

    Args:
        files: {path: source}. `rename` returns a file that does not parse unchanged.
    """

    def __init__(self, files: dict[str, str]):
        spread, total = _word_counts(files.values())
        limit = max(2, COMMON_SHARE * len(files))
        self.common = {w for w, n in spread.items() if n > limit}
        pool = [w for w in sorted(spread) if w not in self.common and 3 <= len(w) <= 12]
        self.pool = [w for w in pool if total[w] >= 3] or pool or ["other"]
        self.weights = [total[w] ** 0.5 for w in self.pool]
        self.files = files
        self._outlines: dict[str, Outline | None] = {}

    def rename(self, path: str, rng: random.Random) -> str:
        """One copy of the file with other names; its syntax tree keeps its shape."""
        if path not in self._outlines:
            self._outlines[path] = outline(self.files[path])
        plan = self._outlines[path]
        if plan is None:
            return self.files[path]
        words = self._choose_words(plan, rng)
        names = _choose_names(plan, words)
        text = _apply(plan, names, words, flip=rng.random() < 0.5)
        if shape(text) != plan.shape:  # a changed word in the format part of an f-string, say
            text = _apply(plan, names, words, flip=False, keep=("string", "string part"))
        return text if shape(text) == plan.shape else plan.source

    def _choose_words(self, plan: Outline, rng: random.Random) -> dict[str, str]:
        """{word: other word} for 60 to 100 % of the rare words in the file's own names."""
        share = rng.uniform(0.6, 1.0)
        own = {w.lower(): None for name in plan.names for w in words_of(name) if w.isalpha()}
        used, chosen = set(own), {}
        for word in sorted(own, key=len):  # a stem before its plural
            stem = word.removesuffix("s")
            if stem in chosen:
                chosen[word] = chosen[stem] + "s"
            elif len(word) > 2 and word not in self.common and rng.random() < share:
                chosen[word] = self._fresh(len(word), rng, used)
        return {w + "s": new + "s" for w, new in chosen.items()} | chosen

    def _fresh(self, length: int, rng: random.Random, used: set[str]) -> str:
        """A word new to this file, near `length`: the library's own, some clipped or joined."""
        while True:
            drawn = rng.choices(self.pool, self.weights, k=3)
            word = min(drawn, key=lambda w: abs(len(w) - length))
            kind = rng.random()
            if kind < 0.08 and len(word) > 5:
                word = word[: rng.randint(3, 5)]
            elif kind < 0.16 and len(word) < 7:
                word += rng.choice(self.pool)[:4]
            if word not in used and word not in RESERVED:
                used.add(word)
                return word


def _word_counts(sources) -> tuple[Counter, Counter]:
    """(files that hold the word, its occurrences), over identifiers and prose alike."""
    spread, total = Counter(), Counter()
    for source in sources:
        counts = Counter()
        for name, n in Counter(re.findall(r"[A-Za-z_]+", source)).items():
            for word in words_of(name):
                if word.isalpha():
                    counts[word.lower()] += n
        spread.update(counts.keys())
        total.update(counts)
    return spread, total


def _choose_names(plan: Outline, words: dict[str, str]) -> dict[str, str]:
    """{name: new name}; two names never become one."""
    names, taken = {}, plan.taken | RESERVED
    for name in plan.names:
        new = "".join(_like(w, words.get(w.lower())) for w in words_of(name))
        if new != name and new not in taken and new.isidentifier():
            names[name] = new
            taken |= {new}
    return names


def _like(old: str, new: str | None) -> str:
    """`new` in the letter case of `old`."""
    if new is None:
        return old
    if old.isupper() and len(old) > 1:
        return new.upper()
    return new.capitalize() if old[0].isupper() else new


def _apply(plan: Outline, names, words, flip: bool, keep: tuple[str, ...] = ()) -> str:
    """The source with every place changed; lines aligned to a bracket move along with it."""
    written, column, at, columns = [], 0, 0, {}
    for place in plan.places:
        text = plan.source[at : place.start]
        column = _advance(column, text)
        if place.kind == "anchor":
            columns[place.start] = column
        new = place.text if place.kind in keep else _change(place, names, words, flip, columns)
        written += text, new
        column = _advance(column, new)
        at = place.end
    return "".join(written) + plan.source[at:]


def _advance(column: int, text: str) -> int:
    line = text.rfind("\n")
    return column + len(text) if line < 0 else len(text) - line - 1


def _change(place: Place, names, words, flip: bool, columns: dict[int, int]) -> str:
    if place.kind == "name":
        return names.get(place.text, place.text)
    if place.kind == "indent":
        return " " * columns[place.to]
    if place.kind == "anchor":
        return ""
    prose = place.kind == "comment" or place.text.lstrip("rRuU")[:3] in PROSE_QUOTES
    text = NAME.sub(lambda m: _in_text(m[0], names, words if prose else {}), place.text)
    return _flip_quotes(text) if flip and place.kind == "string" else text


def _in_text(name: str, names, words) -> str:
    if len(name) > 2 and name in names:
        return names[name]
    return _like(name, words.get(name.lower())) if words else name


def _flip_quotes(text: str) -> str:
    """'x' -> "x" and back, where nothing inside has to be escaped."""
    old, new = ("'", '"') if text.endswith("'") else ('"', "'")
    head, _, body = text.partition(old)
    simple = not set(text) & {"\\", new} and text.count(old) == 2 and "f" not in head.lower()
    return head + new + body[:-1] + new if simple else text
