"""SSTables: pylance reads those of this package, and this package those of pylance."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, SchemaMismatchError, UnsupportedTypeError
from lance_spark.mem_wal.entries import put_rows
from lance_spark.mem_wal.sstable import open_sstable, write_sstable
from lance_spark.table.commit.transaction import read_transaction
from lance_spark.table.open import OpenTable, open_table

_KEY = {"lance-schema:unenforced-primary-key": "true"}
_POINT = pa.struct([pa.field("x", pa.int32(), nullable=False), ("label", pa.string())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=_KEY),
        pa.field("name", pa.string(), nullable=False),
        ("items", pa.list_(pa.float64())),
        ("point", _POINT),
    ]
)


def some_rows(ids: list[int], text: str, schema: pa.Schema = SCHEMA) -> pa.Table:
    columns: dict[str, Any] = {
        "id": ids,
        "name": [f"{text}{key}" for key in ids],
        "items": [[float(key)] * (key % 3) if key % 4 else None for key in ids],
        "point": [{"x": key, "label": text} for key in ids],
    }
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def arrived(rows: pa.Table, deleted: list[int] = ()) -> pa.Table:  # type: ignore[assignment]
    """Return rows, and then tombstones, as a writer has them."""
    is_deleted = [False] * rows.num_rows + [True] * len(deleted)
    stored = pa.schema([*rows.schema, pa.field("_tombstone", pa.bool_(), nullable=False)])
    columns = [
        pa.chunked_array(
            [
                *rows.column(field.name).chunks,
                pa.array(deleted, field.type)
                if field.metadata
                else pa.nulls(len(deleted), field.type),
            ]
        )
        for field in rows.schema
    ]
    nullable = [field.with_nullable(not field.metadata) for field in rows.schema]
    return pa.table([*columns, pa.array(is_deleted)], schema=pa.schema([*nullable, stored[-1]]))


def _with_mem_wal(root: Path, version: str = "2.2", **options: Any) -> OpenTable:
    dataset = lance.write_dataset(
        some_rows([1, 2, 3], "base"), root, data_storage_version=version, **options
    )
    dataset.initialize_mem_wal(unsharded=True)
    return open_table(str(root))


def _snapshot(shard: uuid.UUID, folder: str) -> lance.ShardSnapshot:
    return lance.ShardSnapshot(str(shard)).with_current_generation(2).with_sstable(1, folder)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_pylance_reads_ours(tmp_path: Path, version: str) -> None:
    table = _with_mem_wal(tmp_path / "t", version, enable_stable_row_ids=version == "2.1")
    shard = uuid.uuid4()
    rows = arrived(some_rows([10, 1, 10, 7], "new"), [2, 7])
    written = write_sstable(table, shard, 1, rows)
    assert (written.generation, written.physical_rows, written.primary_key_bytes) == (1, 6, 48)

    sstable = lance.dataset(tmp_path / "t/_mem_wal" / str(shard) / written.folder)
    sstable.validate()
    assert sstable.version == 1
    # Files of version 2.0 have no null structs.
    assert sstable.data_storage_version == ("2.1" if version == "2.0" else version)
    assert [field.id() for field in sstable.lance_schema.fields()] == [0, 1, 2, 4, 7]
    live = sstable.to_table(columns=["id", "_tombstone"]).to_pylist()
    assert [(row["id"], row["_tombstone"]) for row in live] == [
        (1, False),
        (10, False),
        (2, True),
        (7, True),
    ]

    dataset = lance.dataset(tmp_path / "t")
    snapshot = _snapshot(shard, written.folder)
    fresh = lance.LsmScanner.from_snapshots(dataset, [snapshot]).to_table().sort_by("id")
    expected = some_rows([1, 10], "new"), some_rows([3], "base")
    assert fresh.to_pylist() == pa.concat_tables(expected).sort_by("id").to_pylist()
    planner = lance.LsmPointLookupPlanner(dataset, [snapshot])
    names = [
        planner.plan_lookup(pa.array([key], pa.int64())).to_table()["name"].to_pylist()
        for key in (1, 2, 3, 7, 10, 99)
    ]
    assert names == [["new1"], [], ["base3"], [], ["new10"], []]


def test_pylance_opens_a_composite_key(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata=_KEY),
            pa.field("name", pa.string(), nullable=False, metadata=_KEY),
            ("items", pa.list_(pa.float64())),
        ]
    )
    lance.write_dataset(some_rows([1, 2], "base", schema), tmp_path / "t").initialize_mem_wal()
    shard = uuid.uuid4()
    rows = pa.concat_tables([some_rows([5, 1, 5], "new", schema), some_rows([1], "base", schema)])
    written = write_sstable(open_table(str(tmp_path / "t")), shard, 1, arrived(rows))
    dataset = lance.dataset(tmp_path / "t")
    fresh = lance.LsmScanner.from_snapshots(dataset, [_snapshot(shard, written.folder)]).to_table()
    assert sorted(fresh["name"].to_pylist()) == ["base1", "base2", "new1", "new5"]


def test_this_package_reads_an_sstable_of_pylance(tmp_path: Path) -> None:
    _with_mem_wal(tmp_path / "t")
    shard = uuid.uuid4()
    with lance.dataset(tmp_path / "t").mem_wal_writer(str(shard)) as writer:
        writer.put(some_rows([5, 1, 5], "new"))
        writer.delete(pa.table({"id": pa.array([2], pa.int64())}))
    (folder,) = (tmp_path / "t/_mem_wal" / str(shard)).glob("*_gen_1")
    table = open_sstable(open_table(str(tmp_path / "t")), shard, folder.name)
    assert table.version == 1
    rows = lance_spark.open_dataset(table.store.uri).to_table()
    assert rows.to_pylist() == lance.dataset(folder).to_table().to_pylist()
    assert rows["id"].to_pylist() == [1, 5, 2]


def test_equal_to_the_table_of_pylance(tmp_path: Path) -> None:
    """The manifests have the same schema, fragment and deletion file."""
    table = _with_mem_wal(tmp_path / "t")
    shard = uuid.uuid4()
    with lance.dataset(tmp_path / "t").mem_wal_writer(str(shard)) as writer:
        writer.put(some_rows([5, 1, 5], "new"))
    (folder,) = (tmp_path / "t/_mem_wal" / str(shard)).glob("*_gen_1")
    theirs = open_sstable(table, shard, folder.name)
    written = write_sstable(
        table, uuid.uuid4(), 1, arrived(some_rows([5, 1, 5], "new")), {"batch": "7"}
    )
    (own_folder,) = (tmp_path / "t/_mem_wal").glob(f"*/{written.folder}")
    ours = open_sstable(table, uuid.UUID(own_folder.parent.name), written.folder)
    assert ours.schema.fields == theirs.schema.fields
    for name in ("fields", "data_format"):
        assert getattr(ours.manifest.message, name) == getattr(theirs.manifest.message, name)
    (own,), (other,) = ours.manifest.fragments, theirs.manifest.fragments
    assert own.files[0].fields == other.files[0].fields
    assert own.physical_rows == other.physical_rows
    assert own.deletion_file is not None
    assert other.deletion_file is not None
    for attribute in ("file_type", "read_version", "num_deleted_rows"):
        assert getattr(own.deletion_file, attribute) == getattr(other.deletion_file, attribute)
    names = {path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file()}
    own_names = {path.relative_to(own_folder).parts[0] for path in own_folder.rglob("*")}
    assert own_names == names
    transaction = read_transaction(ours.store, ours.manifest)
    assert transaction is not None
    assert transaction.properties == {"batch": "7"}


def test_a_missing_column_is_null(tmp_path: Path) -> None:
    table = _with_mem_wal(tmp_path / "t")
    shard = uuid.uuid4()
    rows = arrived(some_rows([4], "new")).drop_columns(["items"])
    folder = write_sstable(table, shard, 1, rows).folder
    dataset = lance.dataset(tmp_path / "t")
    fresh = lance.LsmScanner.from_snapshots(dataset, [_snapshot(shard, folder)])
    (row,) = fresh.filter("id = 4").to_table().to_pylist()
    assert (row["name"], row["items"]) == ("new4", None)


def test_a_table_without_a_key(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("v", pa.int32(), nullable=False)])
    lance.write_dataset(schema.empty_table(), tmp_path / "t").initialize_mem_wal(unsharded=True)
    table = open_table(str(tmp_path / "t"))
    rows = arrived(pa.table({"v": [1, 2, 2]}, schema=schema))
    shard = uuid.uuid4()
    written = write_sstable(table, shard, 1, rows)
    assert written.primary_key_bytes is None
    root = tmp_path / "t/_mem_wal" / str(shard) / written.folder
    assert lance.dataset(root).to_table()["v"].to_pylist() == [1, 2, 2]
    assert not (root / "_pk_index").exists()
    assert (root / "bloom_filter.bin").read_bytes() == bytes(32768)


def test_refused_rows_leave_no_file(tmp_path: Path) -> None:
    table = _with_mem_wal(tmp_path / "t")
    shard = uuid.uuid4()
    good = arrived(some_rows([4], "new"))
    null_key = good.set_column(0, "id", pa.array([None], pa.int64()))
    other_type = good.set_column(1, "name", pa.array([1], pa.int32()))
    for rows, error in [
        (good.slice(0, 0), InvalidInputError),
        (null_key, InvalidInputError),
        (other_type, SchemaMismatchError),
    ]:
        with pytest.raises(error):
            write_sstable(table, shard, 1, rows)
    floats = pa.schema([pa.field("id", pa.float64(), nullable=False, metadata=_KEY)])
    lance.write_dataset(floats.empty_table(), tmp_path / "f")
    rows = arrived(pa.table({"id": [1.5]}, schema=floats))
    with pytest.raises(UnsupportedTypeError, match="'id' has type double"):
        write_sstable(open_table(str(tmp_path / "f")), shard, 1, rows)
    assert not [path for path in tmp_path.glob("*/_mem_wal/**/*") if path.is_file()]


def test_json_of_a_log(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False, metadata=_KEY), ("doc", pa.json_())]
    )
    rows = pa.table({"id": [1], "doc": pa.array(['{"a":1}'], pa.json_())}, schema=schema)
    lance.write_dataset(rows, tmp_path / "t").initialize_mem_wal(unsharded=True)
    table = open_table(str(tmp_path / "t"))
    shard = uuid.uuid4()
    logged = put_rows(table.schema, lance_spark.open_dataset(str(tmp_path / "t")).to_table())
    folder = write_sstable(table, shard, 1, logged).folder
    sstable = lance.dataset(tmp_path / "t/_mem_wal" / str(shard) / folder)
    assert sstable.to_table()["doc"].to_pylist() == rows["doc"].to_pylist()


def test_files_of_version_0_1(tmp_path: Path) -> None:
    """pylance writes them in tables of this version."""
    root, shard, schema = tmp_path / "t", str(uuid.uuid4()), pa.schema([SCHEMA[0], SCHEMA[1]])
    lance.write_dataset(some_rows([1, 2, 3], "base", schema), root, data_storage_version="legacy")
    lance.dataset(root).initialize_mem_wal(unsharded=True)
    with lance.dataset(root).mem_wal_writer(shard) as writer:
        writer.put(some_rows([1, 4], "new", schema))
        writer.delete(pa.table({"id": pa.array([2, 9], pa.int64())}))
    with lance_spark.open_dataset(str(root)).mem_wal_writer(shard) as own:
        own.put(some_rows([4], "newer", schema))
    fresh = lance_spark.open_dataset(str(root)).fresh()
    rows = {1: "new1", 3: "base3", 4: "newer4"}
    assert dict(zip(*fresh.to_table().sort_by("id").to_pydict().values(), strict=True)) == rows
    assert fresh.to_table(["name"], filter="id = 2").num_rows == 0
    compacted = lance_spark.open_dataset(str(root)).compact_mem_wal().to_table().sort_by("id")
    assert compacted["name"].to_pylist() == list(rows.values())
