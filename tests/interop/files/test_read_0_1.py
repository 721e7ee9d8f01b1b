"""Tables of version 0.1 as pylance reads them: all types and sizes, random nests, deletions, and
files of added columns.

Version 0.1 stores no nulls, so that what was written is not what is read: pylance is the judge, on
a table that it opened anew. A seed is all it takes to see a failure again: ``random_table(seed)``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import TableNotFoundError, UnsupportedError
from lance_spark.proto import table_pb2
from lance_spark.table.manifest.codec import decode, encode
from tests.support.interop.tables import (
    NESTED,
    SCALARS,
    TABLES,
    VECTORS,
    assert_same,
    build,
    random_table,
)

GROUP = 25

OTHERS: dict[str, pa.DataType] = {
    "bools": pa.list_(pa.bool_(), 3),
    "bools_of_bools": pa.list_(pa.list_(pa.bool_(), 3), 5),
    "list_bool": pa.list_(pa.bool_()),
    "list_null": pa.list_(pa.null()),
    "list_struct_null": pa.list_(pa.struct([("n", pa.null()), ("i", pa.int8())])),
    "lists": pa.list_(pa.large_list(pa.list_(pa.string()))),
    "list_fixed": pa.list_(pa.list_(pa.float32(), 3)),
}
DICTIONARIES = {
    "dict_string": pa.dictionary(pa.int8(), pa.string()),
    "dict_binary": pa.dictionary(pa.uint16(), pa.large_binary()),
    "dict_int": pa.dictionary(pa.int32(), pa.int64()),
    "dict_uint": pa.dictionary(pa.uint64(), pa.uint8()),
}
OTHERS |= {
    "decimal256": pa.decimal256(50, 2),
    "struct_dict": pa.struct([("d", DICTIONARIES["dict_string"]), ("e", DICTIONARIES["dict_int"])]),
    "list_dict": pa.list_(DICTIONARIES["dict_uint"]),
    "list_struct_dict": pa.list_(pa.struct([("d", DICTIONARIES["dict_binary"])])),
}
TYPES = {**SCALARS, **VECTORS, **NESTED, **OTHERS, **DICTIONARIES}


def write(table: pa.Table, path: Path, **options: int) -> lance.LanceDataset:
    lance.write_dataset(table, str(path), data_storage_version="0.1", **options)
    # The dataset that the writer returns remembers dictionaries that it did not store.
    return lance.dataset(str(path))


def check(theirs: lance.LanceDataset, *, seed: int = 1) -> pa.Table:
    """Check everything that pylance reads: all rows, rows by position, batches, single columns."""
    expected = theirs.to_table()
    ours = lance_spark.open_dataset(theirs.uri)
    assert ours.data_storage_version == "0.1"
    assert ours.count_rows() == theirs.count_rows() == expected.num_rows
    table = ours.to_table()
    table.validate(full=True)
    assert_same(table, expected, "all")
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 3_000))
    batches = list(ours.to_batches(batch_size=size))
    assert all(0 < batch.num_rows <= size for batch in batches)
    assert_same(pa.Table.from_batches(batches, schema=ours.schema), expected, "batches")
    if expected.num_rows:
        rows = rng.integers(0, expected.num_rows, 40)
        assert_same(ours.take(rows), expected.take(pa.array(rows)), "take")
        first = int(rows.min())
        positions = np.arange(first, min(first + 1_500, expected.num_rows))
        assert_same(ours.take(positions), expected.take(pa.array(positions)), "range")
    names = expected.column_names[-1:]
    assert_same(ours.to_table(names), expected.select(names), f"{names}")
    return expected


def array_of(dtype: pa.DataType, rows: int, nulls: float, seed: int = 5) -> pa.Array:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**40, rows)
    if pa.types.is_struct(dtype):
        children = [array_of(field.type, rows, nulls, seed + i) for i, field in enumerate(dtype)]
        return pa.StructArray.from_arrays(children, fields=list(dtype))
    if pa.types.is_list(dtype):
        ends = np.cumsum(values % 4)
        items = array_of(dtype.value_type, int(ends[-1]), nulls, seed)
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        return pa.ListArray.from_arrays(offsets, items, mask=pa.array(rng.random(rows) < nulls))
    if pa.types.is_decimal256(dtype):
        return array_of(pa.decimal128(dtype.precision - 20, dtype.scale), rows, nulls, seed).cast(
            dtype
        )
    if not pa.types.is_dictionary(dtype):
        return build(dtype, values, nulls, rng)
    items = build(dtype.value_type, np.arange(11), 0.0, rng)
    indices = pa.array(values % 11, mask=rng.random(rows) < nulls).cast(dtype.index_type)
    return pa.DictionaryArray.from_arrays(indices, items)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", TYPES)
def test_every_type(tmp_path: Path, name: str) -> None:
    for rows, nulls in ((1_025, 0.3), (2_500, 0.0), (1, 1.0)):
        table = pa.table({"x": array_of(TYPES[name], rows, nulls)})
        path = tmp_path / f"{rows}"
        theirs = write(table, path, max_rows_per_group=1_000 if rows == 2_500 else 1_024)
        check(theirs)


@pytest.mark.sample(5)
@pytest.mark.parametrize("group", [1, 7, 1_000, 1_024, 8_192])
@pytest.mark.parametrize("rows", [1, 1_023, 1_024, 1_025, 5_000])
def test_sizes_of_batches(tmp_path: Path, rows: int, group: int) -> None:
    if rows // group > 1_100:
        pytest.skip("thousands of pages say no more than hundreds")
    rng = np.random.default_rng(rows)
    values = rng.integers(0, 2**40, rows)
    type_names = ("int64", "bool", "string", "list_string", "struct_list", "bools", "list_bool")
    table = pa.table(
        {type_name: build(TYPES[type_name], values, 0.2, rng) for type_name in type_names}
    )
    check(write(table, tmp_path / "t", max_rows_per_group=group), seed=rows)


def test_a_table_without_rows(tmp_path: Path) -> None:
    empty = pa.table({"x": pa.array([], pa.int64()), "s": pa.array([], pa.string())})
    check(write(empty, tmp_path / "t"))


def nullable_items(dtype: pa.DataType) -> pa.DataType:
    """Return a type whose lists have nullable items: inside structs, pylance fails on other
    lists.
    """
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(nullable_items(field.type)) for field in dtype])
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        item = dtype.value_field.with_type(nullable_items(dtype.value_type)).with_nullable(True)
        return pa.list_(item) if pa.types.is_list(dtype) else pa.large_list(item)
    return dtype


@pytest.mark.sample(3)
@pytest.mark.parametrize("first", range(0, TABLES, GROUP))
def test_random_tables(tmp_path: Path, first: int) -> None:
    for seed in range(first, min(first + GROUP, TABLES)):
        table = random_table(seed)
        table = pa.Table.from_arrays(
            [column.cast(nullable_items(column.type)) for column in table.columns],
            schema=pa.schema([f.with_type(nullable_items(f.type)) for f in table.schema]),
        )
        group = int(np.random.default_rng(seed).choice([10, 100, 1_000, 1_024]))
        check(write(table, tmp_path / f"{seed}", max_rows_per_group=group), seed=seed)


def people(first: int, rows: int) -> pa.Table:
    ids = np.arange(first, first + rows)
    names = pa.array([f"name {i}" if i % 5 else "" for i in ids.tolist()])
    return pa.table(
        {
            "id": ids,
            "s": pa.StructArray.from_arrays(
                [pa.array(ids * 3, pa.int32(), mask=ids % 4 == 0), names], ["a", "b"]
            ),
            "l": pa.array([list(range(i % 4)) for i in ids.tolist()], pa.list_(pa.int16())),
        }
    )


@pytest.fixture
def evolving(tmp_path: Path) -> lance.LanceDataset:
    """Write three fragments of three batches each, with a dictionary column that all files
    share.
    """
    path = tmp_path / "t.lance"
    dictionary = pa.array(["red", "green", "blue"])
    for first in (0, 2_500, 5_000):
        table = people(first, 2_500)
        indices = pa.array(np.arange(2_500) % 3, pa.int8())
        colours = pa.DictionaryArray.from_arrays(indices, dictionary)
        lance.write_dataset(
            table.append_column("colour", colours),
            str(path),
            mode="append" if first else "create",
            data_storage_version="0.1",
        )
    return lance.dataset(str(path))


def test_fragments(evolving: lance.LanceDataset) -> None:
    assert check(evolving).num_rows == 7_500


def test_deletions(evolving: lance.LanceDataset) -> None:
    evolving.delete("id % 3 = 0")
    check(evolving)
    evolving.delete("id > 100 and id < 4990 and id % 7 <> 1")
    assert check(evolving).num_rows < 3_000
    evolving.delete("id >= 2500 and id < 5000")
    check(evolving)


def test_columns_added_and_dropped(evolving: lance.LanceDataset) -> None:
    evolving.delete("id % 10 = 3")
    evolving.add_columns({"twice": "id * 2", "text": "cast(id as string)"})
    check(evolving)
    evolving.add_columns({"more": "twice + 1"})
    evolving.drop_columns(["id", "twice"])
    assert check(evolving).column_names == ["s", "l", "colour", "text", "more"]
    evolving.add_columns({"last": "more * 2"})
    evolving.alter_columns({"path": "text", "name": "renamed"})
    check(evolving)


def test_columns_merged(evolving: lance.LanceDataset) -> None:
    right = pa.table({"id": np.arange(7_500), "r": [f"r{i}" for i in range(7_500)]})
    evolving.merge(right, "id")
    evolving.merge(
        pa.table({"id": np.arange(7_500), "v": [[float(i)] * 4 for i in range(7_500)]}), "id"
    )
    check(evolving)


def test_rows_updated_and_appended(evolving: lance.LanceDataset) -> None:
    evolving.update({"id": "id + 100000"}, where="id % 6 = 1")
    check(evolving)
    evolving.drop_columns(["s"])
    evolving.add_columns({"half": "id / 2"})
    evolving.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
        evolving.to_table().slice(10, 3_000)
    )
    check(evolving)


def test_columns_cast(evolving: lance.LanceDataset) -> None:
    evolving.alter_columns({"path": "id", "data_type": pa.int32()})
    check(evolving)


def test_compaction(evolving: lance.LanceDataset) -> None:
    evolving.delete("id % 3 = 0")
    evolving.optimize.compact_files(target_rows_per_fragment=10_000)
    check(evolving)


def test_parts_of_structs(evolving: lance.LanceDataset) -> None:
    ours = lance_spark.open_dataset(evolving.uri).to_table(["s.b", "id"])
    all_columns = evolving.to_table()
    assert ours["s.b"].combine_chunks() == all_columns["s"].combine_chunks().field("b")
    assert ours["id"] == all_columns["id"]


def test_older_versions(evolving: lance.LanceDataset) -> None:
    evolving.delete("id < 6000")
    evolving.drop_columns(["colour"])
    for version in (1, 2, 3, 4, 5):
        expected = lance.dataset(evolving.uri, version=version).to_table()
        assert_same(lance_spark.open_dataset(evolving.uri, version).to_table(), expected, "version")


def early(path: Path, *, keep_writer: bool = True, delete: bool = False) -> table_pb2.Manifest:
    """Rewrite the newest manifest as early releases wrote it, without counts and file version."""
    newest = min((path / "_versions").glob("*.manifest"))
    manifest = decode(newest.read_bytes(), str(newest))
    proto = manifest.to_proto()
    proto.ClearField("data_format")
    if not keep_writer:
        proto.ClearField("writer_version")
    for fragment in proto.fragments:
        # If the manifest names no version of the writer, its counts may be wrong.
        fragment.physical_rows = 0 if keep_writer else 3
        if delete:
            fragment.deletion_file.num_deleted_rows = 0
        for file in fragment.files:
            file.ClearField("file_size_bytes")
            file.ClearField("file_major_version")
            file.ClearField("file_minor_version")
    sections = manifest.index_section, manifest.transaction_section
    newest.write_bytes(encode(proto, *sections, manifest.dictionaries))
    return proto


@pytest.mark.parametrize("keep_writer", [True, False])
def test_rows_that_were_not_counted(tmp_path: Path, keep_writer: bool) -> None:
    path = tmp_path / "t"
    table = people(0, 5_000)
    write(table, path, max_rows_per_file=2_048)
    early(path, keep_writer=keep_writer)
    expected = lance.dataset(str(path))
    assert check(expected).num_rows == 5_000
    ours = lance_spark.open_dataset(str(path))
    assert [fragment.physical_rows for fragment in ours.fragments] == [2_048, 2_048, 904]
    tasks = ours.plan(rows_per_task=500)
    assert sum(task.num_rows for task in tasks) == 5_000
    assert len(tasks) > 5


def test_deleted_rows_that_were_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(people(0, 5_000), path, max_rows_per_file=2_048).delete("id % 3 = 0")
    early(path, delete=True)
    assert check(lance.dataset(str(path))).num_rows == 3_333
    ours = lance_spark.open_dataset(str(path))
    assert [fragment.num_rows for fragment in ours.fragments] == [1_365, 1_365, 603]


def test_manifests_of_early_releases(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(people(0, 100), path, enable_v2_manifest_paths=False)
    early(path)
    shutil.copy(path / "_versions" / "1.manifest", path / "_latest.manifest")
    check(lance.dataset(str(path)))
    # pylance does not open a table of which only the copy of the manifest is left.
    expected = lance.dataset(str(path)).to_table()
    shutil.rmtree(path / "_versions")
    assert_same(lance_spark.open_dataset(str(path)).to_table(), expected, "_latest.manifest")
    with pytest.raises(UnsupportedError, match=r"_latest\.manifest"):
        lance_spark.open_dataset(str(path), 1)
    with pytest.raises(UnsupportedError, match=r"_latest\.manifest"):
        lance_spark.write_dataset(people(0, 1), str(path), mode="append")
    (path / "_latest.manifest").unlink()
    with pytest.raises(TableNotFoundError):
        lance_spark.open_dataset(str(path))
