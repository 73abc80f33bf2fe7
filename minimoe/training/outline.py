"""Read a Python file for renaming: the names it defines, and the places where a copy may differ."""

import ast
import builtins
import io
import keyword
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

RESERVED = frozenset(keyword.kwlist) | frozenset(keyword.softkwlist) | frozenset(dir(builtins))
_BUILTIN_TYPES = (str, bytes, list, dict, set, tuple, int, float, object, io.TextIOWrapper, OSError)
BUILTIN_ATTRIBUTES = frozenset(name for kind in _BUILTIN_TYPES for name in dir(kind))
_TEXT_KINDS = {
    tokenize.COMMENT: "comment",
    tokenize.STRING: "string",
    getattr(tokenize, "FSTRING_MIDDLE", -1): "string part",  # f-strings, Python 3.12 and later
}
_NO_ANCHOR = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)


@dataclass(frozen=True)
class Place:
    """A piece source[start:end] that a copy may change.

    kind: name, comment, string, string part; or `anchor` (an empty place just after an opening
    bracket) and `indent` (white space of a later line that is aligned to the anchor at `to`).
    """

    start: int
    end: int
    kind: str
    text: str
    to: int = -1


@dataclass(frozen=True)
class Outline:
    """What a renaming needs to know about one file."""

    source: str
    places: list[Place]
    names: list[str]  # identifiers this file defines
    taken: frozenset[str]  # every identifier in the file
    shape: str


def outline(source: str) -> Outline | None:
    """The outline of a file, or None when it does not parse."""
    try:
        tree = ast.parse(source)
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (SyntaxError, ValueError, tokenize.TokenError):
        return None
    imported = _imported(tree)
    defined, attributes = _defined(tree)
    kept = imported | RESERVED | BUILTIN_ATTRIBUTES
    names = [n for n in defined | attributes if n not in kept and not n.startswith("__")]
    start_of = _offsets(source)
    places = [*_names(tokens, start_of, attributes, _foreign(tree, imported))]
    places += [*_texts(tokens, start_of), *_alignment(tokens, start_of)]
    places = [p for p in places if source[p.start : p.end] == p.text]
    places.sort(key=lambda p: (p.start, p.end))
    taken = frozenset(t.string for t in tokens if t.type == tokenize.NAME)
    return Outline(source, places, names, taken, shape(source))


def shape(source: str) -> str:
    """The syntax tree without names and constants; empty when the text does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    return " ".join(type(node).__name__ for node in ast.walk(tree))


def _imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                found.update((alias.name, alias.asname or alias.name))
                found.update(alias.name.split("."))
            found.update((getattr(node, "module", None) or "").split("."))
    return found


def _defined(tree: ast.AST) -> tuple[dict[str, None], dict[str, None]]:
    """(names bound in the file, attributes set in it), in order of appearance."""
    names: dict[str, None] = {}
    attributes: dict[str, None] = {}
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
            found.update((k.lineno, k.arg) for k in node.keywords if k.arg)
    return found


def _root(node: ast.AST) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _offsets(source: str):
    """A function from a token's (row, column) to its offset in the source."""
    starts = [0]
    for line in io.StringIO(source):
        starts.append(starts[-1] + len(line))
    return lambda position: starts[position[0] - 1] + position[1]


def _names(tokens, start_of, attributes, foreign) -> Iterator[Place]:
    before = ""
    for t in tokens:
        own = before != "." or t.string in attributes
        if t.type == tokenize.NAME and own and (t.start[0], t.string) not in foreign:
            yield Place(start_of(t.start), start_of(t.end), "name", t.string)
        before = t.string


def _texts(tokens, start_of) -> Iterator[Place]:
    for t in tokens:
        if t.type in _TEXT_KINDS:
            yield Place(start_of(t.start), start_of(t.end), _TEXT_KINDS[t.type], t.string)


def _alignment(tokens, start_of) -> Iterator[Place]:
    """Anchors after opening brackets, and the indentation of the lines aligned to them."""
    open_brackets: list[tuple[int, int] | None] = []  # (column, offset) of what follows the bracket
    row = 0
    for t, following in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        anchor = open_brackets[-1] if open_brackets else None
        if t.start[0] != row and anchor and t.start[1] == anchor[0] and t.string.strip():
            indent = start_of((t.start[0], 0))
            yield Place(indent, start_of(t.start), "indent", " " * t.start[1], to=anchor[1])
        row = t.end[0]
        if t.string in "([{" and t.type == tokenize.OP:
            hanging = following.type in _NO_ANCHOR or following.start[0] != t.end[0]
            open_brackets.append(
                None if hanging else (following.start[1], start_of(following.start))
            )
            if not hanging:
                yield Place(start_of(following.start), start_of(following.start), "anchor", "")
        elif t.string in ")]}" and t.type == tokenize.OP and open_brackets:
            open_brackets.pop()
