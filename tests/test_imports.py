"""Imports point one way: a package never imports a package above it, and no modules import in a circle.

Only what runs can be a circle: `Dataset` returns builders and readers that name its type.

docs/explanation/architecture.md has the same order.
"""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: From the top down. A module may import from its own package and from the packages below it.
PACKAGES = [
    "pyspark_lance",
    "lance_spark.spark",
    "lance_spark.inspect",
    "lance_spark.loaders",
    "lance_spark.dataset",
    "lance_spark.mem_wal",
    "lance_spark.mutations",
    "lance_spark.query",
    "lance_spark.namespace",
    "lance_spark.change_feed",
    "lance_spark.indexes",
    "lance_spark.scan",
    "lance_spark.spatial",
    "lance_spark.json",
    "lance_spark.predicates",
    "lance_spark.runner",
    "lance_spark.table",
    "lance_spark.file",
    # The form of values in files. Functions of JSON, which take conditions, are above.
    "lance_spark.json.jsonb",
    "lance_spark.encoding",
    "lance_spark.storage",
    "lance_spark.proto",
    # They load what they name when it is first needed.
    "lance_spark.indexes.registry",
    "lance_spark.subjects",
    "lance_spark.arguments",
    "lance_spark.progress",
    "lance_spark.keywords",
    "lance_spark.errors",
    "lance_spark.last_used",
    "lance_spark.turns",
    "lance_spark._forks",
    "lance_spark._version",
]
MODULES = sorted(
    path
    for package in ("lance_spark", "pyspark_lance")
    for path in (ROOT / package).rglob("*.py")
    if not path.name.endswith("_pb2.py")
)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path): path for path in MODULES}


def level_of(name: str) -> int | None:
    levels = [
        level
        for level, package in enumerate(PACKAGES)
        if name == package or name.startswith(package + ".")
    ]
    return max(levels, key=lambda level: len(PACKAGES[level]), default=None)


@cache
def imported(path: Path, *, for_types: bool = True) -> tuple[str, ...]:
    """Return the full names that a module imports, also inside functions, or only for types."""
    names: list[str] = []
    tree = ast.parse(path.read_text())
    if not for_types:
        tree = _Executed().visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            module = node.module or ""
            names += [f"{module}.{alias.name}" for alias in node.names]
    return tuple(names)


class _Executed(ast.NodeTransformer):
    """Removes what only type checkers read."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse
        return self.generic_visit(node)


def module_of(name: str) -> str | None:
    """Return the module of this project that an imported name belongs to."""
    while name and name not in NAMES:
        name = name.rpartition(".")[0]
    return name or None


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_down(path: Path) -> None:
    level = level_of(module_name(path))
    for name in imported(path):
        assert name.split(".")[0] != "lance", f"{path} imports the oracle"
        if name.split(".")[0] == "pyspark":
            assert level in (0, 1), f"{path} imports pyspark outside lance_spark.spark"
        target = level_of(name)
        if level is not None and target is not None:
            assert target >= level, f"{path} imports {name}, which is in a higher package"


def test_no_modules_import_in_a_circle() -> None:
    graph = {
        name: {
            target
            for imp in imported(path, for_types=False)
            if (target := module_of(imp)) not in (None, name)
        }
        for name, path in NAMES.items()
        # The entry point imports its public names on demand.
        if name != "lance_spark"
    }
    for targets in graph.values():
        targets.discard("lance_spark")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import in a circle: {' -> '.join(error.args[1])}")


def test_a_class_name_occurs_once() -> None:
    modules: dict[str, list[str]] = {}
    for module, path in NAMES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                modules.setdefault(node.name, []).append(module)
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}
