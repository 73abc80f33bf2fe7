"""Put the functions of a Python file into another order, so that their sequence teaches nothing."""

import ast
import random

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def shuffle_definitions(source: str, rng: random.Random) -> str:
    """The same text with neighbouring functions, methods and classes in another order.

    Names with double underscores keep their places, definitions of one name stay together (a
    property and its setter), and comments above a definition move with it. A text that does not
    parse comes back unchanged.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    lines = source.splitlines(keepends=True)
    if lines != source.split("\n") and len(lines) != source.count("\n") + (source[-1:] != "\n"):
        return source  # form feeds and the like: line numbers would not agree
    return "".join(_write(tree.body, 0, len(lines), lines, rng))


def _write(body, start: int, end: int, lines: list[str], rng: random.Random) -> list[str]:
    """Lines [start, end) of a block whose statements are `body`, its definitions shuffled."""
    written, at, run = [], start, []
    for node in [*body, None]:
        if isinstance(node, DEFINITIONS) and _alone(node, lines):
            run.append((node.name, _definition(node, at, lines, rng)))
            at = node.end_lineno
            continue
        written += _shuffled(run, rng)
        run = []
        if node is not None:
            written += lines[at : node.end_lineno]
            at = max(at, node.end_lineno)
    return written + lines[at:end]


def _alone(node, lines: list[str]) -> bool:
    """No other statement shares the definition's last line."""
    return len(lines[node.end_lineno - 1].encode()) <= node.end_col_offset + 1


def _definition(node, start: int, lines: list[str], rng: random.Random) -> list[str]:
    if not isinstance(node, ast.ClassDef):
        return lines[start : node.end_lineno]
    first = node.body[0]
    top = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))]) - 1
    if top < node.lineno:  # class A: pass
        return lines[start : node.end_lineno]
    return lines[start:top] + _write(node.body, top, node.end_lineno, lines, rng)


def _shuffled(run: list[tuple[str, list[str]]], rng: random.Random) -> list[str]:
    groups: list[tuple[str, list[str]]] = []
    for name, text in run:
        if groups and groups[-1][0] == name:
            groups[-1] = (name, groups[-1][1] + text)
        else:
            groups.append((name, text))
    free = [i for i, (name, _) in enumerate(groups) if not name.startswith("__")]
    order = rng.sample(free, len(free))
    placed = dict(zip(free, order, strict=True))
    return [line for i in range(len(groups)) for line in groups[placed.get(i, i)][1]]
