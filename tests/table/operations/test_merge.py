"""Merge and Project, as low-level commits of pylance create them, and refusals of both clients."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction, read_transaction
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest import schema_changes
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import read_latest
from lance_spark.table.operations.columns import Merge, Project
from tests.support.tables.pylance_written import new_table, rows, written_by_pylance
from tests.table.operations.test_data_replacement import ours, write

Kinds = lance.LanceOperation


def newest(path: Path) -> Manifest:
    return read_latest(ObjectStore.from_uri(path))


def commit_ours(path: Path, operation: Merge | Project) -> Manifest:
    base = newest(path)
    return commit(ObjectStore.from_uri(path), Transaction.new(base.version, operation), base)


def schema_with(path: Path, *new: pa.Field, first: int) -> tuple[file_pb2.Field, ...]:
    protos = newest(path).to_proto().fields
    return (*protos, *Schema.from_arrow(pa.schema(list(new)), first).to_protos())


def content(path: Path) -> tuple[list[object], list[object], bytes | None, int, int]:
    proto = newest(path).to_proto()
    fragments = [fragment.SerializeToString(deterministic=True) for fragment in proto.fragments]
    names: list[object] = [(field.name, field.id, field.nullable) for field in proto.fields]
    index = newest(path).index_section
    return list(fragments), names, index, proto.max_fragment_id, proto.next_row_id


@pytest.mark.parametrize("stable", [False, True])
def test_merges_equal_those_of_pylance(tmp_path: Path, stable: bool) -> None:
    """One fragment has a new file, the other none, and a fragment follows them."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    dataset = new_table(theirs, enable_stable_row_ids=stable)
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id = 4")
    dataset.update_schema_metadata({"kept": "1"})
    new = lance.fragment.write_fragments(rows(50), str(theirs))
    file = write(theirs, pa.table({"x": pa.array([7, 8, 9], pa.int64())}), [2])
    shutil.copytree(theirs, mine)

    fragments = [fragment.metadata for fragment in lance.dataset(str(theirs)).get_fragments()]
    fragments[0].files.append(file)
    arrow = lance.dataset(str(theirs)).schema.append(pa.field("x", pa.int64()))
    version = newest(theirs).version
    with pytest.warns(DeprecationWarning, match="pyarrow.Schema"):
        operation = Kinds.Merge([*fragments, *new], arrow)
    lance.LanceDataset.commit(str(theirs), operation, read_version=version)

    old = newest(mine).fragments
    changed = old[0].to_proto()
    changed.files.append(ours(file).to_proto())
    first = Fragment.from_proto(changed, "test")
    added = Fragment(0, [ours(file) for file in new[0].files], new[0].physical_rows)
    schema = schema_with(mine, pa.field("x", pa.int64()), first=2)
    made = commit_ours(mine, Merge((first, old[1], added), schema))
    assert content(mine) == content(theirs)
    assert made.schema_metadata == {"kept": b"1"}
    table = lance.dataset(str(mine)).to_table()
    assert table == lance.dataset(str(theirs)).to_table() == open_dataset(str(mine)).to_table()
    assert table["x"].to_pylist() == [7, 8, 9, None, None, None, None, None]
    parsed = read_transaction(ObjectStore.from_uri(theirs), newest(theirs))
    assert parsed is not None
    assert isinstance(parsed.operation, Merge)
    assert parsed.operation.can_add_required_columns


def test_invalid_merges_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path, enable_stable_row_ids=True)
    first, second = newest(path).fragments
    fields = tuple(newest(path).to_proto().fields)
    (extra,) = written_by_pylance(path, rows(9))

    def altered(fragment: Fragment, **values: object) -> Fragment:
        proto = fragment.to_proto()
        for name, value in values.items():
            setattr(proto, name, value)
        return Fragment.from_proto(proto, "test")

    without_ids = first.to_proto()
    without_ids.ClearField("inline_row_ids")
    new = schema_with(path, pa.field("x", pa.int64()), first=2)
    used = schema_with(path, pa.field("x", pa.int64()), first=1)
    for fragments, schema, message in [
        ((first,), fields, "fragment 1 is not among"),
        ((first, first), fields, "fragment twice"),
        ((first, altered(extra, id=5)), fields, "fragment 1 is not among"),
        ((first, altered(second, physical_rows=4)), fields, "would have 4"),
        ((Fragment.from_proto(without_ids, "test"), second), fields, "row ids"),
        ((first, second, altered(extra, id=5)), fields, "id 0"),
        ((first, second), (), "at least one column"),
        ((first, second), used, "would become 'x'"),
        ((first, second), (*new, *new[2:]), "a field id twice"),
        ((first, second), (fields[0], *used[2:]), "would become 'x'"),
        ((first, second), schema_with(path, pa.field("id", pa.int8()), first=2), "same name"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            commit_ours(path, Merge(fragments, schema))
    assert newest(path).version == 1


def test_ids_of_dropped_columns_are_not_reused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path).drop_columns(["word"])
    schema = schema_with(path, pa.field("x", pa.int64()), first=1)
    with pytest.raises(InvalidInputError, match="ids up to 1"):
        commit_ours(path, Merge(newest(path).fragments, schema))
    fragments = [fragment.metadata for fragment in lance.dataset(str(path)).get_fragments()]
    arrow = lance.dataset(str(path)).schema.append(pa.field("x", pa.int64()))
    with pytest.warns(DeprecationWarning, match="pyarrow.Schema"):
        operation = Kinds.Merge(fragments, arrow)
    with pytest.raises(OSError, match="ids up to 1"):
        lance.LanceDataset.commit(str(path), operation, read_version=2)


@pytest.mark.parametrize("names", [["id"], ["word"], ["x"], ["id", "x"]])
def test_projections_equal_those_of_pylance(tmp_path: Path, names: list[str]) -> None:
    """The columns are in two files."""
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    dataset = new_table(theirs, enable_stable_row_ids=True)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("word", "BITMAP")
    dataset.add_columns({"x": "id * 2"})
    dataset.update_field_metadata({"id": {"k": "v"}})
    shutil.copytree(theirs, mine)
    dataset = lance.dataset(str(theirs))
    operation = Kinds.Project(_lance_schema(theirs, names))
    lance.LanceDataset.commit(str(theirs), operation, read_version=dataset.version)
    by_name = {field.name: field for field in newest(mine).to_proto().fields}
    commit_ours(mine, Project(tuple(by_name[name] for name in names)))
    assert content(mine) == content(theirs)
    table = lance.dataset(str(mine)).to_table()
    assert table.schema.names == names
    assert table == lance.dataset(str(theirs)).to_table() == open_dataset(str(mine)).to_table()


def _lance_schema(path: Path, names: list[str]) -> object:
    """pylance's schema with the ids of the table: pylance creates it from a projected dataset."""
    scratch = path.parent / "scratch"
    shutil.copytree(path, scratch)
    dataset = lance.dataset(str(scratch))
    dataset.drop_columns([name for name in dataset.schema.names if name not in names])
    made = dataset.lance_schema
    assert [field.name() for field in made.fields()] == names
    return made


def test_invalid_projections_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    fields = tuple(newest(path).to_proto().fields)
    strange = file_pb2.Field()
    strange.CopyFrom(fields[0])
    strange.id = 9
    for schema, message in [((), "at least one"), ((strange,), r"fields \[9\]")]:
        with pytest.raises(InvalidInputError, match=message):
            commit_ours(path, Project(schema))


def test_fragments_without_values(tmp_path: Path) -> None:
    """Only columns without values remain."""
    path = tmp_path / "t"
    new_table(path).add_columns(pa.field("later", pa.int32()))
    made = open_dataset(str(path)).drop_columns(["id", "word"])
    assert made.to_table()["later"].to_pylist() == [None] * 6
    assert lance.dataset(str(path)).to_table() == made.to_table()
    again = made.add_columns({"x": 1})
    assert again.to_table()["x"].to_pylist() == [1] * 6
    assert lance.dataset(str(path)).to_table() == again.to_table()


def test_overlays_are_removed_with_their_columns() -> None:
    builder = ManifestBuilder(None)
    builder.proto.fields.add(id=0, name="a", parent_id=-1)
    fragment = builder.proto.fragments.add(id=3, physical_rows=1)
    fragment.files.add(path="f", fields=[0, 1, -3])
    for number in (0, 1, schema_changes.TOMBSTONE):
        fragment.overlays.add(data_file=table_pb2.DataFile(path=f"o{number}", fields=[number]))
    schema_changes.drop_dead_files(builder)
    assert [overlay.data_file.path for overlay in builder.proto.fragments[0].overlays] == ["o0"]
    builder.proto.fields[0].id = 7
    schema_changes.drop_dead_files(builder)
    assert not builder.proto.fragments[0].overlays
    assert [file.path for file in builder.proto.fragments[0].files] == ["f"]


def test_columns_are_reordered(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path).add_columns({"x": "id * 2"})
    by_name = {field.name: field for field in newest(path).to_proto().fields}
    commit_ours(path, Project(tuple(by_name[name] for name in ("x", "word", "id"))))
    table = lance.dataset(str(path)).to_table()
    assert table.schema.names == ["x", "word", "id"]
    assert table.select(["id", "word"]) == rows(0, 6)
    assert open_dataset(str(path)).to_table() == table


@pytest.mark.parametrize("stable", [False, True])
def test_an_index_does_not_cover_fragments_whose_column_a_merge_rewrote(
    tmp_path: Path, stable: bool
) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    dataset = new_table(theirs, enable_stable_row_ids=stable)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("word", "BTREE")
    file = write(theirs, pa.table({"id": pa.array([9, 9, 9], pa.int64())}), [0])
    shutil.copytree(theirs, mine)
    schema = lance.dataset(str(theirs)).lance_schema
    fragments = [fragment.metadata for fragment in lance.dataset(str(theirs)).get_fragments()]
    fragments[0].files[0].fields = [-2, 1]
    fragments[0].files.append(file)
    lance.LanceDataset.commit(str(theirs), Kinds.Merge(fragments, schema), read_version=3)

    first, second = newest(mine).fragments
    changed = first.to_proto()
    changed.files[0].fields[0] = schema_changes.TOMBSTONE
    changed.files.append(ours(file).to_proto())
    fields = tuple(newest(mine).to_proto().fields)
    commit_ours(mine, Merge((Fragment.from_proto(changed, "test"), second), fields))
    assert content(mine) == content(theirs)
    result = lance.dataset(str(mine))
    covered = {index["name"]: set(index["fragment_ids"]) for index in result.list_indices()}
    assert covered == {"id_idx": {1}, "word_idx": {0, 1}}
    assert result.to_table(filter="id = 9").num_rows == 3
    assert result.to_table(filter="id = 1").num_rows == 0
