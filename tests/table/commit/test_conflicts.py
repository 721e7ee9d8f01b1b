"""Conflicts between operations, compared with pylance on the same commits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark.errors import CommitConflictError
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import transaction_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction, read_transaction
from lance_spark.table.open import open_table
from lance_spark.table.operations.append import Append, Overwrite
from lance_spark.table.operations.base import Conflict, Operation, conflict_of_names
from lance_spark.table.operations.registry import OPERATIONS, operation_of
from tests.support.tables.pylance_written import as_ours, manifests, new_table, rows

Change = Callable[[lance.LanceDataset], object]


def _append(dataset: lance.LanceDataset) -> None:
    lance.write_dataset(rows(20), dataset.uri, mode="append")


def _overwrite(dataset: lance.LanceDataset) -> None:
    lance.write_dataset(rows(20), dataset.uri, mode="overwrite")


def _upsert(dataset: lance.LanceDataset) -> None:
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    builder.execute(rows(4, 4))


def _replace_column(dataset: lance.LanceDataset) -> None:
    path = lance.fragment.write_fragments(rows(0), dataset.uri)[0].files[0]
    replacement = lance.LanceOperation.DataReplacementGroup(0, path)
    lance.LanceDataset.commit(
        dataset.uri, lance.LanceOperation.DataReplacement([replacement]), read_version=1
    )


def _raw_project(dataset: lance.LanceDataset) -> None:
    schema = pa.schema([dataset.schema.field("id")])
    lance.LanceDataset.commit(dataset.uri, lance.LanceOperation.Project(schema), read_version=1)


def _raw_merge(dataset: lance.LanceDataset) -> None:
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    operation = lance.LanceOperation.Merge(fragments, dataset.lance_schema)
    lance.LanceDataset.commit(dataset.uri, operation, read_version=1)


def _restore(dataset: lance.LanceDataset) -> None:
    dataset.delete("id = 0")
    dataset.checkout_version(1).restore()


#: Commits of pylance that follow the base of the other change, and their operations.
CHANGES: dict[str, tuple[Change, tuple[str, ...]]] = {
    "append": (_append, ("append",)),
    "overwrite": (_overwrite, ("overwrite",)),
    "delete": (lambda d: d.delete("id = 1"), ("delete",)),
    "delete a fragment": (lambda d: d.delete("id < 3"), ("delete",)),
    "update": (lambda d: d.update({"word": "'x'"}, where="id = 1"), ("update",)),
    "merge insert": (_upsert, ("update",)),
    "compact": (lambda d: d.optimize.compact_files(), ("reserve_fragments", "rewrite")),
    "create index": (lambda d: d.create_scalar_index("id", "BTREE"), ("create_index",)),
    "add column": (lambda d: d.add_columns({"new": "id * 2"}), ("merge",)),
    "add null column": (lambda d: d.add_columns(pa.field("new", pa.int32())), ("merge",)),
    "merge without promise": (_raw_merge, ("merge",)),
    "drop column": (lambda d: d.drop_columns(["word"]), ("project",)),
    "rename column": (lambda d: d.alter_columns({"path": "word", "name": "text"}), ("project",)),
    "project without promise": (_raw_project, ("project",)),
    "replace column": (_replace_column, ("data_replacement",)),
    "config": (lambda d: d.update_config({"k": "v"}), ("update_config",)),
    "table metadata": (lambda d: d.update_metadata({"k": "v"}), ("update_config",)),
    "schema metadata": (lambda d: d.update_schema_metadata({"k": "v"}), ("update_config",)),
    "restore": (_restore, ("delete", "restore")),
}

#: The conflicts of the operations, as in the specification's table. Cases that depend on more than
#: the names of the operations are not in it.
EXPECTED = """
                      append        overwrite
append                compatible    compatible
delete                compatible    compatible
overwrite             incompatible  retryable
create_index          compatible    compatible
rewrite               compatible    compatible
merge                 compatible    compatible
restore               incompatible  compatible
reserve_fragments     compatible    compatible
update                compatible    compatible
project               compatible    compatible
update_config         compatible    compatible
data_replacement      compatible    compatible
update_mem_wal_state  incompatible  incompatible
clone                 compatible    compatible
update_bases          compatible    compatible
data_overlay          compatible    compatible
"""


def test_the_table() -> None:
    operations = [OPERATIONS["append"], OPERATIONS["overwrite"]]
    lines = ["append overwrite"]
    committed = transaction_pb2.Transaction.DESCRIPTOR.oneofs_by_name["operation"].fields
    for name in (field.name for field in committed):
        lines.append(" ".join([name, *(conflict_of_names(o.name, name).value for o in operations)]))
    print(EXPECTED)
    assert [line.split() for line in lines] == [
        line.split() for line in EXPECTED.strip("\n").splitlines()
    ]


@pytest.fixture(scope="module", params=CHANGES)
def changed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose version 1 was followed by one change."""
    path = tmp_path_factory.mktemp("changed") / "t"
    change, operation_names = CHANGES[request.param]
    change(new_table(path))
    store = ObjectStore.from_uri(path)
    transactions = [read_transaction(store, manifest) for manifest in manifests(path)]
    assert tuple(t.operation.name for t in transactions[1:] if t) == operation_names
    return path


def by_pylance(path: Path, operation: object) -> str:
    try:
        lance.LanceDataset.commit(str(path), operation, read_version=1)
    except OSError as error:
        text = str(error)
        assert ("Retryable commit conflict" in text) != ("Incompatible transaction" in text), text
        return "retryable" if "Retryable" in text else "incompatible"
    return "compatible"


def by_us(path: Path, operation: Operation) -> str:
    table = open_table(str(path), version=1)
    try:
        commit(table.store, Transaction.new(1, operation), table.manifest)
    except CommitConflictError as error:
        return "retryable" if error.retryable else "incompatible"
    return "compatible"


@pytest.mark.parametrize("operation_name", ["append", "overwrite"])
def test_conflicts_equal_those_of_pylance(
    changed: Path, tmp_path: Path, operation_name: str
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    data = rows(50)
    (metadata,) = lance.fragment.write_fragments(data, str(tmp_path / "data"))
    schema = Schema.from_arrow(data.schema)
    operations = {
        "append": (
            Append((as_ours(metadata),), {("id",): 0, ("word",): 1}),
            lance.LanceOperation.Append([metadata]),
        ),
        "overwrite": (
            Overwrite((as_ours(metadata),), tuple(schema.to_protos())),
            lance.LanceOperation.Overwrite(data.schema, [metadata]),
        ),
    }
    our_operation, their_operation = operations[operation_name]
    for copy in (ours, theirs):
        shutil.copytree(changed, copy)
        shutil.copytree(tmp_path / "data" / "data", copy / "data", dirs_exist_ok=True)
    assert by_us(ours, our_operation) == by_pylance(theirs, their_operation)
    tables = []
    for copy in (ours, theirs):
        dataset = lance.dataset(str(copy))
        dataset.validate()
        tables.append(dataset.to_table())
    assert tables[0] == tables[1]
    last = [copy[-1] for copy in (manifests(ours), manifests(theirs))]
    assert [f.id for f in last[0].fragments] == [f.id for f in last[1].fragments]
    assert last[0].index_section == last[1].index_section
    assert (last[0].flags, last[0].config) == (last[1].flags, last[1].config)


def test_concurrent_changes_of_configuration() -> None:
    message = transaction_pb2.Transaction()
    message.update_config.config_updates.update_entries.add(key="a", value="b")
    config = operation_of(message, "x")
    first = Overwrite((), (), config_upsert_values={"a": "1"})
    second = Overwrite((), (), config_upsert_values={"b": "2"})
    assert first.conflict(config) is Conflict.INCOMPATIBLE
    assert second.conflict(config) is Conflict.COMPATIBLE
    assert first.conflict(first) is Conflict.INCOMPATIBLE
    assert first.conflict(second) is Conflict.RETRYABLE
    assert Append(()).conflict(config) is Conflict.COMPATIBLE


@pytest.mark.parametrize("operation", [Append(()), Overwrite((), ())])
def test_unknown_operations_are_replanned(operation: Operation) -> None:
    unknown = operation_of(transaction_pb2.Transaction(), "x")
    assert operation.conflict(unknown) is Conflict.RETRYABLE
