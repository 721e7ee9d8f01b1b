"""Clones by both clients, and reads of their rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

from lance_spark import open_dataset
from lance_spark.table.manifest.codec import decode
from lance_spark.table.paths import BasePath
from tests.table.refs import branch_calls

Clone = Callable[[str, str, Any], Any]


def ours(method: str) -> Clone:
    return lambda path, target, reference: getattr(open_dataset(path), method)(target, reference)


def pylances(method: str) -> Clone:
    return lambda path, target, reference: getattr(lance.dataset(path), method)(target, reference)


SHALLOW = pytest.mark.parametrize("clone", [ours("shallow_clone"), pylances("shallow_clone")])
DEEP = pytest.mark.parametrize("clone", [ours("deep_clone"), pylances("deep_clone")])
BOTH = pytest.mark.parametrize("method", ["shallow_clone", "deep_clone"])


def source_table(tmp_path: Path) -> str:
    """Write the source of branches, and set a configuration in version 5."""
    path = str(branch_calls.source_table(tmp_path))
    lance.dataset(path).update_config({"some": "thing"})
    return path


def read_ids(path: str) -> list[int]:
    """Return the ids of a table; both clients must read the same ids, with and without an index."""
    mine, theirs = open_dataset(path), lance.dataset(path)
    theirs.validate()
    assert mine.version == theirs.version
    assert mine.to_table() == theirs.to_table()
    for item in mine.to_table()["id"].to_pylist():
        assert theirs.to_table(filter=f"id = {item}").num_rows == 1
    return sorted(mine.to_table()["id"].to_pylist())


def first_manifest(path: str) -> Any:
    (file,) = (Path(path) / "_versions").glob("*.manifest")
    return decode(file.read_bytes(), str(file))


def bases(path: str) -> list[BasePath]:
    return [BasePath(0, path + "-f", False, "folder"), BasePath(0, path + "-r", True, "root")]
