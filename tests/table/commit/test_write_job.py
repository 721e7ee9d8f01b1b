"""Writes from plan to commit, read by pylance; and which data an append accepts."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import lance
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
    StorageError,
    TableExistsError,
)
from lance_spark.table.commit.write import TableSettings, WriteJob, begin_write
from lance_spark.table.fragments.files import parse_version
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.limits import WriteLimits
from tests.support.tables.pylance_written import ids, manifests, new_table, rows


def carry_out(job: WriteJob, *tables: pa.Table) -> list[Fragment]:
    """Write each table as a separate task."""
    fragments: list[Fragment] = []
    for table in tables:
        writer = pickle.loads(pickle.dumps(job)).writer()
        for batch in table.to_batches():
            writer.write(batch)
        fragments += pickle.loads(pickle.dumps(writer.finish()))
    return fragments


def write(path: Path, table: pa.Table, **options: object) -> int:
    job = begin_write(str(path), table.schema, **options)  # type: ignore[arg-type]
    return job.commit(carry_out(job, table))


def data_files(path: Path) -> set[str]:
    return {file.name for file in (path / "data").iterdir()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t"


@pytest.mark.parametrize("mode", ["create", "append", "overwrite"])
@pytest.mark.parametrize("version", [None, "2.1", "2.2", "stable"])
def test_a_new_table(path: Path, mode: str, version: str | None) -> None:
    assert write(path, rows(0, 10), mode=mode, data_storage_version=version) == 1
    assert ids(path) == list(range(10))
    written = "2.1" if version == "2.1" else "2.2"
    assert lance.dataset(str(path)).data_storage_version == written
    assert write(path, rows(10)) == 2
    assert ids(path) == list(range(13))
    assert write(path, rows(5), mode="overwrite") == 3
    assert ids(path) == [5, 6, 7]
    # The overwrite keeps the version of the files.
    assert lance.dataset(str(path)).data_storage_version == written
    assert [len(m.fragments) for m in manifests(path)] == [1, 2, 1]


def test_many_tasks_and_files(path: Path) -> None:
    job = begin_write(str(path), rows(0).schema, limits=WriteLimits(4))
    fragments = carry_out(job, rows(0, 10), rows(10, 3), rows(13, 8))
    assert [fragment.physical_rows for fragment in fragments] == [4, 4, 2, 3, 4, 4]
    job.commit(fragments)
    assert ids(path) == list(range(21))
    assert [f.fragment_id for f in lance.dataset(str(path)).get_fragments()] == list(range(6))


def test_options_of_a_new_table(path: Path) -> None:
    settings = TableSettings(True, config={"a": "b"}, table_metadata={"c": "d"})
    table = rows(0).replace_schema_metadata({"e": "f"})
    write(path, table, settings=settings)
    dataset = lance.dataset(str(path))
    assert (dataset.config(), dataset.metadata) == ({"a": "b"}, {"c": "d"})
    assert dataset.schema.metadata == {b"e": b"f"}
    assert dataset.has_stable_row_ids
    write(path, rows(3))
    numbers = lance.dataset(str(path)).to_table(with_row_id=True)["_rowid"].to_pylist()
    assert numbers == list(range(6))
    for option in ("config", "table_metadata"):
        with pytest.raises(InvalidOptionError, match="an append cannot set configuration"):
            write(path, rows(0), settings=TableSettings(**{option: {"x": "y"}}))


def test_create_wants_no_table(path: Path) -> None:
    new_table(path)
    with pytest.raises(TableExistsError, match="the table already exists, with version 1 only"):
        write(path, rows(0), mode="create")


def test_abort(path: Path) -> None:
    new_table(path)
    before = data_files(path)
    job = begin_write(str(path), rows(0).schema)
    fragments = carry_out(job, rows(6))
    assert len(data_files(path)) == len(before) + 1
    job.abort(fragments)
    assert data_files(path) == before


def test_an_append_of_nothing(path: Path) -> None:
    """It creates a version, as with pylance."""
    new_table(path)
    lance.write_dataset(rows(0).slice(3), str(path), mode="append")
    assert lance.dataset(str(path)).version == 2
    assert begin_write(str(path), rows(0).schema).commit([]) == 3
    assert ids(path) == list(range(6))
    assert begin_write(str(path) + "2", rows(0).schema).commit([]) == 1
    assert ids(Path(str(path) + "2")) == []


def test_others_commit_meanwhile(path: Path) -> None:
    new_table(path)
    job = begin_write(str(path), rows(0).schema)
    fragments = carry_out(job, rows(9))
    lance.write_dataset(rows(6), str(path), mode="append")
    assert job.commit(fragments) == 3
    assert ids(path) == list(range(12))
    replacement = begin_write(str(path), rows(0).schema, mode="overwrite")
    fragments = carry_out(replacement, rows(100))
    lance.write_dataset(rows(12), str(path), mode="overwrite")
    with pytest.raises(CommitConflictError, match=r"overtaken by version 4 \(overwrite\)") as e:
        replacement.commit(fragments)
    assert e.value.retryable


def test_others_clean_up_meanwhile(path: Path) -> None:
    new_table(path)
    job = begin_write(str(path), rows(0).schema)
    fragments = carry_out(job, rows(6))
    (path / "_versions" / f"{2**64 - 2}.manifest").rename(
        path / "_versions" / f"{2**64 - 4}.manifest"
    )
    with pytest.raises(CommitConflictError, match="cleanup has removed version 2") as e:
        job.commit(fragments)
    assert e.value.retryable
    in_another_process = pickle.loads(pickle.dumps(job))
    with pytest.raises(CommitConflictError, match=r"version 1, .* has been cleaned up") as e:
        in_another_process.commit(fragments)
    assert e.value.retryable


def test_others_create_the_table_meanwhile(path: Path) -> None:
    jobs = {
        mode: begin_write(str(path), rows(0).schema, mode=mode)  # type: ignore[arg-type]
        for mode in ("create", "append", "overwrite")
    }
    other_job = begin_write(str(path), pa.schema([("id", pa.int32()), ("word", pa.utf8())]))
    lance.write_dataset(rows(0), str(path), data_storage_version="2.2")
    assert jobs["append"].commit(carry_out(jobs["append"], rows(3))) == 2
    assert ids(path) == list(range(6))
    with pytest.raises(TableExistsError):
        jobs["create"].commit([])
    for job in (jobs["overwrite"], other_job):
        with pytest.raises(CommitConflictError, match="another client created the table") as e:
            job.commit([])
        assert e.value.retryable
    assert ids(path) == list(range(6))


TABLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("s", pa.struct([("a", pa.int32()), ("b", pa.int32())])),
        pa.field("l", pa.list_(pa.int32())),
        pa.field("d", pa.dictionary(pa.int32(), pa.utf8())),
        pa.field("m", pa.map_(pa.utf8(), pa.struct([("x", pa.int8()), ("y", pa.int8())]))),
    ]
)
ROW = {"id": 1, "s": {"a": 1, "b": 2}, "l": [1], "d": "x", "m": [("k", {"x": 1, "y": 2})]}


def variant(**types: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(f.name, types.get(f.name, f.type)) for f in TABLE])


@pytest.mark.parametrize(
    "schema",
    [
        TABLE,
        variant(),
        pa.schema(list(TABLE)[::-1]),
        pa.schema([TABLE.field("id"), TABLE.field("l")]),
        variant(s=pa.struct([("b", pa.int32()), ("a", pa.int32())])),
        variant(s=pa.struct([("b", pa.int32())])),
        variant(l=pa.list_(pa.field("item", pa.int32(), nullable=False))),
    ],
)
def test_appends_that_pylance_takes(tmp_path: Path, schema: pa.Schema) -> None:
    results = []
    for writer in ("ours", "theirs"):
        path = tmp_path / writer
        lance.write_dataset(
            pa.Table.from_pylist([ROW], TABLE), str(path), data_storage_version="2.2"
        )
        data = pa.Table.from_pylist([{**ROW, "id": 2}, {"id": 3}], schema)
        if writer == "ours":
            write(path, data)
        else:
            lance.write_dataset(data, str(path), mode="append")
        dataset = lance.dataset(str(path))
        dataset.validate()
        assert dataset.schema == TABLE
        results.append(dataset.to_table())
    assert results[0] == results[1]
    # The file has every field of the data, and no other field.
    files = [manifests(tmp_path / w)[-1].fragments[-1].files[0] for w in ("ours", "theirs")]
    assert set(files[0].fields) == set(files[1].fields)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (variant(id=pa.int32()), "column 'id' is int64, but the data has int32"),
        (variant(l=pa.list_(pa.int64())), r"column 'l\.item' is int32, but the data has int64"),
        (variant(d=pa.utf8()), "column 'd' is dictionary<.*>, but the data has string"),
        (variant(s=pa.struct([("c", pa.int32())])), r"does not have the column 's\.c' of the data"),
        (variant(s=pa.struct([("a", pa.int8())])), r"column 's\.a' is int32, .* int8"),
        (
            pa.schema([*TABLE, pa.field("new", pa.int8())]),
            "does not have the column 'new' of the data",
        ),
        (
            pa.schema([f if f.name != "l" else f.with_name("L") for f in TABLE]),
            "does not have the column 'L' of the data",
        ),
        (pa.schema(list(TABLE)[1:]), "'id' must not be null, and the data does not have it"),
    ],
)
def test_appends_that_pylance_refuses(path: Path, schema: pa.Schema, message: str) -> None:
    lance.write_dataset(pa.Table.from_pylist([ROW], TABLE), str(path), data_storage_version="2.2")
    with pytest.raises(OSError, match="Append with different schema"):
        lance.write_dataset(schema.empty_table(), str(path), mode="append", schema=schema)
    with pytest.raises(SchemaMismatchError, match=message):
        begin_write(str(path), schema)


def test_lists_are_the_same_whatever_their_child_is_called(path: Path) -> None:
    lance.write_dataset(pa.Table.from_pylist([ROW], TABLE), str(path), data_storage_version="2.2")
    element = pa.list_(pa.field("element", pa.int32()))
    write(path, pa.Table.from_pylist([{**ROW, "id": 2}], variant(l=element)))
    assert lance.dataset(str(path)).to_table()["l"].to_pylist() == [[1], [1]]
    assert lance.dataset(str(path)).schema == TABLE


def test_nulls_where_none_must_be(path: Path) -> None:
    lance.write_dataset(pa.Table.from_pylist([ROW], TABLE), str(path), data_storage_version="2.2")
    before = data_files(path)
    data = pa.Table.from_pylist([{**ROW, "id": None}], variant())
    writer = begin_write(str(path), data.schema).writer()
    with pytest.raises(InvalidInputError, match="column 'id' must not be null"):
        writer.write(data.to_batches()[0])
    writer.abort()
    assert data_files(path) == before


def test_versions_of_files() -> None:
    assert parse_version("2.0") == parse_version("0.3") == (2, 0)
    assert parse_version("2.1") == (2, 1)
    assert parse_version("2.2") == parse_version("stable") == parse_version(" Stable ") == (2, 2)
    assert parse_version("legacy") == parse_version("0.1") == (0, 1)
    assert parse_version("2.3") == parse_version("next") == (2, 3)
    with pytest.raises(InvalidOptionError, match="'3' is not a version of data files"):
        parse_version("3")


def test_an_append_keeps_the_version_of_the_files(path: Path) -> None:
    new_table(path, data_storage_version="2.1")
    with pytest.raises(InvalidOptionError, match=r"version 2\.1, and an append must use it"):
        begin_write(str(path), rows(0).schema, data_storage_version="2.2")
    write(path, rows(6), data_storage_version="2.1")
    assert ids(path) == list(range(9))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mode", {"mode": "replace"}),
        ("max_rows_per_file", {"limits": WriteLimits(0)}),
        ("max_bytes_per_file", {"limits": WriteLimits(max_bytes_per_file=-1)}),
    ],
)
def test_options_that_make_no_sense(path: Path, name: str, options: dict[str, object]) -> None:
    with pytest.raises(InvalidOptionError, match=name):
        begin_write(str(path), rows(0).schema, **options)  # type: ignore[arg-type]


def test_data_without_columns(path: Path) -> None:
    with pytest.raises(InvalidInputError, match="data without columns"):
        begin_write(str(path), pa.schema([]))


def test_stable_row_ids_are_for_new_tables(path: Path) -> None:
    new_table(path)
    with pytest.raises(InvalidOptionError, match="only for a new table"):
        begin_write(str(path), rows(0).schema, mode="overwrite", settings=TableSettings(True))


def test_stores_that_cannot_commit_are_refused_before_anything_is_written() -> None:
    fsspec.register_implementation("careless", MemoryFileSystem, clobber=True)
    with pytest.raises(StorageError, match="careless:// cannot create a file only if it is absent"):
        begin_write("careless://t", rows(0).schema)


def test_two_naming_schemes(path: Path) -> None:
    new_table(path)
    lance.write_dataset(rows(6), str(path), mode="append")
    (path / "_versions" / f"{2**64 - 2}.manifest").rename(path / "_versions" / "1.manifest")
    with pytest.raises(CorruptTableError, match="two naming schemes"):
        begin_write(str(path), rows(0).schema)


def test_secrets_are_not_shown() -> None:
    options = {"secret": "hunter2"}
    job = begin_write("memory://secrets/t", rows(0).schema, storage_options=options)
    assert "hunter2" not in repr(job)
    assert pickle.loads(pickle.dumps(job)) == job
