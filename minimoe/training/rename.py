"""Rename the identifiers of a Python file, consistently, into other plausible names.

The unit is the word, not the identifier: if `socket` becomes `panel`, then `socket_timeout` becomes
`panel_timeout`, `SocketServer` becomes `PanelServer` and a comment on "the socket" speaks of the
panel. Words that many files share (`get`, `name`, `index`) stay, and so do keywords, builtins and
whatever a file imports, so that a copy still reads like code that someone wrote.
"""

import ast
import builtins
import io
import keyword
import random
import re
import tokenize
from collections import Counter
from dataclasses import dataclass

RESERVED = frozenset(keyword.kwlist) | frozenset(keyword.softkwlist) | frozenset(dir(builtins))
BUILTIN_TYPES = (str, bytes, list, dict, set, tuple, int, float, object, io.TextIOWrapper, Exception)
BUILTIN_ATTRIBUTES = frozenset(name for kind in BUILTIN_TYPES for name in dir(kind))
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|_+")
NAME = re.compile(r"(?<![\\\w])[A-Za-z_]\w*")
COMMON_SHARE = 0.10  # a word in more than this share of files is common and stays


def words_of(name: str) -> list[str]:
    """`maxRetry_count2` -> ['max', 'Retry', '_', 'count', '2']."""
    return WORD.findall(name)


@dataclass
class Edit:
    """Replace source[start:end] by what the maps make of `text`. kind: name, comment, string."""

    start: int
    end: int
    text: str
    kind: str


@dataclass
class Outline:
    """What a renaming needs to know about one file."""

    source: str
    edits: list[Edit]
    names: list[str]  # identifiers this file defines, in order of first use
    taken: frozenset[str]  # every identifier in the file
    shape: str


class Renamer:
    """Renames the files of one library; words and their frequencies come from that library.

    Args:
        files: {path: source}. A file that does not parse is returned unchanged by `rename`.
    """

    def __init__(self, files: dict[str, str]):
        spread, total = _word_counts(files.values())
        limit = max(2, COMMON_SHARE * len(files))
        self.common = {w for w, n in spread.items() if n > limit}
        pool = [w for w in sorted(spread) if w not in self.common and 3 <= len(w) <= 12]
        self.pool = [w for w in pool if total[w] >= 3] or pool
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
        names, words = self._choose(plan, rng)
        flip = rng.random() < 0.5
        text = _apply(plan, names, words, flip)
        if _shape(text) != plan.shape:  # a name inside an f-string's format, say
            text = _apply(plan, names, {}, False, kinds=("name",))
        return text if _shape(text) == plan.shape else plan.source

    def _choose(self, plan: Outline, rng: random.Random) -> tuple[dict[str, str], dict[str, str]]:
        """({name: new name}, {word: new word}) for one copy."""
        share = rng.uniform(0.6, 1.0)
        own = {w.lower(): None for name in plan.names for w in words_of(name) if w.isalpha()}
        words: dict[str, str] = {}
        used = set(own)
        for word in own:
            if len(word) > 2 and word not in self.common and rng.random() < share:
                words[word] = self._fresh(rng, used)
        names, taken = {}, set(plan.taken) | RESERVED
        for name in plan.names:
            new = _rewrite(name, words)
            if new != name and new not in taken and new.isidentifier():
                names[name] = new
                taken.add(new)
        return names, words

    def _fresh(self, rng: random.Random, used: set[str]) -> str:
        """A word not used in this file: mostly the library's own, some clipped or joined."""
        while True:
            word = rng.choices(self.pool, self.weights)[0]
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


def _rewrite(name: str, words: dict[str, str]) -> str:
    return "".join(_like(w, words.get(w.lower())) for w in words_of(name))


def _like(old: str, new: str | None) -> str:
    """`new` in the letter case of `old`."""
    if new is None:
        return old
    if old.isupper() and len(old) > 1:
        return new.upper()
    return new.capitalize() if old[0].isupper() else new


# ---- reading a file


def outline(source: str) -> Outline | None:
    """Names and places to change, or None when the file does not parse."""
    try:
        tree = ast.parse(source)
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return None
    imported = _imported(tree)
    defined, attributes = _defined(tree)
    skip = imported | RESERVED
    names = [n for n in defined | attributes if n not in skip and not n.startswith("__")]
    names = [n for n in names if n not in BUILTIN_ATTRIBUTES]
    edits = _edits(source, tokens, set(attributes), _foreign(tree, imported))
    taken = frozenset(t.string for t in tokens if t.type == tokenize.NAME)
    return Outline(source, edits, names, taken, _shape(source))


def _imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                found.update((alias.name, alias.asname or alias.name))
                found.update(alias.name.split("."))
            found.update((getattr(node, "module", None) or "").split("."))
    return found


def _defined(tree: ast.AST) -> tuple[dict, dict]:
    """(names bound in the file, attributes set in it); dicts, to keep their order."""
    names, attributes = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[node.name] = attributes[node.name] = None
        elif isinstance(node, ast.arg):
            names[node.arg] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = None
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            attributes[node.attr] = None
        if isinstance(node, ast.ClassDef):
            targets = [t for s in node.body if isinstance(s, ast.Assign) for t in s.targets]
            attributes.update((t.id, None) for t in targets if isinstance(t, ast.Name))
    return names, attributes


def _foreign(tree: ast.AST, imported: set[str]) -> set[tuple[int, str]]:
    """(line, name) of attributes and keyword arguments that belong to an import or a builtin."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _root(node) in imported:
            found.add((node.end_lineno, node.attr))
        elif isinstance(node, ast.Call) and _root(node.func) in imported | RESERVED:
            found.update((k.value.lineno, k.arg) for k in node.keywords if k.arg)
    return found


def _root(node: ast.AST) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _edits(source, tokens, attributes, foreign) -> list[Edit]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    middle = getattr(tokenize, "FSTRING_MIDDLE", -1)  # Python 3.12 and later split f-strings
    edits, before = [], ""
    for t in tokens:
        kind = {tokenize.COMMENT: "comment", tokenize.STRING: "string", middle: "middle"}.get(t.type)
        if t.type == tokenize.NAME and (before != "." or t.string in attributes):
            kind = None if (t.start[0], t.string) in foreign else "name"
        if kind:
            start, end = (starts[row - 1] + col for row, col in (t.start, t.end))
            if source[start:end] == t.string:
                edits.append(Edit(start, end, t.string, kind))
        before = t.string
    return edits


def _shape(source: str) -> str:
    """The syntax tree as text, without names and constants."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    return " ".join(type(node).__name__ for node in ast.walk(tree))


# ---- writing a copy


def _apply(plan: Outline, names, words, flip: bool, kinds=("name", "comment", "string", "middle")):
    pieces, at = [], 0
    for edit in plan.edits:
        if edit.kind in kinds:
            pieces += plan.source[at : edit.start], _change(edit, names, words, flip)
            at = edit.end
    return "".join(pieces) + plan.source[at:]


def _change(edit: Edit, names, words, flip: bool) -> str:
    if edit.kind == "name":
        return names.get(edit.text, edit.text)
    prose = words if edit.kind == "comment" or edit.text.lstrip("rRuU")[:3] in PROSE_QUOTES else {}
    text = NAME.sub(lambda m: _in_text(m[0], names, prose), edit.text)
    return _flip_quotes(text) if flip and edit.kind == "string" else text


PROSE_QUOTES = ('"""', "'''")


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
