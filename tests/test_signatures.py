"""Signatures of the public API name the keywords that a function takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from lance_spark.keywords import has_keywords
from tests.support.public_surface import MODULES

#: Modules whose names users have, too.
FURTHER = ("lance_spark.dataset.fresh", "lance_spark.namespace", "lance_spark.mem_wal.writer")
#: Functions with keywords that this package does not know, or does not use.
OTHERS = {
    "Dataset.sort_by": "pyarrow",
    "Scanner.to_pandas": "pyarrow",
    "ArrowDataset.count_rows": "pyarrow",
    "ArrowDataset.take": "pyarrow",
    "ArrowDataset.join": "refused",
    "ArrowDataset.join_asof": "refused",
    "ArrowDataset.sort_by": "refused",
    "FreshRows.take": "refused",
    "FreshRows.take_blobs": "refused",
    "FreshRows.take_rows": "refused",
    "FragmentWriteProgress.begin": "pylance",
    "FragmentWriteProgress.complete": "pylance",
    "enable": "options of the catalog",
}


def public_functions() -> Iterator[tuple[str, Any]]:
    for module in map(import_module, (*MODULES, *FURTHER)):
        names = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
        for name in names:
            value = getattr(module, name)
            owner = getattr(value, "__module__", "")
            if not owner.startswith("lance_spark") or (
                module.__name__ in FURTHER and owner != module.__name__
            ):
                continue
            if inspect.isfunction(value):
                yield name, value
            if not inspect.isclass(value):
                continue
            for member, function in inspect.getmembers(value, callable):
                is_python = inspect.isfunction(function) or inspect.ismethod(function)
                if member[0] != "_" and is_python:
                    yield f"{name}.{member}", function


FUNCTIONS = dict(public_functions())


def others_of(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return []
    return [item.name for item in parameters if item.kind is item.VAR_KEYWORD]


def test_signatures_name_the_keywords() -> None:
    assert {"Dataset.head", "DatasetOptimizer.compact_files", "tokenize"} <= FUNCTIONS.keys()
    bare = {name for name, function in FUNCTIONS.items() if others_of(function)}
    stated = {name for name in bare if has_keywords(FUNCTIONS[name])}
    assert bare - stated == OTHERS.keys()
    for name in stated:
        documented = inspect.getdoc(FUNCTIONS[name]) or ""
        has_sections = "\n----" in documented
        assert not has_sections or f"\n**{others_of(FUNCTIONS[name])[0]}\n" in documented, name


@pytest.mark.parametrize(
    ("name", "keyword"),
    [
        ("DatasetOptimizer.compact_files", "max_source_rows"),
        ("DatasetFragment.to_table", "order_by"),
        ("LanceTable.forPath", "branch"),
        ("LanceTable.nearest_join", "nprobes"),
        ("Dataset.create_index_uncommitted", "fragment_ids"),
    ],
)
def test_keywords_that_are_handed_on(name: str, keyword: str) -> None:
    assert keyword in inspect.signature(FUNCTIONS[name]).parameters
