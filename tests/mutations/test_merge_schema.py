"""Appends of Arrow data with new columns and new children of structs, in every file version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from lance_spark.mutations.merge_schema import MergeSchema, begin_merging_write
from lance_spark.table.fragments import files

#: Version 0.1 has no columns without values, and hardly any nulls.
VERSIONS = [f"{major}.{minor}" for major, minor in files.WRITABLE if major]


def make(path: Path, version: str) -> None:
    data = pa.table({"id": [1, 2], "st": [{"a": 1}, {"a": 2}]})
    lance.write_dataset(data, str(path), data_storage_version=version)


def append(path: Path, data: pa.Table, **options: Any) -> None:
    job = begin_merging_write(str(path), data.schema, **options)
    writer = job.writer()
    for batch in data.to_batches():
        writer.write(batch)
    job.commit(writer.finish())


@pytest.mark.parametrize("version", VERSIONS)
def test_new_columns(tmp_path: Path, version: str) -> None:
    path = tmp_path / "t"
    make(path, version)
    append(path, pa.table({"l": [["x"], []], "id": [3, 4], "n": [5, None]}))
    append(path, pa.table({"m": [7], "id": [5]}))
    dataset = lance.dataset(str(path))
    dataset.validate()
    assert dataset.version == 3
    read = dataset.to_table(columns=["id", "l", "n", "m"]).to_pydict()
    assert read == {
        "id": [1, 2, 3, 4, 5],
        "l": [None, None, ["x"], [], None] if version > "2.0" else read["l"],
        "n": [None, None, 5, None, None],
        "m": [None, None, None, None, 7],
    }
    assert open_dataset(str(path)).to_table() == dataset.to_table()
    assert [field.id() for field in dataset.lance_schema.fields()] == [0, 1, 3, 5, 6]


@pytest.mark.parametrize("version", VERSIONS)
def test_new_children_of_structs(tmp_path: Path, version: str) -> None:
    path = tmp_path / "t"
    make(path, version)
    data = pa.table({"id": [3], "st": [{"b": {"c": "x"}, "a": 3}]})
    if version < "2.2":
        with pytest.raises(UnsupportedFeatureError, match="'st' cannot get new children"):
            append(path, data)
        return
    append(path, data)
    dataset = lance.dataset(str(path))
    dataset.validate()
    expected = [{"a": 1, "b": None}, {"a": 2, "b": None}, {"a": 3, "b": {"c": "x"}}]
    assert dataset.to_table()["st"].to_pylist() == expected
    assert open_dataset(str(path)).to_table() == dataset.to_table()


def test_required_new_columns_become_nullable(tmp_path: Path) -> None:
    """The existing rows have no value."""
    path = tmp_path / "t"
    make(path, "2.2")
    schema = pa.schema([("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    append(path, pa.table({"id": [3], "n": [1]}, schema=schema))
    assert lance.dataset(str(path)).schema.field("n").nullable


def test_refused_appends(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make(path, "2.2")
    with pytest.raises(SchemaMismatchError, match="'id' is int64"):
        append(path, pa.table({"id": ["x"], "n": [1]}))
    with pytest.raises(InvalidInputError, match="_rowid"):
        append(path, pa.table({"id": [1], "_rowid": [1]}))
    with pytest.raises(InvalidOptionError, match="overwrite"):
        append(path, pa.table({"id": [1]}), mode="overwrite")


def test_a_schema_merge_without_new_columns_is_an_append(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make(path, "2.2")
    job = begin_merging_write(str(path), pa.schema([("id", pa.int64())]))
    assert not isinstance(job.strategy, MergeSchema)
    append(tmp_path / "new", pa.table({"id": [1]}))
    assert lance.dataset(str(tmp_path / "new")).count_rows() == 1
