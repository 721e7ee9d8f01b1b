"""Conditions of deletes and updates that are planned again after a conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidInputError


@pytest.fixture
def table(tmp_path: Path) -> Dataset:
    return write_dataset(pa.table({"i": range(10), "x": [0] * 10}), str(tmp_path / "t"))


def numbers() -> Iterator[int]:
    yield from range(2, 10)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t.delete([("i", "not in", numbers())]), [(i, 7) for i in range(2, 10)]),
        (lambda t: t.delete([("i", "in", numbers())]), [(0, 7), (1, 7)]),
        (
            lambda t: t.update({"x": 1}, [("i", "not in", numbers())]),
            [(0, 1), (1, 1)] + [(i, 7) for i in range(2, 10)],
        ),
    ],
)
def test_iterators_of_values_are_read_once(
    table: Dataset, change: Callable[[Dataset], Dataset], expected: list[tuple[int, int]]
) -> None:
    """Another client changed the rows since the table was opened, so the change is planned
    twice.
    """
    table.update({"x": 7})
    rows_read = change(table).to_table().to_pylist()
    assert sorted((row["i"], row["x"]) for row in rows_read) == expected
    assert rows_read == open_dataset(table.uri).to_table().to_pylist()


@pytest.mark.parametrize("filters", [("i", "==", 5), [5], ["abc"]])
def test_malformed_filters_are_refused(table: Dataset, filters: Any) -> None:
    for change in (table.delete, lambda given: table.update({"x": 1}, given)):
        with pytest.raises(InvalidInputError, match="a filter must be"):
            change(filters)
