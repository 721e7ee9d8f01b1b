"""Columns whose values arrive by row address: pylance reads them; bad addresses are refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.fill import commit_columns
from lance_spark.mutations.commits import commit_rows
from lance_spark.mutations.rewrite.column_rewriter import (
    ColumnFile,
    ColumnRewriter,
    changed_columns,
)
from lance_spark.mutations.rows.update import UpdateResult, update_operation
from lance_spark.table.fragments import files
from lance_spark.table.manifest.manifest import max_field_id
from lance_spark.table.open import OpenTable, open_table

#: Version 0.1 has no columns without values, and hardly any nulls.
VERSIONS = [f"{major}.{minor}" for major, minor in files.WRITABLE if major]
ADDED = pa.schema(
    [
        pa.field("twice", pa.int64()),
        pa.field("vector", pa.list_(pa.float32(), 4)),
        pa.field("words", pa.list_(pa.string())),
    ]
)


def make(path: Path, count: int = 23, rows: int = 7, **options: Any) -> lance.LanceDataset:
    ids = np.arange(count)
    table = pa.table(
        {
            "id": pa.array(ids),
            "st": pa.array([{"a": int(i), "b": f"b{i}"} for i in ids]),
            "text": pa.array([None if i % 5 == 2 else f"t{i}" for i in ids]),
        }
    )
    return lance.write_dataset(table, str(path), max_rows_per_file=rows, **options)


def added(ids: pa.Array) -> pa.RecordBatch:
    """The new columns of some rows; the middle one has nulls."""
    numbers = ids.to_numpy()
    vectors = [None if i % 4 == 1 else [float(i)] * 4 for i in numbers.tolist()]
    words = [[f"w{i}"] * (i % 3) for i in numbers.tolist()]
    return pa.RecordBatch.from_arrays(
        [pc.multiply(ids, 2), pa.array(vectors, ADDED.field(1).type), pa.array(words)], schema=ADDED
    )


def numbered(table: OpenTable, schema: pa.Schema) -> Schema:
    return Schema.from_arrow(schema, max_field_id(table.manifest.to_proto()) + 1)


def patch_new(
    table: OpenTable, rows: pa.Table, cuts: list[int], tag: bytes = b""
) -> list[ColumnFile]:
    patch = ColumnRewriter(table, numbered(table, ADDED), target="new", tag=tag)
    edges = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    for start, stop in pairwise(edges):
        piece = rows.slice(start, stop - start).combine_chunks()
        ids = piece["id"].chunk(0)
        patch.put(piece["_rowaddr"].to_numpy(), added(ids))
    return patch.finish()


def commit_new(table: OpenTable, patched: list[ColumnFile]) -> None:
    schema = numbered(table, ADDED)
    commit_columns(
        table,
        patched,
        [*table.manifest.to_proto().fields, *schema.to_protos()],
        preserves_nullability=True,
    )


def addressed(path: Path) -> pa.Table:
    return lance.dataset(str(path)).to_table(with_row_address=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_new_columns(tmp_path: Path, version: str) -> None:
    path = tmp_path / "t"
    dataset = make(path, data_storage_version=version, enable_stable_row_ids=True)
    # The first, last and middle rows of fragments, and the first five rows of one fragment.
    dataset.delete("id in (0, 6, 10, 14, 15, 16, 17, 18, 22)")
    rows = addressed(path)
    before = {file.name for file in (path / "data").iterdir()}
    table = open_table(str(path))
    patched = patch_new(table, rows, [3, 4, 9], tag=b"abcdef")
    assert [patch.fragment_id for patch in patched] == [0, 1, 2, 3]
    assert all(patch.complete for patch in patched)
    commit_new(table, patched)
    now = lance.dataset(str(path))
    now.validate()
    expected = pa.Table.from_batches([added(rows["id"].combine_chunks())])
    if version == "2.0":
        # In such files vectors are never null.
        expected = expected.select(["twice", "words"])
    assert now.to_table(columns=expected.schema.names) == expected
    assert now.to_table(columns=["id"])["id"] == rows["id"]
    new = {file.name for file in (path / "data").iterdir()} - before
    assert len(new) == 4
    assert all(name.endswith(b"abcdef".hex() + ".lance") for name in new)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    gone=st.sets(st.integers(0, 22), max_size=20),
    cuts=st.lists(st.integers(1, 22), max_size=6),
    chosen=st.sets(st.integers(0, 22), min_size=1),
)
def test_any_rows_in_any_batches(gone: set[int], cuts: list[int], chosen: set[int]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        dataset = make(path)
        if gone:
            dataset.delete(f"id in ({', '.join(map(str, gone))})")
        rows = addressed(path)
        table = open_table(str(path))
        commit_new(table, patch_new(table, rows, cuts))
        now = lance.dataset(str(path))
        now.validate()
        expected = pa.Table.from_batches([added(rows["id"].combine_chunks())])
        assert now.to_table(columns=ADDED.names) == expected
        # New values for some rows, beside values of other columns.
        table = open_table(str(path))
        some = rows.filter(pc.is_in(rows["id"], pa.array(sorted(chosen))))
        if len(some):
            replace_some(table, some, cuts)
        now = lance.dataset(str(path))
        now.validate()
        ids = rows["id"].to_pylist()
        words = now.to_table(columns=["id", "twice", "words"])
        with_words = [
            None if value is None else i
            for i, value in zip(ids, words["words"].to_pylist(), strict=True)
        ]
        assert with_words == [None if i in chosen else i for i in ids]
        assert words["twice"].to_pylist() == [
            -i if i in chosen else 2 * i for i in rows["id"].to_pylist()
        ]


def replace_some(table: OpenTable, some: pa.Table, cuts: list[int]) -> None:
    """Set words to null and twice to the number's opposite."""
    fields = tuple(field for field in table.schema.fields if field.name in ("words", "twice"))
    patch = ColumnRewriter(table, Schema(fields), target="old")
    edges = sorted({0, len(some), *(min(cut, len(some)) for cut in cuts)})
    for start, stop in pairwise(edges):
        piece = some.slice(start, stop - start).combine_chunks()
        patch.put(
            piece["_rowaddr"].to_numpy(),
            pa.record_batch(
                {
                    "words": pa.nulls(len(piece), pa.list_(pa.string())),
                    "twice": pc.negate(piece["id"].chunk(0)),
                }
            ),
        )
    columns = changed_columns(table, patch.finish())
    assert sum(column.num_rows for column in columns) == len(some)
    operation = update_operation(table, [UpdateResult(columns=tuple(columns))], (), "columns")
    commit_rows(table, operation)


@pytest.mark.parametrize("version", VERSIONS)
def test_new_values_of_existing_columns(tmp_path: Path, version: str) -> None:
    """Structs too. With stable row ids, only changed rows have the new version."""
    path = tmp_path / "t"
    dataset = make(path, data_storage_version=version, enable_stable_row_ids=True)
    dataset.delete("id in (3, 9)")
    rows = addressed(path)
    table = open_table(str(path))
    fields = tuple(field for field in table.schema.fields if field.name != "id")
    patch = ColumnRewriter(table, Schema(fields), target="old")
    some = rows.filter(pc.is_in(rows["id"], pa.array([1, 2, 8, 13])))
    patch.put(
        some["_rowaddr"].to_numpy(),
        pa.record_batch(
            {
                "text": some["text"].combine_chunks().fill_null("new"),
                "st": pa.array([{"a": -i, "b": "new"} for i in some["id"].to_pylist()]),
            }
        ),
    )
    patched = patch.finish()
    assert [patch.fragment_id for patch in patched] == [0, 1]
    assert not any(patch.complete for patch in patched)
    columns = changed_columns(table, patched)
    operation = update_operation(table, [UpdateResult(columns=tuple(columns))], (), "columns")
    manifest = commit_rows(table, operation)
    now = lance.dataset(str(path))
    now.validate()
    changed = {1, 2, 8, 13}
    expected = []
    for row in rows.drop_columns(["_rowaddr"]).to_pylist():
        if row["id"] in changed:
            row |= {"st": {"a": -row["id"], "b": "new"}, "text": row["text"] or "new"}
        expected.append(row)
    assert now.to_table().to_pylist() == expected
    updated = now.to_table(columns=["id", "_row_last_updated_at_version"]).to_pylist()
    newer = {
        row["id"] for row in updated if row["_row_last_updated_at_version"] == manifest.version
    }
    assert newer == changed


def test_rows_without_a_value(tmp_path: Path) -> None:
    """The file has null for these rows, and is not complete."""
    path = tmp_path / "t"
    make(path)
    rows = addressed(path)
    table = open_table(str(path))
    missing = [3, 13, 14]
    patched = patch_new(table, rows.filter(pc.invert(pc.is_in(rows["id"], pa.array(missing)))), [])
    assert [patch.complete for patch in patched] == [False, False, False, True]
    commit_new(table, patched)
    twice = lance.dataset(str(path)).to_table(columns=["twice"])["twice"].to_pylist()
    assert twice == [None if i in missing else 2 * i for i in range(23)]


def put_all(patch: ColumnRewriter, pieces: list[list[int]], names: list[str]) -> None:
    for piece in pieces:
        values = pa.RecordBatch.from_arrays([pa.array(piece, pa.int64())], names=names)
        patch.put(np.array(piece, np.uint64), values)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    ("addresses", "message"),
    [
        ([0, 1, 1], "row 1 of fragment 0 .* occurs twice"),
        ([0, 2, 1], "row 1 of fragment 0 .* is out of order"),
        ([0, 1 << 32, 1], "fragment 0 occur again"),
        ([0, 9 << 32], "no fragment 9"),
        ([0, 7], "row 7 of fragment 0 .* out of range: the fragment has 7 rows"),
        ([0, 5], r"row 5 of fragment 0 \(_rowaddr 5\) is deleted"),
    ],
)
def test_invalid_addresses(tmp_path: Path, old: bool, addresses: list[int], message: str) -> None:
    path = tmp_path / "t"
    make(path).delete("id = 5")
    before = {file.name for file in (path / "data").iterdir()}
    table = open_table(str(path))
    schema = (
        Schema(table.schema.fields[:1]) if old else numbered(table, pa.schema([("n", pa.int64())]))
    )
    for pieces in ([addresses], [[address] for address in addresses]):
        patch = ColumnRewriter(table, schema, target="old" if old else "new")
        with pytest.raises(InvalidInputError, match=message):
            put_all(patch, pieces, schema.names)
        patch.abort()
        assert {file.name for file in (path / "data").iterdir()} == before


def test_columns_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make(path)
    before = {file.name for file in (path / "data").iterdir()}
    table = open_table(str(path))
    schema = numbered(table, pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    patch = ColumnRewriter(table, schema, target="new")
    patch.put(np.array([0], np.uint64), pa.record_batch({"n": pa.array([1])}))
    with pytest.raises(SchemaMismatchError):
        patch.put(np.array([1], np.uint64), pa.record_batch({"n": pa.array(["x"])}))
    with pytest.raises(InvalidInputError, match="null"):
        patch.put(np.array([1], np.uint64), pa.record_batch({"n": pa.nulls(1, pa.int64())}))
    with pytest.raises(InvalidInputError, match="2 addresses for 1 rows"):
        patch.put(np.array([1, 2], np.uint64), pa.record_batch({"n": pa.array([1])}))
    patch.abort()
    assert {file.name for file in (path / "data").iterdir()} == before


def test_two_results_of_one_fragment(tmp_path: Path) -> None:
    path = tmp_path / "t"
    make(path)
    table = open_table(str(path))
    patch = ColumnRewriter(table, Schema(table.schema.fields[:1]), target="old")
    patch.put(np.array([2], np.uint64), pa.record_batch({"id": pa.array([1])}))
    (column_file,) = patch.finish()
    with pytest.raises(InvalidInputError, match="fragment 0"):
        changed_columns(table, [column_file, column_file])
