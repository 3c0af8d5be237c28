"""Imports go one way: from what adapts and reports to what it is built of, never back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import acclimate

SOURCE = Path(acclimate.__file__).parent

ORDER = (
    (
        "errors",
        "_version",
        "_lazy",
        "text",
        "reading",
        "files",
        "lock",
        "registry",
        "table",
        "checkpoint",
    ),
    ("theory",),
    ("data",),
    ("metrics",),
    ("models",),
    ("parallel", "acceleration"),
    ("parts",),
    ("recipe",),
    ("learner",),
    ("methods",),
    ("presets",),
    ("guard",),
    ("callbacks",),
    ("result",),
    ("exporting",),
    ("adaptation",),
    ("stream",),
    ("serve",),
    ("lightning",),
    ("demo",),
    ("pretraining",),
    ("bench",),
    ("paper",),
    ("report",),
    ("cli", "__main__"),
)
"""The folders and modules of the package; each imports only from its own row and those above.

``checkpoint`` (tensors in files) needs nothing but ``files``; models are written with it.
"""

Graph = Mapping[str, set[str]]


def modules_of(root: Path) -> dict[str, Path]:
    """Every module of the package, by its full name."""
    found = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def named_by(name: str, path: Path) -> Iterator[str]:
    """What a module names to import: anywhere in it, for type checkers only, and in strings."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: -node.level + 1 or None] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and _imports(node.func):
            yield from _text(node.args[0])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"^(acclimate(?:\.\w+)+):\w+$", node.value)


def _imports(function: ast.expr) -> bool:
    named = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return named in ("import_module", "__import__")


def _text(argument: ast.expr) -> Iterator[str]:
    """The text of a string; of one with something to fill in, what comes before that."""
    first = argument.values[0] if isinstance(argument, ast.JoinedStr) else argument
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        yield f"{first.value}*" if first is not argument else first.value


def import_graph(modules: Mapping[str, Path]) -> Graph:
    """What each module imports of the others.

    The package's own ``__init__`` is a door to all of it, and imports nothing before it is used.
    """
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        graph[name] = set()
        for target in named_by(name, path):
            if target == f"{name.rpartition('.')[0]}.*":  # one of its neighbours, by its name
                continue
            while target and target not in modules:
                target = target.rpartition(".")[0]
            if target not in ("", name, "acclimate"):
                graph[name].add(target)
    graph.pop("acclimate")
    return graph


def cycles(graph: Graph) -> list[list[str]]:
    """The modules that import one another, directly or around a corner (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            members = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(members) > 1:
                found.append(sorted(members))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def place(name: str) -> int:
    """The row of a module in ORDER."""
    top = name.split(".")[1]
    rows = [number for number, row in enumerate(ORDER) if top in row]
    assert rows, f"{name}: give {top!r} a place in ORDER"
    return rows[0]


def is_private(name: str, *, to: str) -> bool:
    """Whether a module is another package's own business."""
    package, _, last = name.rpartition(".")
    return last.startswith("_") and not f"{to}.".startswith(f"{package}.")


@pytest.fixture(scope="module")
def graph() -> Graph:
    """The whole package's."""
    return import_graph(modules_of(SOURCE))


def wrong_way(graph: Graph) -> set[tuple[str, str]]:
    """Imports of what comes later in ORDER."""
    return {
        (name, target)
        for name, targets in graph.items()
        for target in targets
        if place(target) > place(name)
    }


def test_imports_between_folders_go_one_way(graph: Graph) -> None:
    assert not wrong_way(graph)


def test_no_modules_import_one_another(graph: Graph) -> None:
    assert not cycles(graph)


def test_modules_with_an_underscore_stay_in_their_package(graph: Graph) -> None:
    assert not {
        (name, target)
        for name, targets in graph.items()
        for target in targets
        if is_private(target, to=name)
    }


def test_cycles_are_found_around_a_corner() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str]()}
    assert cycles(graph) == [["a", "b", "c"]]


def test_imports_are_found_wherever_they_hide(tmp_path: Path) -> None:
    file = tmp_path / "some.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from acclimate.a import A\n"
        "def late():\n    import acclimate.b\n"
        "    importlib.import_module('acclimate.c')\n"
        "    import_module(f'acclimate.d.{name}')\n"
        "MAKER = 'acclimate.e:make'\n"
        "from . import f\n"
    )
    found = set(named_by("acclimate.some", file)) - {"typing.TYPE_CHECKING"}
    assert found == {f"acclimate.{each}" for each in ("a.A", "b", "c", "d.*", "e", "f")}
