"""Commits on tables of pylance, validated by pylance."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark.dataset.write import write_dataset
from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import rowids_pb2, table_pb2, transaction_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction, read_transaction
from lance_spark.table.manifest import codec as manifest_file
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import read_latest
from lance_spark.table.operations.append import Append, Overwrite
from tests.support.tables.damaged import rewrite_manifest
from tests.support.tables.pylance_written import ids, manifests, new_table, rows, written_by_pylance
from tests.table.commit.changes import append, create, overwrite, transaction_files


def test_create(path: Path) -> None:
    data = rows(0).replace_schema_metadata({"m": "n"})
    operation = overwrite(
        path,
        data,
        data_storage_version=(2, 1),
        config_upsert_values={"a": "b"},
        table_metadata={"c": "d"},
    )
    written = written_by_pylance(path, rows(0), "2.1")
    operation = replace(operation, fragments=written)
    made = commit(ObjectStore.from_uri(path), Transaction.new(0, operation), None)
    dataset = lance.dataset(str(path))
    assert ids(path) == [0, 1, 2]
    assert (made.version, dataset.version) == (1, 1)
    assert dataset.config() == {"a": "b"}
    assert dataset.metadata == {"c": "d"}
    assert dataset.schema.metadata == {b"m": b"n"}
    assert dataset.data_storage_version == "2.1"
    assert (path / "_versions" / "18446744073709551614.manifest").is_file()
    assert json.loads((path / "_versions/latest_version_hint.json").read_text()) == {"version": 1}
    (file,) = (path / "_transactions").iterdir()
    assert file.read_bytes() == manifests(path)[0].transaction_section
    assert file.name == manifests(path)[0].transaction_file


def test_create_empty_table(path: Path) -> None:
    schema = Schema.from_arrow(rows(0).schema)
    operation = Overwrite((), tuple(schema.to_protos()), data_storage_version=(2, 2))
    made = commit(ObjectStore.from_uri(path), Transaction.new(0, operation), None)
    assert made.max_fragment_id is None
    assert ids(path) == []
    lance.write_dataset(rows(0), str(path), mode="append")
    assert ids(path) == [0, 1, 2]


def test_existing_table_is_not_created(path: Path) -> None:
    create(path)
    before = transaction_files(path)
    with pytest.raises(TableExistsError, match="version 1 only"):
        create(path)
    assert transaction_files(path) == before


@pytest.mark.parametrize("v2_names", [True, False])
def test_append(path: Path, v2_names: bool) -> None:
    new_table(path, enable_v2_manifest_paths=v2_names)
    assert append(path, 6).version == 2
    lance.write_dataset(rows(9), str(path), mode="append")
    assert append(path, 12).version == 4
    assert ids(path) == list(range(15))
    assert [f.fragment_id for f in lance.dataset(str(path)).get_fragments()] == list(range(5))
    assert ids(path, 2) == list(range(9))


def test_commits_equal_those_of_pylance(tmp_path: Path) -> None:
    """The messages differ only in names, times and the writer."""

    def bare(manifest: Manifest) -> str:
        proto = manifest.to_proto()
        for name in ("timestamp", "writer_version", "transaction_file", "transaction_section"):
            proto.ClearField(name)
        for fragment in proto.fragments:
            for file in fragment.files:
                file.path = ""
        assert manifest.transaction_section is not None
        transaction = transaction_pb2.Transaction.FromString(manifest.transaction_section)
        transaction.uuid = ""
        for fragment in (*transaction.append.fragments, *transaction.overwrite.fragments):
            for file in fragment.files:
                file.path = ""
        return f"{proto}{transaction}"

    for stable in (False, True):
        ours, theirs = tmp_path / f"ours{stable}", tmp_path / f"theirs{stable}"
        create(ours, enable_stable_row_ids=stable)
        lance.write_dataset(rows(0), str(theirs), enable_stable_row_ids=stable)
        append(ours, 3)
        lance.write_dataset(rows(3), str(theirs), mode="append")
        data = rows(6).append_column("more", pa.array([1, 2, 3]))
        base = read_latest(ObjectStore.from_uri(ours))
        commit(
            ObjectStore.from_uri(ours),
            Transaction.new(base.version, overwrite(ours, data)),
            base,
        )
        lance.write_dataset(data, str(theirs), mode="overwrite")
        commits = list(zip(manifests(ours), manifests(theirs), strict=True))
        assert len(commits) == 3
        for our_manifest, their_manifest in commits:
            assert bare(our_manifest) == bare(their_manifest)


def test_append_changes_only_fragments(path: Path) -> None:
    dataset = new_table(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.update_config({"a": "b"})
    dataset.update_metadata({"c": "d"})
    dataset.update_schema_metadata({"e": "f"})
    dataset.delete("id = 4")
    before = manifests(path)[-1]
    after = append(path, 6)
    dataset = lance.dataset(str(path))
    assert after.index_section == before.index_section
    assert [index["name"] for index in dataset.list_indices()] == ["id_idx"]
    assert dataset.to_table(filter="id = 3 or id = 7")["id"].to_pylist() == [3, 7]
    assert dataset.config() == {"a": "b"}
    assert dataset.metadata == {"c": "d"}
    assert dataset.schema.metadata == {b"e": b"f"}
    assert ids(path) == [0, 1, 2, 3, 5, 6, 7, 8]
    dataset.optimize.compact_files()
    dataset.optimize.optimize_indices()
    assert sorted(ids(path)) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_clusterings_are_dropped_with_their_columns(path: Path) -> None:
    new_table(path)
    clustering = table_pb2.Manifest(max_clustering_id=1)
    clustering.clustering.add(id=1, columns=[0], provider="p")
    rewrite_manifest(path, lambda proto: proto.MergeFrom(clustering))
    store = ObjectStore.from_uri(path)
    kept = append(path, 6).to_proto()
    assert [c.provider for c in kept.clustering] == ["p"]
    base = read_latest(store)
    transaction = Transaction.new(base.version, overwrite(path, rows(0)))
    gone = commit(store, transaction, base).to_proto()
    assert (len(gone.clustering), gone.max_clustering_id) == (0, 1)


def test_overwrite_replaces_only_rows_and_schema(path: Path) -> None:
    dataset = new_table(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.update_config({"a": "b"})
    dataset.update_metadata({"c": "d"})
    dataset.update_schema_metadata({"e": "f"})
    dataset.delete("id = 4")
    store, base = ObjectStore.from_uri(path), manifests(path)[-1]
    data = pa.table({"id": pa.array([50], pa.int64()), "other": [1.5]})
    commit(store, Transaction.new(base.version, overwrite(path, data)), base)
    dataset = lance.dataset(str(path))
    assert dataset.to_table() == data
    assert dataset.schema.metadata is None
    assert dataset.list_indices() == []
    assert (dataset.config(), dataset.metadata) == ({"a": "b"}, {"c": "d"})
    assert [fragment.fragment_id for fragment in dataset.get_fragments()] == [2]
    assert manifests(path)[-1].flags.reader == 0
    assert ids(path, 1) == list(range(6))


def test_stable_row_ids(path: Path) -> None:
    create(path, enable_stable_row_ids=True)
    append(path, 3)
    lance.dataset(str(path)).delete("id = 1")
    lance.dataset(str(path)).update({"word": "'x'"}, where="id = 4")
    made = append(path, 6)
    assert made.next_row_id == 9
    proto = made.to_proto().fragments[-1]
    ids_of_rows = rowids_pb2.RowIdSequence.FromString(proto.inline_row_ids)
    created = rowids_pb2.RowDatasetVersionSequence.FromString(proto.inline_created_at_versions)
    assert [(s.range.start, s.range.end) for s in ids_of_rows.segments] == [(6, 9)]
    assert [(r.span.range.end, r.version) for r in created.runs] == [(3, made.version)]
    table = lance.dataset(str(path)).to_table(
        columns=["id", "_row_created_at_version", "_row_last_updated_at_version"], with_row_id=True
    )
    result = {row["id"]: tuple(row.values())[1:] for row in table.to_pylist()}
    assert result[0] == (1, 1, 0)
    assert result[3] == (2, 2, 3)
    assert result[4][1:] == (4, 4)
    assert result[8] == (5, 5, 8)
    lance.dataset(str(path)).optimize.compact_files()
    assert sorted(ids(path)) == [0, 2, 3, 4, 5, 6, 7, 8]


def test_row_ids_in_hidden_columns(path: Path) -> None:
    dataset = new_table(path, enable_stable_row_ids=True)
    dataset.update_config(
        {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"}
    )
    dataset.delete("id = 1 or id = 4")
    dataset.optimize.compact_files()
    assert manifests(path)[-1].flags.reader == 2050
    made = append(path, 6)
    assert (made.flags.reader, made.flags.writer) == (2050, 2058)
    table = lance.dataset(str(path)).to_table(columns=["id"], with_row_id=True)
    assert table["_rowid"].to_pylist() == table["id"].to_pylist() == [0, 2, 3, 5, 6, 7, 8]


def test_files_of_several_versions(path: Path) -> None:
    new_table(path, data_storage_version="2.1")
    lance.write_dataset(rows(6), str(path), mode="append", data_storage_version="2.2")
    made = append(path, 9)
    assert (made.flags.reader, made.flags.writer) == (256, 256)
    assert ids(path) == list(range(12))


def test_field_ids_that_are_never_used_again(path: Path) -> None:
    new_table(path)
    change = table_pb2.Manifest(writer_feature_flags=1 << 15, max_allocated_field_id=5)
    rewrite_manifest(path, lambda proto: proto.MergeFrom(change))
    store = ObjectStore.from_uri(path)
    made = append(path, 6)
    assert (made.flags.writer, made.to_proto().max_allocated_field_id) == (1 << 15, 5)
    assert ids(path) == list(range(9))
    with pytest.raises(CommitConflictError, match="never reuses field ids"):
        commit(store, Transaction.new(2, overwrite(path, rows(0))), made)
    written = write_dataset(rows(0), str(path), mode="overwrite")
    made = read_latest(store)
    assert [field.id for field in made.to_proto().fields] == [6, 7]
    assert (made.flags.writer, made.to_proto().max_allocated_field_id) == (1 << 15, 7)
    assert lance.dataset(str(path)).to_table() == written.to_table() == rows(0)


def test_transaction_records_its_read_version(path: Path) -> None:
    new_table(path)
    base = read_latest(ObjectStore.from_uri(path))
    lance.write_dataset(rows(6), str(path), mode="append")
    made = append(path, 9, base=base)
    transaction = read_transaction(ObjectStore.from_uri(path), made)
    assert transaction is not None
    assert (made.version, transaction.read_version) == (3, 1)
    assert made.transaction_file == transaction.file_name
    assert len(transaction_files(path)) == 3


def test_conflict_deletes_the_transaction_file(path: Path) -> None:
    new_table(path)
    base = read_latest(ObjectStore.from_uri(path))
    lance.write_dataset(rows(6), str(path), mode="overwrite")
    before = transaction_files(path)
    with pytest.raises(
        CommitConflictError, match=r"append is incompatible with version 2 \(overwrite\)"
    ) as e:
        append(path, 9, base=base)
    assert not e.value.retryable
    assert transaction_files(path) == before
    assert ids(path) == [6, 7, 8]


def test_removed_versions_cause_a_conflict(path: Path) -> None:
    new_table(path)
    base = read_latest(ObjectStore.from_uri(path))
    append(path, 6)
    append(path, 9)
    (path / versions.NamingScheme.V2.locate(2).path).unlink()
    with pytest.raises(
        CommitConflictError, match="cleanup has removed version 2, which was committed"
    ) as e:
        append(path, 12, base=base)
    assert e.value.retryable


def test_deleted_table(path: Path) -> None:
    new_table(path)
    base = read_latest(ObjectStore.from_uri(path))
    (path / versions.NamingScheme.V2.locate(1).path).unlink()
    with pytest.raises(TableNotFoundError, match="the table was deleted"):
        append(path, 6, base=base)


#: Field 150 of Transaction: an empty message.
UNKNOWN = (
    transaction_pb2.Transaction(read_version=1, uuid="u").SerializeToString() + b"\xb2\x09\x00"
)


@pytest.mark.parametrize(
    ("transaction", "message"),
    [(None, "transaction not recorded"), (UNKNOWN, r"version 2 \(unknown operation 150\)")],
)
def test_unknown_changes(path: Path, transaction: bytes | None, message: str) -> None:
    new_table(path)
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    proto = base.to_proto()
    proto.version = 2
    proto.transaction_file = ""
    data = manifest_file.encode(proto, None, transaction)
    store.put_if_absent(versions.NamingScheme.V2.locate(2).path, data)
    with pytest.raises(CommitConflictError, match=message) as e:
        append(path, 6, base=base)
    assert e.value.retryable


def test_transaction_only_in_its_file(path: Path) -> None:
    """As the first writers of Lance wrote it, and a name that leads out of the table."""
    new_table(path)
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    append(path, 6)
    location = versions.NamingScheme.V2.locate(2)
    second = manifest_file.read_manifest(store, location)
    store.write_bytes(location.path, manifest_file.encode(second.to_proto(), None, None))
    assert append(path, 9, base=base).version == 3
    proto = second.to_proto()
    proto.transaction_file = "../_versions/x"
    store.write_bytes(location.path, manifest_file.encode(proto, None, None))
    with pytest.raises(CorruptTableError, match="its transaction file"):
        append(path, 12, base=base)


@pytest.mark.parametrize("name", ["id", "number"])
def test_append_after_a_change_of_type(path: Path, name: str) -> None:
    """With another name, pylance commits this and loses the values: no field has their id."""
    new_table(path)
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    fragments = written_by_pylance(path, rows(6))
    change = {"path": "id", "data_type": pa.int32(), "name": name}
    lance.dataset(str(path)).alter_columns(change)
    planned = Append(fragments, {("id",): 0, ("word",): 1})
    with pytest.raises(CommitConflictError, match="the type of column 'id' was changed") as e:
        commit(store, Transaction.new(1, planned), base)
    assert e.value.retryable


def test_append_after_drop_and_add_of_columns(path: Path) -> None:
    new_table(path)
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    fragments = written_by_pylance(path, rows(6))
    dataset = lance.dataset(str(path))
    dataset.add_columns({"twice": "id * 2"})
    dataset.drop_columns(["word"])
    dataset.add_columns({"thrice": "id * 3"})
    commit(store, Transaction.new(1, Append(fragments, {("id",): 0, ("word",): 1})), base)
    assert ids(path) == list(range(9))


def test_files_with_another_file_version(path: Path) -> None:
    new_table(path, data_storage_version="2.1")
    store, base = ObjectStore.from_uri(path), manifests(path)[0]
    operation = Append(written_by_pylance(path, rows(6), "2.2"))
    with pytest.raises(
        InvalidInputError, match=r"has version 2\.2, but the files of the table have version 2\.1"
    ):
        commit(store, Transaction.new(1, operation), base)


@pytest.mark.parametrize("flag", [512, 16384, 65536, 1 << 50])
def test_unknown_writer_features(path: Path, flag: int) -> None:
    new_table(path)
    rewrite_manifest(path, lambda proto: setattr(proto, "writer_feature_flags", flag))
    assert read_latest(ObjectStore.from_uri(path)).num_rows == 6
    with pytest.raises(UnsupportedFeatureError, match=f"writer feature flag {flag} "):
        append(path, 6)


def test_table_without_transaction_files(path: Path) -> None:
    new_table(path)
    rewrite_manifest(path, lambda proto: setattr(proto, "writer_feature_flags", 32))
    before = transaction_files(path)
    made = append(path, 6)
    assert made.flags.writer == 32
    assert transaction_files(path) == before
    assert ids(path) == list(range(9))


def test_append_counts_rows_of_early_releases(path: Path) -> None:
    new_table(path)
    lance.dataset(str(path)).delete("id = 1")

    def change(proto: table_pb2.Manifest) -> None:
        proto.ClearField("writer_version")
        # Counts that such releases recorded may be wrong.
        proto.fragments[0].physical_rows = 2
        proto.fragments[0].deletion_file.num_deleted_rows = 2

    rewrite_manifest(path, change)
    made = append(path, 6)
    assert [fragment.num_rows for fragment in made.fragments] == [2, 3, 3]
    assert lance.dataset(str(path)).count_rows() == 8
    lance.dataset(str(path)).validate()
