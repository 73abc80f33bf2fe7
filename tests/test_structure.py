"""The shape of the package: imports point one way, functions are short, public names explained.

Everything here reads the source as text; nothing is imported, so it is quick and complete.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "minimoe").rglob("*.py"))
MAX_LINES = 40  # of a function, its docstring included
MAX_KERNEL_LINES = 60  # of a GPU program: its parts share registers and cannot be called apart
KERNEL = ("triton.jit", "gluon.jit")

# What each part may import, besides itself and the base.
BASE = {"config", "errors", "checkpoint", "tokenizer"}
ALLOWED = {
    "config": set(),
    "errors": set(),
    "tokenizer": set(),
    "checkpoint": {"model"},
    "ops": set(),
    "model": {"ops"},
    "perf": {"ops"},
    "kvstore": {"ops", "model"},
    "parallel": {"ops", "model"},
    "speculative": {"ops", "model"},
    "engine": {"ops", "model", "perf", "kvstore", "parallel", "speculative"},
}
ALLOWED["training"] = ALLOWED["engine"] | {"engine"}
ALLOWED["bench"] = ALLOWED["training"] | {"training"}
ALLOWED["course"] = ALLOWED["bench"] | {"bench"}


def name_of(path: Path) -> str:
    """`minimoe/ops/rope.py` is `minimoe.ops.rope`; a package goes by its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in MODULES}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def part(name: str) -> str:
    """The part of the package to which a module belongs: `minimoe.ops.rope` is of `ops`."""
    return (name.split(".") + [""])[1]


def imported(path: Path, lazy: bool) -> set[str]:
    """Modules of ours that a file imports; with `lazy`, also inside functions."""
    found = set()
    for node in ast.walk(tree(path)) if lazy else at_import(tree(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: import by the full name, not by dots"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in NAMES else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name in NAMES}


def at_import(node: ast.AST):
    """The nodes that run when a module is imported: function bodies do not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield child
        yield from at_import(child)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path):
    own = part(name_of(path))
    if own in ("", "__main__"):
        return
    allowed = ALLOWED[own] | BASE | {own, ""}
    wrong = {name for name in imported(path, lazy=True) if part(name) not in allowed}
    assert not wrong, f"{own} may import only {sorted(ALLOWED[own])} and the base"


# The one import that closes a circle: a rank runs an `LLM` of its own, in another process.
STARTS_ANOTHER = {("minimoe.engine.rank_engine", "minimoe.engine.llm")}


def test_there_is_no_circle():
    """Imports at the top of files, and those inside functions as well."""
    edges = {name: imported(path, lazy=True) - {name} for name, path in NAMES.items()}
    for one, other in STARTS_ANOTHER:
        edges[one].discard(other)
    while edges:
        free = [name for name, needs in edges.items() if not needs & edges.keys()]
        assert free, f"these import each other, or need some that do: {sorted(edges)}"
        for name in free:
            del edges[name]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_are_short(path):
    found = [node for node in ast.walk(tree(path)) if is_function(node)]
    long = [f.name for f in found if f.end_lineno - f.lineno + 1 > most_lines(f)]
    assert not long, f"over {MAX_LINES} lines: divide them"


def most_lines(function) -> int:
    marks = [ast.unparse(mark) for mark in function.decorator_list]
    kernel = any(mark.startswith(KERNEL) for mark in marks)
    return MAX_KERNEL_LINES if kernel else MAX_LINES


# Methods and functions of a fixed meaning: it is told once, where it is asked for.
VERB = {"add_arguments", "main", "render"}  # minimoe/__main__.py: what the module of a verb has
TOLD = {"forward", "backward"}  # torch: the class says what goes in and comes out


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Every class of the package by its name."""
    found = [node for path in MODULES for node in ast.walk(tree(path))]
    return {node.name: node for node in found if isinstance(node, ast.ClassDef)}


def inherited(owner: ast.ClassDef) -> set[str]:
    """Methods that a class of ours above `owner` documents."""
    found = set()
    for base in owner.bases:
        above = classes().get(getattr(base, "id", ""))
        if above:
            documented = [n.name for n in above.body if is_function(n) and ast.get_docstring(n)]
            found |= set(documented) | inherited(above)
    return found


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def bare(body: list[ast.stmt], owner: ast.ClassDef | None = None):
    """Public classes, functions and methods that no docstring explains."""
    told = TOLD | inherited(owner) if owner else VERB
    for node in body:
        if not is_function(node) and not isinstance(node, ast.ClassDef):
            continue
        if node.name.startswith("_") or node.name in told:
            continue
        if not ast.get_docstring(node):
            yield f"{owner.name}.{node.name}" if owner else node.name
        if isinstance(node, ast.ClassDef):
            yield from bare(node.body, node)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_public_names_are_documented(path):
    if path.stat().st_size:
        assert ast.get_docstring(tree(path)), "the module does not say what it is"
    assert not list(bare(tree(path).body))
