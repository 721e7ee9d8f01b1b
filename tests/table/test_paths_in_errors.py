"""Errors about damaged tables contain the path of the table, in all calls."""

from __future__ import annotations

import datetime
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CommitConflictError, LanceError, error_context
from lance_spark.inspect.collect import facts_of
from lance_spark.proto import table_pb2
from lance_spark.table.indexes import fragment_reuse
from tests.support.tables.damaged import newest_manifest, rewrite_manifest
from tests.support.tables.pylance_written import new_table, rows

#: Damages a table in several ways.
pytestmark = pytest.mark.slow

Damage = Callable[[Path], object]
Open = Callable[[], lance_spark.Dataset]
Call = Callable[[str, Open], object]


def data_files(path: Path) -> list[Path]:
    return sorted((path / "data").glob("*.lance"))


def truncate(path: Path, keep: float = 0.5) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


def with_other_start(path: Path, count: int) -> None:
    data = path.read_bytes()
    path.write_bytes(b"\xff" * count + data[count:])


def in_manifest(change: Callable[[table_pb2.Manifest], object]) -> Damage:
    return lambda path: rewrite_manifest(path, change)


def in_indexes(change: Callable[[table_pb2.IndexSection], object]) -> Damage:
    return lambda path: rewrite_manifest(path, change_indexes=change)


def first_file(manifest: table_pb2.Manifest) -> table_pb2.DataFile:
    return manifest.fragments[0].files[0]


def set_rows(manifest: table_pb2.Manifest) -> None:
    manifest.fragments[0].physical_rows = 7


def set_columns(manifest: table_pb2.Manifest) -> None:
    first_file(manifest).column_indices[:] = [0, 0]


def set_outside(manifest: table_pb2.Manifest) -> None:
    first_file(manifest).path = "../../x.lance"


def set_base(manifest: table_pb2.Manifest) -> None:
    first_file(manifest).base_id = 9


def set_deletion_type(manifest: table_pb2.Manifest) -> None:
    manifest.fragments[0].deletion_file.file_type = 7  # type: ignore[assignment]


def set_fragment_id(manifest: table_pb2.Manifest) -> None:
    manifest.fragments[1].id = 0


def set_reader_flag(manifest: table_pb2.Manifest) -> None:
    manifest.reader_feature_flags |= 1 << 40


def set_writer_flag(manifest: table_pb2.Manifest) -> None:
    manifest.writer_feature_flags |= 1 << 40


def set_type(manifest: table_pb2.Manifest) -> None:
    manifest.fields[0].logical_type = "no_such_type"


def set_parent(manifest: table_pb2.Manifest) -> None:
    manifest.fields[0].parent_id = 99


def set_index_id(section: table_pb2.IndexSection) -> None:
    section.indices[0].uuid.uuid = b"short"


def set_index_bitmap(section: table_pb2.IndexSection) -> None:
    section.indices[0].fragment_bitmap = b"no bitmap"


def add_reuse_index(section: table_pb2.IndexSection) -> None:
    index = section.indices.add(name=fragment_reuse.NAME)
    index.uuid.uuid = bytes(16)
    index.index_details.value = b"\xff"


def break_transactions(path: Path) -> None:
    def change(manifest: table_pb2.Manifest) -> None:
        manifest.ClearField("transaction_section")
        manifest.ClearField("transaction_section_deprecated")

    for file in (path / "_transactions").iterdir():
        with_other_start(file, 20)
    rewrite_manifest(path, change)


DAMAGES: dict[str, Damage] = {
    "data file cut": lambda path: truncate(data_files(path)[0]),
    "data file missing": lambda path: data_files(path)[0].unlink(),
    "page": lambda path: with_other_start(data_files(path)[0], 100),
    "data file of text": lambda path: data_files(path)[0].write_bytes(
        b"x" * data_files(path)[0].stat().st_size
    ),
    "rows of a fragment": in_manifest(set_rows),
    "column indices": in_manifest(set_columns),
    "path outside": in_manifest(set_outside),
    "unknown base": in_manifest(set_base),
    "deletion file cut": lambda path: truncate(next((path / "_deletions").iterdir())),
    "deletion file missing": lambda path: next((path / "_deletions").iterdir()).unlink(),
    "deletion file type": in_manifest(set_deletion_type),
    "fragment id": in_manifest(set_fragment_id),
    "manifest cut": lambda path: truncate(newest_manifest(path)),
    "manifest bytes": lambda path: with_other_start(newest_manifest(path), 4000),
    "reader flag": in_manifest(set_reader_flag),
    "writer flag": in_manifest(set_writer_flag),
    "type of a column": in_manifest(set_type),
    "parent of a column": in_manifest(set_parent),
    "index id": in_indexes(set_index_id),
    "index bitmap": in_indexes(set_index_bitmap),
    "fragment reuse index": in_indexes(add_reuse_index),
    "transactions": break_transactions,
    "tag": lambda path: (path / "_refs/tags/t.json").write_text("no JSON"),
    "branch": lambda path: next((path / "_refs/branches").iterdir()).write_text("no JSON"),
}
NEW = rows(6)
#: Calls that do not change the table. Each call gets the path of the table, and a function that
#: opens it.
READS: dict[str, Call] = {
    "open": lambda uri, _: lance_spark.open_dataset(uri),
    "open missing version": lambda uri, _: lance_spark.open_dataset(uri, 77),
    "open tag": lambda uri, _: lance_spark.open_dataset(uri, tag="t").count_rows(),
    "open branch": lambda uri, _: lance_spark.open_dataset(uri, branch="b").count_rows(),
    "open missing tag": lambda uri, _: lance_spark.open_dataset(uri, tag="none"),
    "open missing branch": lambda uri, _: lance_spark.open_dataset(uri, branch="none"),
    "open timestamp": lambda uri, _: lance_spark.open_dataset(
        uri, timestamp=datetime.datetime(1990, 1, 1, tzinfo=datetime.UTC)
    ),
    "schema": lambda _, table: table().schema,
    "to_table": lambda _, table: table().to_table(),
    "one column": lambda _, table: table().to_table(["word"]),
    "filter": lambda _, table: table().to_table(filter="id > 1 and word <> 'x'"),
    "row ids": lambda _, table: table().to_table(with_row_id=True),
    "count_rows": lambda _, table: table().count_rows(),
    "take": lambda _, table: table().take([0, 2]),
    "take_rows": lambda _, table: table().take_rows([0, 2]),
    "explain": lambda _, table: table().explain(filter="id > 1"),
    "versions": lambda _, table: [version.metadata for version in table().versions()],
    "operations": lambda _, table: [version.operation for version in table().versions()],
    "transactions": lambda _, table: table().get_transactions(),
    "tags": lambda _, table: table().tags.list(),
    "branches": lambda _, table: table().branches.list(),
    "list_indices": lambda _, table: table().list_indices(),
    "describe_indices": lambda _, table: table().describe_indices(),
    "inspect": lambda _, table: facts_of(table()),
}
CHANGES: dict[str, Call] = {
    "delete": lambda _, table: table().delete([("id", "==", 2)]),
    "update": lambda _, table: table().update({"id": 9}, [("id", "==", 2)]),
    "update columns": lambda _, table: table().update({"id": 9}, [("id", "==", 2)], mode="columns"),
    "add column": lambda _, table: table().add_columns({"new": 1}),
    "drop column": lambda _, table: table().drop_columns(["word"]),
    "cast": lambda _, table: table().alter_columns(
        {"path": "word", "data_type": pa.large_string()}
    ),
    "compact": lambda _, table: table().compact_files(),
    "append": lambda uri, _: lance_spark.write_dataset(NEW, uri, mode="append"),
    "overwrite": lambda uri, _: lance_spark.write_dataset(NEW, uri, mode="overwrite"),
    "config": lambda _, table: table().update_config({"a": "b"}),
    "create tag": lambda _, table: table().tags.create("u", 1),
    "create branch": lambda _, table: table().create_branch("c"),
    "drop_index": lambda _, table: table().drop_index("id_idx"),
    "shallow clone": lambda uri, table: table().shallow_clone(f"{uri}_shallow"),
    "deep clone": lambda uri, table: table().deep_clone(f"{uri}_deep"),
    "restore": lambda uri, _: lance_spark.open_dataset(uri, 1).restore(),
    "migrate": lambda _, table: table().migrate_manifest_paths_v2(),
    "cleanup": lambda _, table: table().cleanup_old_versions(
        datetime.timedelta(0), error_if_tagged_old_versions=False
    ),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a deletion file, an index, a tag, and a branch."""
    path = tmp_path_factory.mktemp("sound") / "t"
    dataset = new_table(path)
    dataset.delete("id = 1")
    dataset.create_scalar_index("id", "ZONEMAP")
    dataset.tags.create("t", 2)
    dataset.create_branch("b", 2)
    return path


def complaint(call: Call, uri: str, table: Open) -> LanceError | None:
    try:
        call(uri, table)
    except LanceError as error:
        return error
    return None


@pytest.mark.parametrize("damage", DAMAGES)
def test_errors_name_the_table(sound: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "t"
    uri = str(path)

    def table() -> lance_spark.Dataset:
        return lance_spark.open_dataset(uri)

    def restored() -> lance_spark.Dataset:
        """Copy the table, open it, and damage the copy."""
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(sound, path)
        before = table()
        DAMAGES[damage](path)
        return before

    before = restored()
    errors = {}
    for name, call in READS.items():
        errors[name] = complaint(call, uri, table)
        errors[f"{name}, opened before"] = complaint(call, uri, lambda: before)
    for name, call in CHANGES.items():
        errors[name] = complaint(call, uri, table)
        if errors[name] is None:
            restored()
    raised = {name: error for name, error in errors.items() if error is not None}
    # The first three ask for versions, tags and branches that the sound table does not have either.
    assert len(raised) > 3
    unnamed = {name: repr(error) for name, error in raised.items() if uri not in str(error)}
    assert unnamed == {}


def test_table_is_added_to_message_once() -> None:
    cause = ValueError("x")
    with pytest.raises(CommitConflictError) as caught, error_context("/t"), error_context("/t"):
        raise CommitConflictError("fragment 0 was changed", retryable=True) from cause
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == str(caught.value) == "/t: fragment 0 was changed"
    assert error.retryable
    assert caught.value.__cause__ is cause


NOT_NULL = pa.schema([pa.field("n", pa.int64(), nullable=False)])
MAP = pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32()))})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda uri: lance_spark.write_dataset(MAP, f"{uri}/m", data_storage_version="2.0"), "'m'"),
        (
            lambda uri: lance_spark.write_dataset(
                pa.table({"n": pa.array([1, None], pa.int64())}), uri, mode="append"
            ),
            "'n' must not be null",
        ),
        (lambda uri: lance_spark.open_dataset(uri).to_table(["x"]), "no field 'x'"),
        (lambda uri: lance_spark.open_dataset(uri).to_table(filter="x = 1"), "column x not found"),
        (
            lambda uri: lance_spark.open_dataset(uri).add_columns({"n": 1}),
            "column 'n' exists already",
        ),
    ],
)
def test_errors_of_invalid_calls_name_the_table(
    tmp_path: Path, call: Callable[[str], object], message: str
) -> None:
    uri = str(tmp_path)
    lance_spark.write_dataset(pa.table({"n": [1]}, schema=NOT_NULL), uri)
    with pytest.raises(LanceError, match=message) as caught:
        call(uri)
    assert uri in str(caught.value)


def test_errors_hide_secrets_of_the_path() -> None:
    with pytest.raises(LanceError, match="'m'") as caught:
        lance_spark.write_dataset(MAP, "memory://user:secret@host/t", data_storage_version="2.0")
    assert "memory://***@host/t: " in str(caught.value)
    assert "secret" not in str(caught.value)
