"""Operations that a user builds of fragments, committed by this package and by pylance."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import LanceOperation, write_fragments
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import file_pb2
from lance_spark.table.fragments.fragment import with_id
from lance_spark.table.paths import BasePath

LINEAGE = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


class Client:
    """One client, and a table of its own: fragments of two rows, `k` is 0 to 5."""

    def __init__(self, path: Path, stable: bool = False) -> None:
        self.path = str(path)
        data = pa.table({"k": range(6)})
        lance.write_dataset(data, self.path, max_rows_per_file=2, enable_stable_row_ids=stable)

    @property
    def operations(self) -> Any:
        return LanceOperation

    def open(self) -> Any:
        return lance_spark.open_dataset(self.path)

    def commit(self, operation: Any) -> None:
        lance_spark.Dataset.commit(self.path, operation, self.open().version)

    def rows(self, columns: list[str]) -> list[dict[str, Any]]:
        """Return the rows, after a check that both clients read the same."""
        lance.dataset(self.path).validate()
        lance_spark.open_dataset(self.path).validate()
        rows = lance.dataset(self.path).to_table(columns=columns)
        assert lance_spark.open_dataset(self.path).to_table(columns).equals(rows)
        listed: list[dict[str, Any]] = rows.to_pylist()
        return listed


class Pylance(Client):
    @property
    def operations(self) -> Any:
        return lance.LanceOperation

    def open(self) -> Any:
        return lance.dataset(self.path)

    def commit(self, operation: Any) -> None:
        version = self.open().version
        lance.LanceDataset.commit(self.path, operation, read_version=version)


@pytest.mark.parametrize("client_class", [Client, Pylance])
def test_a_delete_of_fragments_that_lose_no_rows(
    tmp_path: Path, client_class: type[Client]
) -> None:
    client = client_class(tmp_path / "t")
    changed = [fragment.delete("k = 3") for fragment in client.open().get_fragments()]
    client.commit(client.operations.Delete(changed, [], "k = 3"))
    assert [row["k"] for row in client.rows(["k"])] == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("name", ["Delete", "Update", "Merge"])
def test_deleted_rows_do_not_come_back(tmp_path: Path, name: str) -> None:
    """pylance brings them back, and indexes of both clients do not find them."""
    client = Client(tmp_path / "t")
    stale = [fragment.metadata for fragment in client.open().get_fragments()]
    client.open().delete("k = 3")
    client.open().create_scalar_index("k", "BTREE")
    operation = {
        "Delete": LanceOperation.Delete(stale, [], ""),
        "Update": LanceOperation.Update(updated_fragments=stale),
        "Merge": LanceOperation.Merge(stale, client.open().lance_schema),
    }[name]
    with pytest.raises(InvalidInputError, match="fragment 1 with 0 deleted rows, but 1 of its"):
        client.commit(operation)
    assert [row["k"] for row in client.rows(["k"])] == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("client_class", [Client, Pylance])
def test_new_fragments_of_a_rewrite_get_new_ids(tmp_path: Path, client_class: type[Client]) -> None:
    client = client_class(tmp_path / "t")
    lance.dataset(client.path).create_scalar_index("k", "BTREE")
    operations = client.operations
    old = [fragment.metadata for fragment in client.open().get_fragments()]
    rows = pa.table({"k": [5, 4, 3, 2, 1, 0]})
    new = lance.fragment.write_fragments(rows, client.path, mode="append")
    if client_class is Client:
        new = write_fragments(rows, client.open())
    client.commit(operations.Rewrite([operations.RewriteGroup(old, new)], []))
    assert [fragment.fragment_id for fragment in client.open().get_fragments()] == [3]
    # The index has rows of the replaced fragment 0.
    for dataset in (lance.dataset(client.path), lance_spark.open_dataset(client.path)):
        assert dataset.to_table(filter="k = 0")["k"].to_pylist() == [0]
        assert dataset.to_table(filter="k = 5")["k"].to_pylist() == [5]


def test_a_rewrite_with_the_id_of_a_replaced_fragment(tmp_path: Path) -> None:
    client = Client(tmp_path / "t")
    old = [fragment.metadata for fragment in client.open().get_fragments()]
    (new,) = write_fragments(pa.table({"k": range(6)}), client.open())
    group = LanceOperation.RewriteGroup(old, [with_id(new, 2)])
    with pytest.raises(InvalidInputError, match="id 2, which is that of a replaced fragment"):
        client.commit(LanceOperation.Rewrite([group]))


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("name", ["Append", "Overwrite", "Update"])
def test_fragments_with_deletion_files_are_not_new(tmp_path: Path, name: str, stable: bool) -> None:
    client = Client(tmp_path / "t", stable)
    client.open().delete("k = 3")
    dataset = client.open()
    fragments = [dataset.get_fragment(1).metadata]
    operation = {
        "Append": LanceOperation.Append(fragments),
        "Overwrite": LanceOperation.Overwrite(dataset.schema, fragments),
        "Update": LanceOperation.Update(removed_fragment_ids=[1], new_fragments=fragments),
    }[name]
    with pytest.raises(InvalidInputError, match="fragment 1 has a deletion file"):
        client.commit(operation)
    assert [row["k"] for row in client.rows(["k"])] == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("name", ["Append", "Update", "Merge"])
def test_a_fragment_of_the_table_is_not_new(
    tmp_path: Path, name: str, number: int, stable: bool
) -> None:
    """pylance adds the fragment 0 a second time, so that two live rows have one row id."""
    client = Client(tmp_path / "t", stable)
    dataset = client.open()
    fragments = [dataset.get_fragment(number).metadata]
    existing = [fragment.metadata for fragment in dataset.get_fragments()]
    operation = {
        "Append": LanceOperation.Append(fragments),
        "Update": LanceOperation.Update(new_fragments=fragments),
        "Merge": LanceOperation.Merge([*existing, *fragments], dataset.lance_schema),
    }[name]
    with pytest.raises(
        InvalidInputError, match=r"already|must have the id 0|must not have row ids"
    ):
        client.commit(operation)
    assert [row["k"] for row in client.rows(["k"])] == [0, 1, 2, 3, 4, 5]


def test_an_update_that_does_not_list_its_fields(tmp_path: Path) -> None:
    """pylance leaves the index as it is, and finds the rows by their old values."""
    client = Client(tmp_path / "t")
    lance.dataset(client.path).add_columns({"v": "k * 10"})
    lance.dataset(client.path).create_scalar_index("v", "BTREE")
    new = pa.table({"k": [2], "v": [7]})
    changed, _ = client.open().get_fragment(1).update_columns(new, "k")
    update = LanceOperation.Update(updated_fragments=[changed], update_mode="rewrite_columns")
    client.commit(update)
    for dataset in (lance.dataset(client.path), client.open()):
        assert dataset.to_table(filter="v = 7")["k"].to_pylist() == [2]
        assert dataset.to_table(filter="v = 20")["k"].to_pylist() == []


def test_row_ids_of_live_rows_are_not_added(tmp_path: Path) -> None:
    """pylance adds them, and cannot read the rows by their ids then."""
    client = Client(tmp_path / "t", stable=True)
    old = [client.open().get_fragment(2).metadata]
    client.open().update({"k": 50}, "k = 5")
    client.open().delete("k = 4")
    assert [fragment.fragment_id for fragment in client.open().get_fragments()] == [0, 1, 3]
    with pytest.raises(InvalidInputError, match="belong to live rows, such as 5"):
        client.commit(LanceOperation.Append(old))
    assert [row["k"] for row in client.rows(["k"])] == [0, 1, 2, 3, 50]


@pytest.mark.parametrize("name", ["Append", "Overwrite", "Update"])
def test_the_versions_of_fragments_that_are_added_again(tmp_path: Path, name: str) -> None:
    """Their rows keep the row ids, and the new version is the last that updated them."""
    contents = []
    for client in (Client(tmp_path / "mine", True), Pylance(tmp_path / "theirs", True)):
        dataset = client.open()
        fragments = [dataset.get_fragment(2).metadata]
        if name != "Update":
            client.open().delete("k >= 4")
        operation = {
            "Append": client.operations.Append(fragments),
            "Overwrite": client.operations.Overwrite(dataset.schema, fragments),
            "Update": client.operations.Update(removed_fragment_ids=[2], new_fragments=fragments),
        }[name]
        client.commit(operation)
        contents.append(client.rows(["k", *LINEAGE]))
    assert contents[0] == contents[1]


class Wide(Client):
    """Columns of one type, of which an Arrow schema can be numbered in any order."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        data = pa.table({"k": [1, 2], "a": [10, 20], "b": [100, 200]})
        lance.write_dataset(data, self.path, mode="overwrite")


class WidePylance(Wide, Pylance):
    pass


INT = pa.int64()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("a", INT), ("k", INT), ("b", INT)]), "field 0 is 'k', and would become 'a'"),
        (pa.schema([("k", INT), ("b", INT)]), "field 1 is 'a', and would become 'b'"),
        (
            pa.schema([pa.field("k", INT, False), ("a", INT), ("b", INT)]),
            "must not make the existing field 'k' required",
        ),
    ],
)
def test_a_merge_does_not_give_columns_the_values_of_others(
    tmp_path: Path, schema: pa.Schema, message: str
) -> None:
    """The fields of an Arrow schema are numbered again. pylance refuses such schemas, too."""
    for client in (Wide(tmp_path / "mine"), WidePylance(tmp_path / "theirs")):
        fragments = [fragment.metadata for fragment in client.open().get_fragments()]
        operation = client.operations.Merge(fragments, schema, preserves_nullability=True)
        error = OSError if isinstance(client, Pylance) else InvalidInputError
        with pytest.raises(error, match="Merge operation" if error is OSError else message):
            client.commit(operation)
        assert client.rows(["k", "a", "b"])[0] == {"k": 1, "a": 10, "b": 100}


def _schema(client: Client, change: Callable[[list[file_pb2.Field]], object]) -> Schema:
    protos = lance_spark.open_dataset(client.path).lance_schema._schema.to_protos()
    change(protos)
    return Schema.from_protos(protos)


def test_a_merge_can_rename_and_reorder_columns(tmp_path: Path) -> None:
    client = Wide(tmp_path / "t")
    fragments = [fragment.metadata for fragment in client.open().get_fragments()]

    def change(protos: list[file_pb2.Field]) -> None:
        protos.reverse()
        protos[0].name = "c"

    client.commit(LanceOperation.Merge(fragments, _schema(client, change)))
    assert client.rows(["c", "a", "k"])[1] == {"c": 200, "a": 20, "k": 2}
    assert client.open().schema.names == ["c", "a", "k"]


def test_a_merge_does_not_lose_the_values_of_a_column(tmp_path: Path) -> None:
    client = Wide(tmp_path / "t")
    fragments = [fragment.metadata for fragment in client.open().get_fragments()]

    def change(protos: list[file_pb2.Field]) -> None:
        protos[2].id = 3

    with pytest.raises(InvalidInputError, match="has no file with this field, so its"):
        client.commit(LanceOperation.Merge(fragments, _schema(client, change)))
    assert client.rows(["k", "a", "b"])[1] == {"k": 2, "a": 20, "b": 200}


def test_a_projection_keeps_the_types_of_columns(tmp_path: Path) -> None:
    """The files keep the type before. pylance makes a version that no client can read."""
    client = Wide(tmp_path / "t")

    def change(protos: list[file_pb2.Field]) -> None:
        protos[1].logical_type = "int32"

    with pytest.raises(InvalidInputError, match="field 1 is 'a' of type int64, and would become"):
        client.commit(LanceOperation.Project(_schema(client, change)))
    assert client.rows(["k", "a", "b"])[0] == {"k": 1, "a": 10, "b": 100}


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_an_overwrite_creates_a_table(tmp_path: Path, version: str, stable: bool) -> None:
    """The table has the version of the files, as in pylance."""
    data = pa.table({"k": [1, 2]})
    for name in ("mine", "theirs"):
        path = str(tmp_path / name)
        new = write_fragments(data, path, mode="create", data_storage_version=version)
        if name == "mine":
            operation = LanceOperation.Overwrite(data.schema, new)
            lance_spark.Dataset.commit(path, operation, enable_stable_row_ids=stable)
        else:
            theirs = lance.LanceOperation.Overwrite(
                data.schema,
                [lance.FragmentMetadata.from_json(json.dumps(part.to_json())) for part in new],
            )
            lance.LanceDataset.commit(path, theirs, enable_stable_row_ids=stable)
        dataset = lance.dataset(path)
        dataset.validate()
        assert dataset.data_storage_version == version
        assert lance_spark.open_dataset(path).has_stable_row_ids is stable
        assert lance_spark.open_dataset(path).to_table().equals(dataset.to_table())
        assert dataset.to_table().equals(data)


def test_an_overwrite_creates_an_empty_table(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lance_spark.Dataset.commit(path, LanceOperation.Overwrite(pa.schema([("k", INT)]), []))
    assert lance.dataset(path).data_storage_version == "2.2"
    lance.write_dataset(pa.table({"k": [1]}), path, mode="append")
    assert lance_spark.open_dataset(path).to_table().to_pylist() == [{"k": 1}]


@pytest.mark.parametrize(
    "operation",
    [
        LanceOperation.Append([]),
        LanceOperation.Delete([], [], "true"),
        LanceOperation.Update(),
        LanceOperation.UpdateConfig(LanceOperation.UpdateMap({"a": "b"})),
        LanceOperation.DataReplacement([]),
    ],
)
def test_only_an_overwrite_creates_a_table(tmp_path: Path, operation: Any) -> None:
    path = str(tmp_path / "t")
    with pytest.raises(InvalidInputError, match=r"\(read_version 0\), and only an overwrite"):
        lance_spark.Dataset.commit(path, operation, 0)
    assert not Path(path).exists()
    with pytest.raises(lance_spark.errors.TableNotFoundError):
        lance_spark.Dataset.commit(path, LanceOperation.Restore(1))


@pytest.mark.parametrize("stable", [False, True])
def test_overlays_of_rows_that_a_fragment_lacks(tmp_path: Path, stable: bool) -> None:
    """pylance commits and ignores them. This package could not read the table."""
    client = Client(tmp_path / "t", stable)
    (values,) = write_fragments(pa.table({"k": [7, 8]}), client.open())
    overlay = LanceOperation.DataOverlayFile(values.files[0], [1, 2])
    operation = LanceOperation.DataOverlay([LanceOperation.DataOverlayGroup(0, [overlay])])
    with pytest.raises(InvalidInputError, match="value for row 2, but fragment 0 has 2 rows"):
        client.commit(operation)
    assert [row["k"] for row in client.rows(["k"])] == [0, 1, 2, 3, 4, 5]


def test_an_overwrite_does_not_add_base_paths(tmp_path: Path) -> None:
    """pylance refuses it, too. The files would be looked for below the base path of the table."""
    path, data = str(tmp_path / "t"), pa.table({"k": [1]})
    for name in ("t", "other"):
        base = BasePath(path=str(tmp_path / f"base of {name}"), name=name)
        lance_spark.write_dataset(
            data, str(tmp_path / name), initial_bases=[base], target_bases=[name]
        )
    other = lance_spark.open_dataset(tmp_path / "other")
    fragments = [fragment.metadata for fragment in other.get_fragments()]
    bases = list(other.base_paths().values())
    with pytest.raises(InvalidInputError, match=r"cannot add base paths \(initial_bases\)"):
        lance_spark.Dataset.commit(path, LanceOperation.Overwrite(data.schema, fragments, bases))
    assert lance.dataset(path).to_table().equals(data)


@pytest.mark.parametrize("operation", ["Append", "Overwrite"])
def test_fragments_of_another_branch_are_refused(tmp_path: Path, operation: str) -> None:
    data = pa.table({"k": range(6)})
    main = lance_spark.write_dataset(data, str(tmp_path / "t"))
    branch = main.create_branch("b")
    changes = {
        "Append": LanceOperation.Append,
        "Overwrite": partial(LanceOperation.Overwrite, data.schema),
    }
    elsewhere = changes[operation](write_fragments(data, main.uri))
    with pytest.raises(InvalidInputError, match="of the new fragments was not found there"):
        lance_spark.Dataset.commit(branch.uri, elsewhere, branch.version)
    here = changes[operation](write_fragments(data, branch.uri))
    lance_spark.Dataset.commit(branch.uri, here, branch.version)
    newest = main.checkout_version(("b", None))
    assert newest.count_rows() == {"Append": 12, "Overwrite": 6}[operation]
    assert lance.dataset(main.uri).checkout_version(("b", None)).to_table() == newest.to_table()
