"""Long runs of empty lists: a chunk can count 65,535 levels, and each empty list is one."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import UnsupportedTypeError

ROWS = 200_000
VALUES = {
    "bool": pa.array([True, None, False, True]),
    "dictionary of strings": pa.array(["x", None, "y", "x"]).dictionary_encode(),
    "dictionary of numbers": pa.array([5, None, 6, 5]).dictionary_encode(),
    "vectors of bools": pa.array(
        [[True] * 9, None, [False] * 9, [None] * 9], pa.list_(pa.bool_(), 9)
    ),
    "numbers": pa.array([1, None, 3, 4]),
    "strings": pa.array(["a", None, "", "d" * 40]),
}


def sparse(values: pa.Array) -> pa.ListArray:
    """Return lists of which three have values."""
    offsets = np.zeros(ROWS + 1, np.int32)
    offsets[50_000:], offsets[150_000:], offsets[-1] = 1, 3, 4
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def plain(table: pa.Table) -> pa.Table:
    """Return lists without dictionaries: those of pages are joined, in another order."""
    values = table["c"].type.value_type
    if not pa.types.is_dictionary(values):
        return table
    return table.cast(pa.schema({"c": pa.list_(values.value_type)}))


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.parametrize("name", VALUES)
def test_values_between_empty_lists(name: str, version: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    table = pa.table({"c": sparse(VALUES[name])})
    lance_spark.write_dataset(table, path, data_storage_version=version)
    expected = plain(table)
    assert plain(lance.dataset(path).to_table()).equals(expected)
    dataset = lance_spark.open_dataset(path)
    assert plain(dataset.to_table()).equals(expected)
    rows = [0, 49_999, 149_999, ROWS - 1]
    assert plain(dataset.take(rows)).equals(expected.take(rows))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_one_row_of_too_many_lists_is_refused(version: str, tmp_path: Path) -> None:
    """pylance refuses it, too, and names neither the column nor what to do."""
    offsets = pa.array([0, ROWS], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, sparse(VALUES["dictionary of strings"]))
    path = str(tmp_path / "t.lance")
    with pytest.raises(UnsupportedTypeError, match=r"column 'c\.item\.item'.*without a dictionary"):
        lance_spark.write_dataset(pa.table({"c": lists}), path, data_storage_version=version)
