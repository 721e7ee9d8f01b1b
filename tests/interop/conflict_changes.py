"""Changes of a small table by pylance, which are tried after one another.

The table has four fragments of four rows, one deleted row, an index on `id`, a configuration and
base paths. A change is made once on a copy of the table; the transaction that pylance wrote there
is what we commit, and what is committed before others.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from lance_spark.proto import transaction_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import read_latest
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.registry import operation_of
from lance_spark.table.operations.rewrite import ReserveFragments
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import Offsets, read_deletions

#: Fragment ids that the table has reserved for compactions. Their transactions are committed
#: elsewhere.
RESERVED = (4, 5)
#: Without this variable, pylance refuses tables with overlays.
OVERLAYS = "LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"

Dataset = lance.LanceDataset
Operations = lance.LanceOperation


def rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "word": [f"w{i}" for i in ids],
            "number": pa.array(ids, pa.int32()),
        }
    )


def new_table(path: Path) -> Manifest:
    """Make the table. Every change is planned on its newest version."""
    dataset = lance.write_dataset(rows(0, 16), str(path), max_rows_per_file=4)
    dataset.delete("id = 13")
    dataset.create_scalar_index("id", "BTREE")
    dataset.update_config({"owner": "nobody"})
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    return commit(store, Transaction.new(base.version, ReserveFragments(len(RESERVED))), base)


@dataclass(frozen=True)
class Change:
    """A change that pylance can make.

    Attributes
    ----------
    name : str
    kind : str
        Of the transaction.
    make : callable
        Makes it, from a dataset at the version that it is planned on; one try only.
    """

    name: str
    kind: str
    make: Callable[[Dataset], object]


def raw(dataset: Dataset, operation: Any) -> None:
    Dataset.commit(dataset.uri, operation, read_version=dataset.version, max_retries=0)


def _append(dataset: Dataset) -> None:
    lance.write_dataset(rows(100, 2), dataset, mode="append")


def _overwrite(dataset: Dataset) -> None:
    lance.write_dataset(rows(200, 2), dataset, mode="overwrite")


def _delete(predicate: str) -> Callable[[Dataset], object]:
    return lambda dataset: dataset.delete(predicate, conflict_retries=0)


def _update(predicate: str) -> Callable[[Dataset], object]:
    return lambda dataset: dataset.update({"word": "'x'"}, where=predicate, conflict_retries=0)


def _upsert(dataset: Dataset) -> None:
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    builder.conflict_retries(0).execute(rows(10, 1).set_column(0, "id", [pa.array([10])]))


def _index(column: str) -> Callable[[Dataset], object]:
    return lambda dataset: dataset.create_scalar_index(column, "BTREE", name=f"{column}_new")


def _same_index(dataset: Dataset) -> None:
    dataset.create_scalar_index("id", "BTREE", name="id_idx", replace=True)


def _drop_index(dataset: Dataset) -> None:
    dataset.drop_index("id_idx")


def _mem_wal(dataset: Dataset) -> None:
    dataset.initialize_mem_wal(unsharded=True)


def _compact(reserved: int, *numbers: int) -> Callable[[Dataset], object]:
    def make(dataset: Dataset) -> None:
        old = [dataset.get_fragment(number).metadata for number in numbers]
        data = pa.concat_tables([dataset.get_fragment(number).to_table() for number in numbers])
        (new,) = lance.fragment.write_fragments(data, dataset)
        moved = replace(new, id=reserved)
        raw(dataset, Operations.Rewrite([Operations.RewriteGroup(old, [moved])], []))

    return make


def _add_column(dataset: Dataset) -> None:
    dataset.add_columns({"twice": "number * 2"})


def _raw_merge(dataset: Dataset) -> None:
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    raw(dataset, Operations.Merge(fragments, dataset.lance_schema))


def _drop_column(dataset: Dataset) -> None:
    dataset.drop_columns(["number"])


def _raw_project(dataset: Dataset) -> None:
    raw(dataset, Operations.Project(pa.schema([dataset.schema.field(i) for i in range(2)])))


def _restore(dataset: Dataset) -> None:
    raw(dataset, Operations.Restore(1))


def _config(**values: str) -> Callable[[Dataset], object]:
    return lambda dataset: dataset.update_config(values)


def _table_metadata(dataset: Dataset) -> None:
    dataset.update_metadata({"note": "x"})


def _schema_metadata(dataset: Dataset) -> None:
    dataset.update_schema_metadata({"note": "x"})


def _field_metadata(dataset: Dataset) -> None:
    dataset.update_field_metadata({"word": {"note": "x"}})


def _new_column_file(dataset: Dataset, name: str, column: str, count: int) -> DataFile:
    values = rows(300, count).select([column])
    path = Path(dataset.uri) / "data" / name
    with LanceFileWriter(str(path), values.schema, version="2.2") as writer:
        writer.write_batch(values)
    field = {"id": 0, "word": 1, "number": 2}[column]
    return DataFile(name, [field], [0], 2, 2, path.stat().st_size)


def _replacement(fragment: int, column: str) -> Callable[[Dataset], object]:
    def make(dataset: Dataset) -> None:
        file = _new_column_file(dataset, f"new-{fragment}-{column}.lance", column, 4)
        raw(dataset, Operations.DataReplacement([Operations.DataReplacementGroup(fragment, file)]))

    return make


def _overlay(fragment: int, offsets: list[int]) -> Callable[[Dataset], object]:
    def make(dataset: Dataset) -> None:
        name = f"overlay-{fragment}-{len(offsets)}.lance"
        file = _new_column_file(dataset, name, "word", len(offsets))
        overlay = Operations.DataOverlayFile(file, offsets)
        raw(dataset, Operations.DataOverlay([Operations.DataOverlayGroup(fragment, [overlay])]))

    return make


def _update_columns(dataset: Dataset) -> None:
    fragment = dataset.get_fragment(0)
    data = pa.table({"id": pa.array([1], pa.int64()), "word": ["y"]})
    updated, fields = fragment.update_columns(data, left_on="id", right_on="id")
    raw(dataset, Operations.Update([], [updated], [], fields, update_mode="rewrite_columns"))


def _bases(dataset: Dataset) -> None:
    dataset.add_bases(
        [lance.DatasetBasePath(dataset.uri + "-base", name="other", is_dataset_root=False)]
    )


CHANGES: tuple[Change, ...] = (
    Change("append", "append", _append),
    Change("delete a row of fragment 0", "delete", _delete("id = 1")),
    Change("delete another row of fragment 0", "delete", _delete("id = 2")),
    Change("delete fragment 0", "delete", _delete("id < 4")),
    Change("delete a row of fragment 2", "delete", _delete("id = 9")),
    Change("update a row of fragment 0", "update", _update("id = 1")),
    Change("update another row of fragment 0", "update", _update("id = 3")),
    Change("update rows of fragment 2", "update", _update("id in (8, 9)")),
    Change("upsert a row of fragment 2", "update", _upsert),
    Change("rewrite a column of fragment 0", "update", _update_columns),
    Change("overwrite", "overwrite", _overwrite),
    Change("index on word", "create_index", _index("word")),
    Change("index on id, replaced", "create_index", _same_index),
    Change("compact fragments 0 and 1", "rewrite", _compact(RESERVED[0], 0, 1)),
    Change("compact fragments 2 and 3", "rewrite", _compact(RESERVED[1], 2, 3)),
    Change("add a column", "merge", _add_column),
    Change("merge that may break rows", "merge", _raw_merge),
    Change("drop column number", "project", _drop_column),
    Change("project that may break rows", "project", _raw_project),
    Change("restore version 1", "restore", _restore),
    Change("set a key of the configuration", "update_config", _config(owner="me")),
    Change("set another key", "update_config", _config(place="here")),
    Change("set table metadata", "update_config", _table_metadata),
    Change("set schema metadata", "update_config", _schema_metadata),
    Change("set metadata of column word", "update_config", _field_metadata),
    Change("replace word in fragment 0", "data_replacement", _replacement(0, "word")),
    Change("replace number in fragment 0", "data_replacement", _replacement(0, "number")),
    Change("replace id in fragment 2", "data_replacement", _replacement(2, "id")),
    Change("overlay row 1 of fragment 0", "data_overlay", _overlay(0, [1])),
    Change("overlay all rows of fragment 2", "data_overlay", _overlay(2, [0, 1, 2, 3])),
    Change("add a base path", "update_bases", _bases),
    Change("drop the index on id", "create_index", _drop_index),
    Change("set up a MemWAL", "create_index", _mem_wal),
)


@dataclass(frozen=True)
class Made:
    """A change by pylance on a table of its own.

    Attributes
    ----------
    change : Change
    path : Path
        The table, one version on.
    operation : Operation
        What the transaction says, with the rows that it affects.
    """

    change: Change
    path: Path
    operation: Operation

    def copy_files(self, path: Path) -> None:
        """Copy the files of the change to another table."""
        for folder in ("data", "_deletions", "_indices"):
            if (self.path / folder).is_dir():
                link_files(self.path / folder, path / folder)


def link_files(folder: Path, other: Path) -> None:
    """Give another folder the files of a folder that it lacks. Files of a table do not change, so
    that links do in place of copies.
    """

    def link(source: str, target: str) -> None:
        if not os.path.exists(target):
            os.link(source, target)

    shutil.copytree(folder, other, copy_function=link, dirs_exist_ok=True)


def make(change: Change, table: Path, base: Manifest, path: Path) -> Made:
    """Let pylance make a change on a copy of the table."""
    link_files(table, path)
    with overlays_allowed():
        change.make(lance.dataset(str(path), version=base.version))
    store = ObjectStore.from_uri(path)
    newest = read_latest(store)
    assert newest.transaction_section is not None
    message = transaction_pb2.Transaction.FromString(newest.transaction_section)
    assert message.WhichOneof("operation") == change.kind, message.WhichOneof("operation")
    assert newest.version == base.version + 1
    operation = operation_of(message, str(path))
    if change.kind in ("delete", "update"):
        operation = replace(operation, affected=_affected(store, base, operation))  # type: ignore[call-arg]
    return Made(change, path, operation)


def _affected(store: ObjectStore, base: Manifest, operation: Operation) -> dict[int, Offsets]:
    paths = TablePaths(store, base.base_paths)
    before = {fragment.id: fragment for fragment in base.fragments}

    def live(fragment: Fragment) -> Offsets:
        return np.setdiff1d(np.arange(fragment.physical_rows), read_deletions(paths, fragment))

    affected = {
        number: np.setdiff1d(live(before[number]), live(fragment))
        for number, fragment in operation.updated_fragments.items()
    }
    affected |= {number: live(before[number]) for number in operation.removed_fragments}
    return {number: offsets for number, offsets in affected.items() if len(offsets)}


@contextmanager
def overlays_allowed() -> Iterator[None]:
    """Let pylance open and create tables with overlays."""
    os.environ[OVERLAYS] = "1"
    try:
        yield
    finally:
        del os.environ[OVERLAYS]
