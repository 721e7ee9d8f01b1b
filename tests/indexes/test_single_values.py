"""The only value of a column in each fragment: pylance's zone maps, and the rows as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark import open_dataset
from lance_spark.indexes.aggregates import single_values
from lance_spark.table.indexes.sections import parse_section


def values_by_index(path: Path, name: str) -> list[Any] | None:
    """Return the value of each fragment with live rows, after a comparison with the rows."""
    dataset = open_dataset(str(path))
    table = dataset._table
    (field,) = [field for field in table.schema.fields if field.name == name]
    section = parse_section(table.manifest.index_section, name)
    values = single_values(table, section, dataset.fragments, field)
    if values is None:
        return None
    result = []
    for fragment, value in zip(dataset.fragments, values.to_pylist(), strict=True):
        if fragment.num_rows:
            rows = lance.dataset(path).get_fragment(fragment.id).to_table(columns=[name])
            assert rows.column(0).unique().to_pylist() == [value]
            result.append(value)
    return result


def write(path: Path, fragments: list[pa.Array], rows_per_zone: int | None = 4) -> None:
    for values in fragments:
        rows = pa.table({"id": np.arange(len(values)), "value": values})
        lance.write_dataset(rows, path, mode="append")
    if rows_per_zone is not None:
        options = {"rows_per_zone": rows_per_zone}
        lance.dataset(path).create_scalar_index("value", "ZONEMAP", **options)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (["b"] * 10, ["a", None, "b"]),
        (["b"] * 9 + ["c"], None),
        (["b"] * 9 + [None], None),
        (["b" * 500] * 10, ["a", None, "b" * 500]),
        (["b" * 500] * 9 + ["b" * 499 + "c"], None),
        ([None] * 10, ["a", None, None]),
    ],
)
def test_strings(tmp_path: Path, last: list[str | None], expected: list[Any] | None) -> None:
    first = [["a"] * 10, [None] * 10]
    write(tmp_path, [pa.array(values, pa.string()) for values in (*first, last)])
    assert values_by_index(tmp_path, "value") == expected


@pytest.mark.parametrize("values", [[1.0, np.nan], [np.nan]])
def test_nan(tmp_path: Path, values: list[float]) -> None:
    write(tmp_path, [pa.array([1.0] * 8), pa.array(values * 8)])
    assert values_by_index(tmp_path, "value") is None


def test_without_a_zone_map(tmp_path: Path) -> None:
    write(tmp_path, [pa.array([1] * 4)], rows_per_zone=None)
    assert values_by_index(tmp_path, "value") is None
    lance.dataset(tmp_path).create_scalar_index("value", "BTREE")
    assert values_by_index(tmp_path, "value") is None


def test_deleted_rows(tmp_path: Path) -> None:
    write(tmp_path, [pa.array([1] * 8), pa.array([2] * 8), pa.array([3, 4] * 4)])
    assert values_by_index(tmp_path, "value") is None
    lance.dataset(tmp_path).delete("value = 3")
    # The zone map still has the deleted rows.
    assert values_by_index(tmp_path, "value") is None
    lance.dataset(tmp_path).delete("value = 4 or value = 1")
    assert values_by_index(tmp_path, "value") == [2]
