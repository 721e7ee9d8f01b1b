"""Directory namespaces of both clients over the same folder: each client sees the changes of the
other.
"""

from __future__ import annotations

import io
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    NamespaceExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedError,
    UnsupportedFeatureError,
)
from lance_spark.namespace.base import Identifier, TableEntry
from lance_spark.namespace.directory import SCHEMA, CatalogTable, DirectoryNamespace
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.write import begin_write, commit_on_newest
from tests.support import pylance_namespace as theirs
from tests.support.forking import CONTEXT
from tests.support.stores.aws import BUCKET, Aws, serving
from tests.table.manifest.test_external import InSqlite

ROWS = pa.table({"id": [1, 2, 3]})


def stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


class Both:
    """Namespaces of both clients over one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ours = DirectoryNamespace(str(root))

    @property
    def pylance(self) -> Any:
        """Return a client without cached rows."""
        return theirs.DirectoryNamespace(root=str(self.root))

    def create(self, identifier: Identifier, properties: dict[str, str] | None = None) -> str:
        entry = self.ours.new_table(identifier)
        lance_spark.write_dataset(ROWS, entry.location)
        self.ours.register_table(identifier, TableEntry(entry.location, properties or {}))
        return entry.location

    def create_by_pylance(self, identifier: Identifier) -> None:
        request = theirs.CreateTableRequest(id=list(identifier))
        self.pylance.create_table(request, stream(ROWS))

    def namespaces(self, parent: Identifier = ()) -> list[str]:
        """Return the names of namespaces, which both clients list."""
        result = self.ours.list_namespaces(parent)
        request = theirs.ListNamespacesRequest(id=list(parent))
        assert sorted(self.pylance.list_namespaces(request).namespaces) == result
        return result

    def tables(self, parent: Identifier = ()) -> list[str]:
        result = self.ours.list_tables(parent)
        request = theirs.ListTablesRequest(id=list(parent))
        assert sorted(self.pylance.list_tables(request).tables) == result
        return result

    def location(self, identifier: Identifier) -> str:
        result = self.ours.describe_table(identifier).location
        request = theirs.DescribeTableRequest(id=list(identifier))
        assert self.pylance.describe_table(request).location.removeprefix("file://") == result
        return result


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with serving() as server:
        yield server


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path / "root")


def test_an_empty_folder(both: Both) -> None:
    assert both.ours.list_namespaces() == both.ours.list_tables() == []
    assert not both.root.exists()
    with pytest.raises(TableNotFoundError, match=r"table db\.t was not found"):
        both.ours.describe_table(("db", "t"))
    with pytest.raises(NamespaceNotFoundError, match="namespace db was not found"):
        both.ours.list_tables(("db",))
    assert both.ours.describe_namespace(()) == {}


@pytest.mark.parametrize("first", ["ours", "pylance"])
def test_namespaces(both: Both, first: str) -> None:
    if first == "pylance":
        both.pylance.create_namespace(theirs.CreateNamespaceRequest(id=["other"]))
    both.ours.create_namespace(("db",), {"owner": 'me "and" you', "ü": ""})
    both.ours.create_namespace(("db", "sub"))
    both.pylance.create_namespace(
        theirs.CreateNamespaceRequest(id=["db", "theirs"], properties={"a": "b"})
    )
    assert both.namespaces(("db",)) == ["sub", "theirs"]
    assert both.namespaces() == (["db", "other"] if first == "pylance" else ["db"])
    assert both.namespaces(("db", "sub")) == []
    request = theirs.DescribeNamespaceRequest(id=["db"])
    properties = {"owner": 'me "and" you', "ü": ""}
    assert both.pylance.describe_namespace(request).properties == properties
    assert both.ours.describe_namespace(("db",)) == properties
    assert both.ours.describe_namespace(("db", "theirs")) == {"a": "b"}

    with pytest.raises(NamespaceExistsError, match="db exists already"):
        both.ours.create_namespace(("db",))
    with pytest.raises(NamespaceNotFoundError, match="namespace no was not found"):
        both.ours.create_namespace(("no", "sub"))
    with pytest.raises(NamespaceNotEmptyError, match="namespace db has 2 tables and namespaces"):
        both.ours.drop_namespace(("db",))
    with pytest.raises(NamespaceNotFoundError):
        both.ours.drop_namespace(("db", "nothing"))
    both.ours.drop_namespace(("db", "theirs"))
    both.pylance.drop_namespace(theirs.DropNamespaceRequest(id=["db", "sub"]))
    both.ours.drop_namespace(("db",))
    assert "db" not in both.namespaces()


def test_tables(both: Both) -> None:
    both.ours.create_namespace(("db",))
    both.create(("root",))
    both.create(("db", "ours"), {"made by": "us"})
    both.create_by_pylance(("theirs",))
    both.create_by_pylance(("db", "theirs"))
    # A table by path is in the root namespace.
    lance.write_dataset(ROWS, both.root / "path.lance")
    assert both.tables() == ["path", "root", "theirs"]
    assert both.tables(("db",)) == ["ours", "theirs"]
    for identifier in (("path",), ("root",), ("theirs",), ("db", "ours"), ("db", "theirs")):
        assert lance.dataset(both.location(identifier)).to_table() == ROWS
    assert both.location(("root",)) == str(both.root / "root.lance")
    assert both.ours.describe_table(("db", "ours")).properties == {"made by": "us"}
    request = theirs.DescribeTableRequest(id=["db", "ours"])
    assert both.pylance.describe_table(request).properties == {"made by": "us"}
    for identifier in (
        ("root",),
        ("theirs",),
        ("path",),
        ("db", "ours"),
        ("db", "theirs"),
        ("db",),
    ):
        with pytest.raises(TableExistsError, match="exists already"):
            both.ours.new_table(identifier)
    with pytest.raises(NamespaceNotFoundError):
        both.ours.new_table(("no", "t"))
    with pytest.raises(TableNotFoundError):
        both.ours.describe_table(("db",))


@pytest.mark.parametrize("identifier", [("t",), ("db", "t")])
@pytest.mark.parametrize("creator", ["ours", "pylance"])
@pytest.mark.parametrize("dropper", ["ours", "pylance"])
def test_drops(both: Both, identifier: Identifier, creator: str, dropper: str) -> None:
    both.ours.create_namespace(("db",))
    both.create(("kept",))
    (both.create if creator == "ours" else both.create_by_pylance)(identifier)
    location = Path(both.location(identifier))
    if dropper == "ours":
        both.ours.drop_table(identifier)
    else:
        both.pylance.drop_table(theirs.DropTableRequest(id=list(identifier)))
    assert not list(location.rglob("*"))
    assert not location.exists()
    assert both.tables(identifier[:-1]) == ([] if len(identifier) > 1 else ["kept"])
    with pytest.raises(TableNotFoundError):
        both.ours.drop_table(identifier)
    both.create(identifier)
    assert lance.dataset(both.location(identifier)).count_rows() == 3


@pytest.mark.parametrize(
    ("identifier", "client"),
    # pylance 14 removes only the row: it still lists a folder of the root.
    [(("t",), "ours"), (("by path",), "ours"), (("db", "t"), "ours"), (("db", "t"), "pylance")],
)
def test_deregistered_tables_keep_their_files(
    both: Both, identifier: Identifier, client: str
) -> None:
    both.ours.create_namespace(("db",))
    if identifier == ("by path",):
        lance.write_dataset(ROWS, both.root / "by path.lance")
    else:
        both.create(identifier)
    location = both.location(identifier)
    if client == "ours":
        assert both.ours.deregister_table(identifier).location == location
    else:
        both.pylance.deregister_table(theirs.DeregisterTableRequest(id=list(identifier)))
    assert both.tables(identifier[:-1]) == []
    with pytest.raises(TableNotFoundError):
        both.ours.deregister_table(identifier)
    assert lance.dataset(location).count_rows() == 3
    if len(identifier) > 1:
        assert both.create(identifier) != location
        assert lance.dataset(location).count_rows() == 3
        return
    with pytest.raises(TableExistsError, match="has the files of a table that was deregistered"):
        both.ours.new_table(identifier)
    both.ours.drop_table(identifier)
    assert both.create(identifier) == location
    assert both.tables() == list(identifier)


def test_a_deregistered_table_is_registered_by_another_name(both: Both) -> None:
    both.ours.create_namespace(("db",))
    both.create(("db", "t"))
    entry = both.ours.deregister_table(("db", "t"))
    both.ours.register_table(("db", "new"), entry)
    assert both.location(("db", "new")) == entry.location


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_namespace_with_the_name_of_a_table_stays(both: Both, is_kept: bool) -> None:
    both.ours.create_namespace(("db",))
    both.create(("db", "t"))
    lance.write_dataset(ROWS, both.root / "db.lance")
    assert both.ours.list_tables() == ["db"]
    (both.ours.deregister_table if is_kept else both.ours.drop_table)(("db",))
    assert both.ours.list_tables() == []
    assert (both.root / "db.lance" / "_versions").exists() == is_kept
    assert both.tables(("db",)) == ["t"]
    assert lance.dataset(both.location(("db", "t"))).count_rows() == 3


def test_files_that_have_another_name_are_not_dropped(both: Both) -> None:
    both.create(("old",))
    entry = both.ours.deregister_table(("old",))
    both.ours.register_table(("new",), entry)
    # The files of a deregistered table would be deleted, but for their new name.
    with pytest.raises(UnsupportedError, match=r"old cannot be dropped: new would lose its files"):
        both.ours.drop_table(("old",))
    lance.write_dataset(ROWS, both.root / "listed.lance")
    place = TableEntry(str(both.root / "listed.lance"))
    both.ours.create_namespace(("db",))
    both.ours.register_table(("db", "t"), place)
    for identifier in ("db", "t"), ("listed",):
        with pytest.raises(UnsupportedError, match="would lose its files"):
            both.ours.drop_table(identifier)
    both.ours.register_table(("inner",), TableEntry(f"{place.location}/inner"))
    both.ours.deregister_table(("db", "t"))
    with pytest.raises(UnsupportedError, match="listed cannot be dropped: inner would lose"):
        both.ours.drop_table(("listed",))
    assert lance.dataset(entry.location).count_rows() == 3
    assert lance.dataset(place.location).count_rows() == 3
    assert both.ours.list_tables() == ["inner", "listed", "new"]
    both.ours.deregister_table(("inner",))
    both.ours.drop_table(("listed",))
    both.ours.drop_table(("new",))
    assert both.ours.list_tables() == []


def test_renames(both: Both) -> None:
    both.ours.create_namespace(("db",))
    both.ours.create_namespace(("other",))
    location = both.create(("db", "t"), {"a": "b"})
    both.create(("db", "u"))
    both.ours.rename_table(("db", "t"), ("other", "new"))
    assert (both.tables(("db",)), both.tables(("other",))) == (["u"], ["new"])
    assert both.location(("other", "new")) == location
    assert both.ours.describe_table(("other", "new")).properties == {"a": "b"}
    with pytest.raises(TableExistsError):
        both.ours.rename_table(("other", "new"), ("db", "u"))
    with pytest.raises(TableNotFoundError):
        both.ours.rename_table(("db", "t"), ("db", "v"))
    with pytest.raises(UnsupportedError, match=r"other clients look for .* the folder new\.lance"):
        both.ours.rename_table(("other", "new"), ("new",))
    both.create(("root",))
    with pytest.raises(UnsupportedError, match=r"its folder root\.lance has its name"):
        both.ours.rename_table(("root",), ("db", "v"))


@pytest.mark.parametrize("creator", ["ours", "pylance"])
def test_a_name_that_ends_like_a_folder(both: Both, creator: str) -> None:
    both.ours.create_namespace(("db",))
    if creator == "ours":
        both.create(("db", "t.lance"))
    else:
        both.create_by_pylance(("db", "t.lance"))
    assert both.tables(("db",)) == ["t.lance"]
    both.ours.drop_table(("db", "t.lance"))
    assert both.tables(("db",)) == both.tables() == []
    assert [path.name for path in both.root.iterdir()] == ["__manifest"]


@pytest.mark.parametrize("name", ["", ".", "..", "a$b", "a/b", "a\\b", "a\0"])
def test_names(both: Both, name: str) -> None:
    for act in (both.ours.create_namespace, both.ours.new_table, both.ours.drop_table):
        with pytest.raises(InvalidInputError, match="is not a name of a table or namespace"):
            act((name,))
    with pytest.raises(InvalidInputError):
        both.ours.create_namespace(())
    assert not both.root.exists()


@pytest.mark.parametrize("location", ["../t.lance", "/etc", "", None, "a/../../b", "s3://x/y"])
def test_a_location_outside_of_the_root_is_refused(both: Both, location: str | None) -> None:
    both.ours.create_namespace(("db",))
    catalog = CatalogTable(str(both.root / "__manifest"), {})
    row = {"object_id": "db$t", "object_type": "table", "location": location}
    catalog.change(
        lambda rows: pa.concat_tables([rows, pa.Table.from_pylist([row], schema=rows.schema)])
    )
    for act in (both.ours.describe_table, both.ours.drop_table):
        with pytest.raises(CorruptTableError, match="not a folder below the root"):
            act(("db", "t"))
    assert both.ours.list_tables(("db",)) == ["t"]


def test_other_columns_and_types_of_rows_are_kept(both: Both) -> None:
    schema = SCHEMA.append(pa.field("part", pa.int32()))
    row = {"object_id": "t$1", "object_type": "table_version", "metadata": "{}", "part": 7}
    lance.write_dataset(pa.Table.from_pylist([row], schema=schema), both.root / "__manifest")
    both.ours.create_namespace(("db",))
    assert both.ours.list_tables() == []
    rows = lance.dataset(both.root / "__manifest").to_table().to_pylist()
    assert rows[0] == {**dict.fromkeys(schema.names), **row}
    assert rows[1]["object_id"] == "db"


def test_the_catalog_table_is_as_pylance_makes_it(both: Both, tmp_path: Path) -> None:
    both.ours.create_namespace(("db",), {"a": "b"})
    pylance_namespace = theirs.DirectoryNamespace(root=str(tmp_path / "other"))
    pylance_namespace.create_namespace(
        theirs.CreateNamespaceRequest(id=["db"], properties={"a": "b"})
    )
    ours, pylance = (lance.dataset(p / "__manifest") for p in (both.root, tmp_path / "other"))
    assert ours.to_table() == pylance.to_table()
    assert ours.schema.equals(pylance.schema, check_metadata=True)
    assert repr(ours.lance_schema) == repr(pylance.lance_schema)
    assert ours.data_storage_version == pylance.data_storage_version


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"lance.namespace.manifest.reader_feature_flags": "1"}, "feature flags '1'"),
        ({"lance.namespace.manifest.writer_feature_flags": "2"}, "write it with a newer release"),
        ({"table_version_management": "true"}, "manages the versions of its tables"),
    ],
)
def test_unknown_features_are_refused(both: Both, metadata: dict[str, str], message: str) -> None:
    both.ours.create_namespace(("db",))
    lance.dataset(both.root / "__manifest").update_metadata(metadata)
    with pytest.raises(UnsupportedFeatureError, match=message):
        both.ours.create_namespace(("other",))
    if "reader" in str(metadata):
        with pytest.raises(UnsupportedFeatureError, match=message):
            both.ours.list_namespaces()
    else:
        assert both.ours.list_namespaces() == ["db"]


@pytest.mark.parametrize("metadata", ["[]", "{", "7"])
def test_damaged_properties(both: Both, metadata: str) -> None:
    row = {"object_id": "db", "object_type": "namespace", "metadata": metadata}
    lance.write_dataset(pa.Table.from_pylist([row], schema=SCHEMA), both.root / "__manifest")
    with pytest.raises(CorruptTableError, match="metadata of 'db' is not a JSON object"):
        both.ours.describe_namespace(("db",))


def test_a_table_of_another_kind_is_refused(both: Both) -> None:
    lance.write_dataset(pa.table({"object_id": [1]}), both.root / "__manifest")
    with pytest.raises(CorruptTableError, match="column object_id of the catalog table has type"):
        both.ours.list_tables()


def _create_many(root: str, name: str, count: int, pylance: bool) -> None:
    for number in range(count):
        if pylance:
            client = theirs.DirectoryNamespace(root=root)
            client.create_namespace(theirs.CreateNamespaceRequest(id=[f"{name}{number}"]))
        else:
            DirectoryNamespace(root).create_namespace((f"{name}{number}",))


def _create_same(root: str, answers: Any) -> None:
    try:
        DirectoryNamespace(root).create_namespace(("same",))
        answers.put("created")
    except NamespaceExistsError:
        answers.put("exists")


def test_clients_at_the_same_time(tmp_path: Path) -> None:
    root = str(tmp_path)
    answers = CONTEXT.Queue()
    DirectoryNamespace(root).create_namespace(("first",))
    processes = [
        CONTEXT.Process(target=_create_many, args=(root, f"{client}{n}_", 4, client == "pylance"))
        for client in ("ours", "pylance")
        for n in range(2)
    ] + [CONTEXT.Process(target=_create_same, args=(root, answers)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0] * len(processes)
    assert sorted(answers.get(timeout=60) for _ in range(3)) == ["created", "exists", "exists"]
    made = {
        f"{client}{n}_{i}" for client in ("ours", "pylance") for n in range(2) for i in range(4)
    }
    assert set(Both(tmp_path).namespaces()) == {"first", "same", *made}
    ids = lance.dataset(tmp_path / "__manifest").to_table()["object_id"].to_pylist()
    assert len(ids) == len(set(ids))


def test_a_conflict_that_does_not_end(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    both.ours.create_namespace(("db",))
    catalog = CatalogTable(str(both.root / "__manifest"), {})
    monkeypatch.setattr("lance_spark.table.commit.options.time.sleep", lambda _: None)
    numbers = iter(range(1_000))

    def overtaken(rows: pa.Table) -> pa.Table:
        both.ours.create_namespace((f"n{next(numbers)}",))
        return rows.slice(0, 0)

    with pytest.raises(CommitConflictError, match="21 times at the same time"):
        catalog.change(overtaken)
    assert len(both.namespaces()) == 22
    # No file of the attempts remains.
    dataset = lance.dataset(both.root / "__manifest")
    files = {file.path for f in dataset.get_fragments() for file in f.data_files()}
    used = {
        file.path
        for version in dataset.versions()
        for fragment in dataset.checkout_version(version["version"]).get_fragments()
        for file in fragment.data_files()
    }
    assert files <= used == {path.name for path in (both.root / "__manifest" / "data").iterdir()}


@pytest.mark.parametrize("identifier", [("t",), ("db", "t")])
def test_on_s3(aws: Aws, identifier: Identifier) -> None:
    root = f"s3://{BUCKET}/{len(identifier)}"
    ours = DirectoryNamespace(root, aws.ours)
    pylance = theirs.DirectoryNamespace(
        root=root, **{f"storage.{name}": value for name, value in aws.theirs.items()}
    )
    assert ours.list_tables() == []
    ours.create_namespace(("db",))
    entry = ours.new_table(identifier)
    lance_spark.write_dataset(ROWS, entry.location, storage_options=entry.storage_options)
    ours.register_table(identifier, entry)
    request = theirs.DescribeTableRequest(id=list(identifier))
    assert pylance.describe_table(request).location == entry.location
    pylance.create_namespace(theirs.CreateNamespaceRequest(id=["theirs"]))
    assert ours.list_namespaces() == ["db", "theirs"]
    assert ours.list_tables(identifier[:-1]) == ["t"]
    assert ours.describe_table(identifier).location == entry.location
    ours.drop_table(identifier)
    assert ours.list_tables(identifier[:-1]) == []
    with pytest.raises(TableNotFoundError):
        ours.describe_table(identifier)


def test_names_with_percent_signs_on_s3(aws: Aws) -> None:
    """The name of a folder is not a part of a URI: `a%20b` was the table `a b`."""
    names = DirectoryNamespace(f"s3://{BUCKET}/r%25s", aws.ours)
    names.create_namespace(("db",))
    identifiers = [("a b",), ("a%20b",), ("a#b?c",), ("db", "a b"), ("db", "a%20b")]
    for number, identifier in enumerate(identifiers):
        entry = names.new_table(identifier)
        options = entry.storage_options
        lance_spark.write_dataset(
            pa.table({"n": [number]}), entry.location, storage_options=options
        )
        names.register_table(identifier, entry)
    assert names.list_tables() == ["a b", "a#b?c", "a%20b"]
    assert "a%20b.lance/" in {name[: len("a%20b.lance/")] for name in aws.names("r%s/")}
    for number, identifier in enumerate(identifiers):
        location = names.describe_table(identifier).location
        dataset = lance_spark.open_dataset(location, storage_options=aws.ours)
        assert dataset.to_table()["n"].to_pylist() == [number]
    names.deregister_table(("a%20b",))
    assert names.list_tables() == ["a b", "a#b?c"]
    for identifier in [*identifiers[2:], identifiers[0]]:
        names.drop_table(identifier)
    assert {name.partition("/")[0] for name in aws.names("r%s/")} == {"__manifest", "a%20b.lance"}


def test_a_namespace_with_a_manifest_store_in_its_uri(aws: Aws) -> None:
    aws.create_table("versions")
    root = f"s3+ddb://{BUCKET}/names?ddbTableName=versions"
    names = DirectoryNamespace(root, aws.ours)
    entry = names.new_table(("t",))
    assert entry.location == f"s3+ddb://{BUCKET}/names/t.lance?ddbTableName=versions"
    lance_spark.write_dataset(ROWS, entry.location, storage_options=aws.ours)
    names.register_table(("t",), entry)
    assert names.describe_table(("t",)).location == entry.location
    names.check_location(("u",), f"s3+ddb://{BUCKET}/names/u?ddbTableName=versions")
    for location in (
        f"s3://{BUCKET}/names/u",
        f"s3+ddb://{BUCKET}/names/u?ddbTableName=others",
        f"s3+ddb://{BUCKET}/namesu?ddbTableName=versions",
    ):
        with pytest.raises(InvalidInputError, match="not a folder of tables"):
            names.check_location(("u",), location)


def test_metadata_is_json_with_all_characters(both: Both) -> None:
    both.ours.create_namespace(("db",), {"k": "\u2028\n\U0001f600"})
    text = lance.dataset(both.root / "__manifest").to_table()["metadata"][0].as_py()
    assert json.loads(text) == {"k": "\u2028\n\U0001f600"}


class Forgetting(InSqlite):
    """A manifest store that deletes entries, too."""

    def forget(self, root: str) -> None:
        with self._database() as database:
            database.execute("delete from manifests where root = ?", (root,))

    def roots(self) -> set[str]:
        with self._database() as database:
            return {root for (root,) in database.execute("select root from manifests")}


def test_a_dropped_table_is_forgotten_by_its_manifest_store(tmp_path: Path) -> None:
    store = Forgetting(str(tmp_path / "manifests.db"))
    ours = DirectoryNamespace(str(tmp_path / "root"), {"manifest_store": store})
    ours.create_namespace(("db",))
    kept = store.roots()
    for rows in (ROWS, ROWS.slice(0, 1)):
        entry = ours.new_table(("db", "t"))
        table = lance_spark.write_dataset(
            rows, entry.location, storage_options=entry.storage_options
        )
        table.create_branch("b")
        ours.register_table(("db", "t"), entry)
        assert len(store.roots()) == len(kept) + 2
        ours.drop_table(("db", "t"))
        assert store.roots() == kept
        assert not Path(entry.location).exists()


def test_a_write_to_a_dropped_table_leaves_its_name_free(tmp_path: Path) -> None:
    names, rows = DirectoryNamespace(str(tmp_path)), pa.table({"a": [1]})
    entry = names.new_table(("t",))
    lance_spark.write_dataset(rows, entry.location)
    names.register_table(("t",), entry)
    job = begin_write(entry.location, rows.schema)
    names.drop_table(("t",))
    writer = job.writer()
    for batch in rows.to_batches():
        writer.write(batch)
    with pytest.raises(TableNotFoundError):
        commit_on_newest(job, writer.finish())
    assert names.list_tables() == []
    assert names.new_table(("t",)).location == entry.location


def test_a_change_of_a_dropped_table_leaves_its_name_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, rows = DirectoryNamespace(str(tmp_path)), pa.table({"a": [1]})
    entry = names.new_table(("t",))
    dataset = lance_spark.write_dataset(rows, entry.location)
    open_output = ObjectStore.open_output

    def after_a_drop(store: ObjectStore, path: str, **keywords: Any) -> Any:
        monkeypatch.undo()
        names.drop_table(("t",))
        return open_output(store, path, **keywords)

    monkeypatch.setattr(ObjectStore, "open_output", after_a_drop)
    with pytest.raises(TableNotFoundError, match="the table was deleted"):
        dataset.add_columns({"b": "a + 1"})
    assert Path(entry.location).exists()
    assert names.list_tables() == []
    with pytest.raises(TableNotFoundError):
        names.drop_table(("t",))
    lance_spark.write_dataset(rows, names.new_table(("t",)).location)
    assert lance.dataset(entry.location).to_table() == rows
    assert names.list_tables() == ["t"]


def test_a_name_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = DirectoryNamespace(str(tmp_path))
    listed = []
    list_names = ObjectStore.list_names

    def counting(store: ObjectStore, folder: str) -> list[str]:
        listed.append(folder)
        return list_names(store, folder)

    monkeypatch.setattr(ObjectStore, "list_names", counting)
    entry = ours.new_table(("t",))
    assert listed.count("t.lance") == 1
    lance_spark.write_dataset(ROWS, entry.location)
    with pytest.raises(TableExistsError, match="exists already"):
        ours.new_table(("t",))


def test_folders_of_a_store_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    root = f"memory://{uuid.uuid4().hex}"
    for number in range(4):
        lance_spark.write_dataset(pa.table({"n": [number]}), f"{root}/t{number}.lance")
    together = threading.Barrier(4, timeout=20)
    exists = ObjectStore.exists

    def waiting(store: ObjectStore, path: str) -> bool:
        if path.endswith("/.lance-deregistered"):
            together.wait()
        return exists(store, path)

    monkeypatch.setattr(ObjectStore, "exists", waiting)
    assert DirectoryNamespace(root).list_tables() == [f"t{number}" for number in range(4)]
