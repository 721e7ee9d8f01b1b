"""What docs/reference/pylance.md names in place of a name of pylance gives what pylance gives."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import DatasetFragment
from lance_spark.namespace import TableEntry, connect
from tests.interop.shadow.outcomes import plain
from tests.support import pylance_namespace as models

_PYLANCE = import_module("lance.dataset")
VECTORS = np.arange(80, dtype=np.float32)
ROWS = pa.table(
    {
        "id": range(20),
        "text": [f"word{number % 3} more" for number in range(20)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(VECTORS), 4),
    }
)
VECTOR = [8.25, 9.25, 10.25, 11.25]

#: Calls of pylance's builder of scanners, and the arguments of `Dataset.scanner`.
SCANS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"columns": ["id"]}, {"columns": ["id"]}),
    ({"columns": {"x": "id + 1"}}, {"columns": {"x": "id + 1"}}),
    ({"filter": "id > 5"}, {"filter": "id > 5"}),
    ({"filter": {"expr_filter": "id > 5"}}, {"filter": {"expr_filter": "id > 5"}}),
    ({"limit": 3, "offset": 2}, {"limit": 3, "offset": 2}),
    ({"with_row_id": True}, {"with_row_id": True}),
    ({"with_row_address": True}, {"with_row_address": True}),
    ({"batch_size_bytes": 100}, {"batch_size_bytes": 100}),
    ({"batch_size": 6, "strict_batch_size": True}, {"batch_size": 6, "strict_batch_size": True}),
    ({"io_buffer_size": 1000}, {"io_buffer_size": 1000}),
    ({"batch_readahead": 2}, {"batch_readahead": 2}),
    ({"fragment_readahead": 2}, {"fragment_readahead": 2}),
    ({"scan_in_order": False}, {"scan_in_order": False}),
    ({"late_materialization": ["text"]}, {"late_materialization": ["text"]}),
    ({"blob_handling": "all_binary"}, {"blob_handling": "all_binary"}),
    ({"use_stats": False}, {"use_stats": False}),
    ({"use_scalar_index": False}, {"use_scalar_index": False}),
    ({"scan_stats_callback": print}, {"scan_stats_callback": lambda _: None}),
    (
        {"with_row_id": True, "include_deleted_rows": True, "columns": ["id"]},
        {"with_row_id": True, "include_deleted_rows": True, "columns": ["id"]},
    ),
    (
        {"columns": ["id"], "nearest": {"column": "v", "q": VECTOR, "k": 3}},
        {"columns": ["id"], "nearest": {"column": "v", "q": VECTOR, "k": 3}},
    ),
    (
        {
            "columns": ["id"],
            "nearest": {"column": "v", "q": VECTOR, "k": 3},
            "filter": "id > 9",
            "prefilter": True,
            "disable_scoring_autoprojection": True,
        },
        {
            "columns": ["id"],
            "nearest": {"column": "v", "q": VECTOR, "k": 3},
            "filter": "id > 9",
            "prefilter": True,
            "disable_scoring_autoprojection": True,
        },
    ),
    (
        {"full_text_search": {"query": "word1", "columns": ["text"]}, "fast_search": True},
        {"full_text_query": {"query": "word1", "columns": ["text"]}, "fast_search": True},
    ),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("pointers") / "t.lance")
    dataset = lance.write_dataset(ROWS, uri, max_rows_per_file=8)
    dataset.delete("id = 3")
    dataset.create_scalar_index("text", "INVERTED")
    return uri


@pytest.mark.parametrize(("calls", "arguments"), SCANS, ids="-".join)
def test_builder_of_scanners(path: str, calls: dict[str, Any], arguments: dict[str, Any]) -> None:
    builder = _PYLANCE.ScannerBuilder(lance.dataset(path))
    for name, value in calls.items():
        call = getattr(builder, name)
        builder = call(**value) if name in ("nearest", "full_text_search") else call(value)
    expected = builder.to_scanner().to_table()
    table = lance_spark.open_dataset(path).scanner(**arguments).to_table()
    if "_score" in table.schema.names:
        # Rows of equal scores have no order, and the last bits of a score are not comparable.
        expected, table = (rows.drop(["_score"]).sort_by("id") for rows in (expected, table))
    assert table.schema.equals(expected.schema)
    assert table.to_pylist() == expected.to_pylist()


def test_fragments_of_a_builder(path: str) -> None:
    dataset = lance.dataset(path)
    builder = _PYLANCE.ScannerBuilder(dataset).with_fragments(dataset.get_fragments()[1:])
    own = lance_spark.open_dataset(path)
    table = own.scanner(fragments=own.get_fragments()[1:]).to_table()
    assert table.equals(builder.to_scanner().to_table())


def test_files_and_metadata_of_fragments(path: str) -> None:
    dataset, own = lance.dataset(path), lance_spark.open_dataset(path)
    theirs, metadata = dataset.get_fragment(0).metadata, own.get_fragment(0).metadata
    (file,) = theirs.files
    made = lance.fragment.DataFile.create(dataset, file.path)
    (own_file,) = DatasetFragment.create_from_file(file.path, own, 0).files
    assert (own_file.path, list(own_file.fields)) == (made.path, made.field_ids())
    assert own_file.file_size_bytes == made.file_size_bytes
    assert metadata.to_json()["deletion_file"] == theirs.deletion_file.asdict()
    assert own.get_fragment(0).deletion_file() == theirs.deletion_file.path(0)


# Namespaces


def _stream(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def _steps(root: Path) -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """Yield the method, its call, and the call of what the page names, in an order that works."""
    theirs, own = (
        models.DirectoryNamespace(root=str(root / "a")),
        connect("dir", {"root": str(root / "b")}),
    )
    names = ["db", "t"]
    place = tuple(names)

    def table() -> Any:
        return lance_spark.open_dataset(namespace_client=own, table_id=names)

    def rows() -> Any:
        return lance.dataset(namespace_client=theirs, table_id=names).to_table().sort_by("id")

    def own_rows() -> Any:
        return table().to_table().sort_by("id")

    def request(kind: str, **fields: Any) -> Any:
        return getattr(models, f"{kind}Request")(id=names, **fields)

    yield (
        "create_namespace",
        lambda: theirs.create_namespace(models.CreateNamespaceRequest(id=["db"])) and None,
        lambda: own.create_namespace(("db",)),
    )
    yield (
        "list_namespaces",
        lambda: theirs.list_namespaces(models.ListNamespacesRequest(id=[])).namespaces,
        own.list_namespaces,
    )
    yield (
        "create_table",
        lambda: theirs.create_table(request("CreateTable"), _stream(ROWS)).version,
        lambda: lance_spark.write_dataset(ROWS, namespace_client=own, table_id=names).version,
    )
    yield (
        "list_tables",
        lambda: theirs.list_tables(models.ListTablesRequest(id=["db"])).tables,
        lambda: own.list_tables(("db",)),
    )
    yield (
        "count_table_rows",
        lambda: theirs.count_table_rows(request("CountTableRows", predicate="id > 3")).count,
        lambda: table().count_rows("id > 3"),
    )
    more = pa.table({"id": [99], "text": ["x"], "v": ROWS["v"].combine_chunks()[:1]})
    yield (
        "insert_into_table",
        lambda: (theirs.insert_into_table(request("InsertIntoTable"), _stream(more)), rows())[1],
        lambda: (table().insert(more), own_rows())[1],
    )
    yield (
        "merge_insert_into_table",
        lambda: (
            theirs.merge_insert_into_table(
                request("MergeInsertIntoTable", on=["id"], when_not_matched_insert_all=True),
                _stream(more.set_column(0, "id", pa.array([100]))),
            ),
            rows(),
        )[1],
        lambda: (
            table()
            .merge_insert("id")
            .when_not_matched_insert_all()
            .execute(more.set_column(0, "id", pa.array([100]))),
            own_rows(),
        )[1],
    )
    yield (
        "update_table",
        lambda: (
            theirs.update_table(
                request("UpdateTable", predicate="id = 2", updates=[["text", "'new'"]])
            ),
            rows(),
        )[1],
        lambda: (table().update({"text": "new"}, "id = 2"), own_rows())[1],
    )
    yield (
        "delete_from_table",
        lambda: (theirs.delete_from_table(request("DeleteFromTable", predicate="id < 2")), rows())[
            1
        ],
        lambda: (table().delete("id < 2"), own_rows())[1],
    )
    yield (
        "create_table_scalar_index",
        lambda: (
            theirs.create_table_scalar_index(
                request("CreateTableIndex", column="id", index_type="BTREE", name="i")
            )
            and None
        ),
        lambda: table().create_scalar_index("id", "BTREE", "i") and None,
    )
    yield (
        "list_table_indices",
        lambda: [
            index.index_name
            for index in theirs.list_table_indices(request("ListTableIndices")).indexes
        ],
        lambda: [index["name"] for index in table().list_indices()],
    )
    yield (
        "describe_table_index_stats",
        lambda: (
            theirs.describe_table_index_stats(
                request("DescribeTableIndexStats", index_name="i")
            ).num_indexed_rows
        ),
        lambda: table().index_statistics("i")["num_indexed_rows"],
    )
    yield (
        "drop_table_index",
        lambda: theirs.drop_table_index(request("DropTableIndex", index_name="i")) and None,
        lambda: table().drop_index("i") and None,
    )
    yield (
        "alter_table_add_columns",
        lambda: (
            theirs.alter_table_add_columns(
                request(
                    "AlterTableAddColumns",
                    new_columns=[models.AddColumnsEntry(name="n", expression="id + 1")],
                )
            ),
            rows(),
        )[1],
        lambda: (
            table().add_columns({"n": lambda batch: pa.compute.add(batch["id"], 1)}),
            own_rows(),
        )[1],
    )
    yield (
        "alter_table_alter_columns",
        lambda: (
            theirs.alter_table_alter_columns(
                request(
                    "AlterTableAlterColumns",
                    alterations=[models.AlterColumnsEntry(path="n", rename="k")],
                )
            ),
            rows(),
        )[1],
        lambda: (table().alter_columns({"path": "n", "name": "k"}), own_rows())[1],
    )
    yield (
        "alter_table_drop_columns",
        lambda: (
            theirs.alter_table_drop_columns(request("AlterTableDropColumns", columns=["k"])),
            rows(),
        )[1],
        lambda: (table().drop_columns(["k"]), own_rows())[1],
    )
    yield (
        "list_table_versions",
        lambda: len(theirs.list_table_versions(request("ListTableVersions")).versions),
        lambda: len(table().versions()),
    )
    yield (
        "create_table_tag",
        lambda: theirs.create_table_tag(request("CreateTableTag", tag="g", version=2)) and None,
        lambda: table().tags.create("g", 2),
    )
    yield (
        "update_table_tag",
        lambda: theirs.update_table_tag(request("UpdateTableTag", tag="g", version=3)) and None,
        lambda: table().tags.update("g", 3),
    )
    yield (
        "get_table_tag_version",
        lambda: theirs.get_table_tag_version(request("GetTableTagVersion", tag="g")).version,
        lambda: table().tags.get_version("g"),
    )
    yield (
        "list_table_tags",
        lambda: sorted(theirs.list_table_tags(request("ListTableTags")).tags),
        lambda: sorted(table().tags.list()),
    )
    yield (
        "delete_table_tag",
        lambda: theirs.delete_table_tag(request("DeleteTableTag", tag="g")) and None,
        lambda: table().tags.delete("g"),
    )
    yield (
        "create_table_branch",
        lambda: theirs.create_table_branch(request("CreateTableBranch", name="dev")) and None,
        lambda: table().create_branch("dev") and None,
    )
    yield (
        "list_table_branches",
        lambda: sorted(theirs.list_table_branches(request("ListTableBranches")).branches),
        lambda: sorted(table().branches.list()),
    )
    yield (
        "delete_table_branch",
        lambda: theirs.delete_table_branch(request("DeleteTableBranch", name="dev")) and None,
        lambda: table().branches.delete("dev"),
    )
    yield (
        "restore_table",
        lambda: (theirs.restore_table(request("RestoreTable", version=2)), rows())[1],
        lambda: (table().checkout_version(2).restore(), own_rows())[1],
    )
    yield (
        "update_table_schema_metadata",
        lambda: (
            theirs.update_table_schema_metadata(
                request("UpdateTableSchemaMetadata", metadata={"k": "v"})
            )
            and lance.dataset(namespace_client=theirs, table_id=names).schema_metadata
        ),
        lambda: table().update_schema_metadata({"k": "v"}).schema_metadata,
    )
    yield (
        "deregister_table",
        lambda: theirs.deregister_table(request("DeregisterTable")) and None,
        lambda: own.deregister_table(place) and None,
    )
    folders = {side: next((root / side).glob("*_db$t")) for side in "ab"}
    yield (
        "register_table",
        lambda: (
            theirs.register_table(request("RegisterTable", location=folders["a"].name)) and rows()
        ),
        lambda: (own.register_table(place, TableEntry(str(folders["b"]))), own_rows())[1],
    )
    yield (
        "drop_table",
        lambda: theirs.drop_table(request("DropTable")) and None,
        lambda: own.drop_table(place),
    )
    yield (
        "drop_namespace",
        lambda: theirs.drop_namespace(models.DropNamespaceRequest(id=["db"])) and None,
        lambda: own.drop_namespace(("db",)),
    )


def test_methods_of_namespaces(tmp_path: Path) -> None:
    """Each step changes the folder of its client in the same way."""
    for side in "ab":
        (tmp_path / side).mkdir()
    different = {
        name: (expected, result)
        for name, theirs, own in _steps(tmp_path)
        if (expected := plain(theirs())) != (result := plain(own()))
    }
    assert different == {}
