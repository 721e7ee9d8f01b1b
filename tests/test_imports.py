"""The doors of the house open one way: a lower room never imports a higher one (docs/explanation/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = [
    "pyspark_lance",
    "lance_spark.spark",
    "lance_spark.write",
    "lance_spark.inspect",
    "lance_spark.dataset",
    "lance_spark.changes",
    "lance_spark.index",
    "lance_spark.scan",
    "lance_spark.table",
    "lance_spark.file",
    "lance_spark.encoding",
    "lance_spark.storage",
    "lance_spark.proto",
    "lance_spark.arguments",
    "lance_spark.errors",
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


def room_of(name: str) -> int | None:
    for level, room in enumerate(ROOMS):
        if name == room or name.startswith(room + "."):
            return level
    return None


def imported(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            module = node.module or ""
            names += [f"{module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_down(path: Path) -> None:
    own = room_of(module_name(path))
    for name in imported(path):
        assert name.split(".")[0] != "lance", f"{path} imports the oracle"
        if name.split(".")[0] == "pyspark":
            assert own in (0, 1), f"{path} imports pyspark outside lance_spark.spark"
        target = room_of(name)
        if own is not None and target is not None:
            assert target >= own, f"{path} imports {name}, which is a higher room"
