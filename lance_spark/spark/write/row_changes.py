"""Rows that a statement deletes, updates and inserts: written by a task, message to the commit.

Rows of one fragment are in one task, ordered by their addresses; of an UPDATE or DELETE without
joins they are in the tasks that scan them (`WritingScan.java`). The task writes updated and new
rows to data files, and the deletion files of the fragments that lose rows. If several tasks scan,
each gives few bytes of updated rows to the commit, which writes those of all tasks to one file, and
leaves the deletion of few rows to it. An update of all rows
(`columns` of the write's mode) writes data files of the columns that change instead, and an update
of the mode `overlay` overlay files.

| column of a batch | meaning |
| --- | --- |
| `__row_operation` | 1 delete, 2 update, 3 insert; an update adds 16 * the index of its columns |
| columns of the table | null in rows that do not give them a value |
| `_rowaddr` | address of the old row; null for a new row |
| `__lance_fragment` | by which Spark distributed the rows |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lance_spark.encoding.rows import distinct
from lance_spark.errors import InvalidInputError, LanceError, VersionNotFoundError, error_context
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.rewrite.column_rewriter import ColumnFile, ColumnTarget
from lance_spark.mutations.rewrite.writers import RewrittenRows, RowRewriter, undo
from lance_spark.mutations.rows.delete import FragmentDeletion, run_delete, union_rows
from lance_spark.mutations.rows.merge import KeyFilter
from lance_spark.runner import LocalRunner, abort_on_error, write_and_delete
from lance_spark.spark.job import task_number
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.python_process import TaskObject, plain_messages
from lance_spark.spark.read.reader import open_table
from lance_spark.spark.read.snapshot import identity_text
from lance_spark.spark.table.jobs.columns import WriteColumns
from lance_spark.spark.write.input import InputConverter, received
from lance_spark.spark.write.locators import BlobSources, resolved
from lance_spark.spark.write.writer import counts_of
from lance_spark.table.open import OpenTable
from lance_spark.table.primary_key import primary_key
from lance_spark.table.rows.u64_segments import UInt64Array

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.spark.read.snapshot import TableSnapshot

#: The option of a write that describes the columns of its batches.
OPTION = "row_changes"
DELETE, UPDATE, INSERT = 1, 2, 3
_STEP = 16
#: Most bytes of updated rows that all tasks together give to the commit.
_BYTES_FOR_COMMIT = 8 * 1024 * 1024
#: Most rows whose deletion all tasks together leave to the commit.
_ROWS_FOR_COMMIT = 8192


@dataclass(frozen=True, slots=True)
class TaskChanges:
    """The rows that a task changed.

    - `rewritten`: Its rows are the updated and the deleted rows.
    - `keys`: Keys of the new rows, if the table has a primary key.
    """

    rewritten: RewrittenRows
    num_deleted: int = 0
    keys: KeyFilter | None = None


class RowChanger:
    """Writes the changed rows of one task.

    - `names`: Columns of the table that get values.
    - `tag`: Tag in the names of the new files.
    - `max_held`: See `RowRewriter`.
    """

    def __init__(
        self, table: OpenTable, names: Sequence[str], tag: bytes, max_held: int = 0
    ) -> None:
        self._arrow = input_schema(table.schema)
        self._rewriter = RowRewriter(
            table, table.schema, names, tag=tag, first=task_number(), max_held=max_held
        )
        self._converters: dict[tuple[str, ...], InputConverter] = {}
        self._key = [tuple(node.name for node in path) for path in primary_key(table.schema)]
        self._filter = key_filter(table.schema)
        self._deleted = 0
        self._last_deleted: int | None = None

    def delete(self, addresses: UInt64Array) -> None:
        """Delete rows, by increasing addresses.

        A row may be given several times, also by several calls: Spark does not check how many rows
        of the source match a row that a MERGE deletes without a condition.
        """
        unique = distinct(addresses)
        if len(unique) and int(unique[0]) == self._last_deleted:
            unique = unique[1:]
        if len(unique):
            self._last_deleted = int(unique[-1])
            self._rewriter.mark_deleted(unique)
            self._deleted += len(unique)

    def update(self, addresses: UInt64Array, values: pa.RecordBatch) -> None:
        """Write rows with new values; columns that are not given keep their values."""
        names = values.schema.names
        position = 0
        for piece in self._converted(values):
            rows = addresses[position : position + piece.num_rows]
            self._rewriter.move(rows, piece, names)
            position += piece.num_rows

    def insert(self, values: pa.RecordBatch) -> None:
        """Write new rows; columns that are not given are null."""
        for piece in self._converted(values):
            if self._filter is not None:
                keys = [column_at(piece, path) for path in self._key]
                names = [str(index) for index in range(len(keys))]
                self._filter.add(pa.RecordBatch.from_arrays(keys, names=names))
            by_name = dict(zip(piece.schema.names, piece.columns, strict=True))
            columns = [
                by_name[field.name]
                if field.name in by_name
                else pa.nulls(piece.num_rows, field.type)
                for field in self._arrow
            ]
            self._rewriter.insert(pa.RecordBatch.from_arrays(columns, names=self._arrow.names))

    @property
    def removed(self) -> dict[int, bytes]:
        """The offsets of the updated and deleted rows; see `RewrittenRows.rows`."""
        return self._rewriter.removed

    @property
    def num_removed(self) -> int:
        """The number of the updated and deleted rows."""
        return self._rewriter.num_rows + self._deleted

    def finish(self) -> TaskChanges:
        """Close the files."""
        keys = self._filter
        if keys is not None and not keys.num_keys:
            keys = None
        return TaskChanges(self._rewriter.finish(), self._deleted, keys)

    def abort(self) -> None:
        """Delete the files that were written."""
        self._rewriter.abort()

    def _converted(self, values: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        names = tuple(values.schema.names)
        converter = self._converters.get(names)
        if converter is None:
            converter = self._converters[names] = InputConverter(self._arrow, names)
        return converter(values)


class ColumnChangeMessage(WriterCommitMessage):
    """The files of the columns that one task changed."""

    def __init__(self, files: Sequence[ColumnFile]) -> None:
        self.files = tuple(files)
        updated = sum(len(BitMap.deserialize(file.rows)) for file in files)
        data_files = [file.file for file in files]
        self.counts = counts_of([], inserted=0, updated=updated, column_files=data_files)


class RowChangeMessage(WriterCommitMessage):
    """The changed rows of one task, and the deletion files of their fragments.

    The files are None if the commit is to write them.
    """

    def __init__(self, changed: TaskChanges, deletions: Sequence[FragmentDeletion] | None) -> None:
        self.changed = changed
        self.deletions = None if deletions is None else tuple(deletions)
        rewritten = changed.rewritten
        self.counts = counts_of(
            [*rewritten.fragments, *rewritten.inserted],
            inserted=rewritten.num_inserted,
            updated=rewritten.num_rows,
            deleted=changed.num_deleted,
            deletion_files=sum(deletion.file is not None for deletion in deletions or ()),
        )


class RowChangeWriter(TaskObject, DataSourceArrowWriter):
    """Writes the changed rows of a statement. The JVM commits and aborts by calls.

    - `table`: The version that the statement was planned on.
    - `write`: What the columns of a batch are (`RowChangeRule.java`): ``address`` and ``ordinals``
      are positions, ``columns`` names, and ``given`` the columns of each kind of update; and the
      ``mode`` of an update (`lance_spark.mutations.rows.update`).
    """

    #: Columns of the rows that tasks receive (`batches.received`).
    schema: StructType | None = None
    #: Of locators in place of blobs, if the query only copies some.
    sources: BlobSources | None = None

    def __init__(self, table: TableSnapshot, write: Mapping[str, Any]) -> None:
        self._table = table
        self._write = write

    @plain_messages()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task.

        Raises StorageError. Raises InvalidInputError: a value does not fit the type of the table.
        """
        table = self._table.open()
        tag = bytes.fromhex(self._write["tag"])
        iterator = resolved(received(iterator, self.schema), self.sources)
        with error_context(table.store.display):
            if self._write["mode"] != "rows":
                return self._write_columns(table, iterator, tag)
            return _write_rows(table, self._write, iterator)

    def _write_columns(
        self, table: OpenTable, iterator: Iterator[pa.RecordBatch], tag: bytes
    ) -> ColumnChangeMessage:
        assigned = self._write["given"][0]
        schema = Schema(tuple(field for field in table.schema.fields if field.name in assigned))
        positions = _positions(self._write)
        chosen = [self._write["address"], *(positions[name] for name in schema.names)]
        target: ColumnTarget = "overlay" if self._write["mode"] == "overlay" else "old"
        work = WriteColumns(self._table, schema, tag, target, ordered=True)
        parts = work(batch.select(chosen) for batch in iterator)
        return ColumnChangeMessage([file for part in parts for file in part or ()])


def _write_rows(
    table: OpenTable, write: Mapping[str, Any], batches: Iterable[pa.RecordBatch]
) -> RowChangeMessage:
    """Write the changed rows of a task, and the deletion files of their fragments.

    Few of several tasks are left to the commit.
    """
    tag, tasks = bytes.fromhex(write["tag"]), write.get("tasks", 1)
    max_held = _BYTES_FOR_COMMIT // tasks if tasks > 1 else 0
    changer = RowChanger(table, write["columns"], tag, max_held)
    with abort_on_error(changer.abort):
        for batch in batches:
            if batch.num_rows:
                _apply(changer, write, batch)
        if tasks > 1 and changer.num_removed <= _ROWS_FOR_COMMIT // tasks:
            return RowChangeMessage(changer.finish(), None)
        removed = changer.removed
        return RowChangeMessage(
            *write_and_delete(
                changer.finish,
                lambda: write_deletions(table, [removed], tag),
                partial(undo, table.paths),
            )
        )


def _positions(write: Mapping[str, Any]) -> dict[str, int]:
    return dict(zip(write["columns"], write["ordinals"], strict=True))


def _apply(changer: RowChanger, write: Mapping[str, Any], batch: pa.RecordBatch) -> None:
    operations = batch.column(0).to_numpy()
    addresses: UInt64Array = batch.column(write["address"]).fill_null(0).to_numpy().view(np.uint64)
    positions = _positions(write)
    # Inserted rows last: see `RowRewriter.insert`.
    numbers = sorted(np.unique(operations).tolist(), key=lambda n: n % _STEP == INSERT)
    for number in numbers:
        chosen = np.flatnonzero(operations == number)
        operation, index = number % _STEP, number // _STEP
        if operation == DELETE:
            changer.delete(addresses[chosen])
            continue
        assigned_names = write["given"]
        names = assigned_names[index] if operation == UPDATE and assigned_names else list(positions)
        rows = batch if len(chosen) == batch.num_rows else batch.take(pa.array(chosen))
        columns = [rows.column(positions[name]) for name in names]
        if operation == INSERT:
            changer.insert(pa.RecordBatch.from_arrays(columns, names=names))
        elif operation == UPDATE:
            changer.update(addresses[chosen], _batch(columns, names, rows.num_rows))
        else:
            raise LanceError(
                f"the plan of the statement has rows of an unknown operation, {operation}"
            )


def write_deletions(
    table: OpenTable, removed: Iterable[Mapping[int, bytes]], tag: bytes
) -> list[FragmentDeletion]:
    """Write the deletion files of the fragments that lose rows; see `union_rows`."""
    rows = union_rows(removed, disjoint=True)
    if not rows:
        return []
    runner = LocalRunner(table.store.is_local)
    runner.tag = tag
    return run_delete(table, runner, (), rows)


def key_filter(schema: Schema) -> KeyFilter | None:
    """Return an empty filter of the keys of new rows; None if the table has no primary key."""
    key = primary_key(schema)
    return KeyFilter([path[-1].to_arrow().type for path in key]) if key else None


def column_at(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    """Return a column, or a child of a struct."""
    import pyarrow.compute as pc

    column = batch.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column


def open_planned(options: Mapping[str, str], write: Mapping[str, Any]) -> OpenTable:
    """Return the table at the version that a statement was planned on.

    Raises InvalidInputError: the statement names an older version. Raises VersionNotFoundError: the
    version was cleaned up, or the table was deleted and created again. The addresses of the
    statement name no rows of the new table.
    """
    parsed = ReadOptions.parse(options)
    if parsed.version is not None or parsed.tag is not None or parsed.timestamp is not None:
        raise InvalidInputError(
            f"{parsed.path}: rows of an older version cannot be changed; name the table alone"
        )
    table = open_table(ReadOptions.parse({**options, "version": str(write["version"])}))._table
    if write["identity"] != identity_text(table.manifest):
        raise VersionNotFoundError(
            f"{table.store.display}: version {table.version} is not the version that the statement "
            "was planned on, because the table was created again; run the statement again"
        )
    return table


def make_row_change_writer(options: Mapping[str, str]) -> RowChangeWriter:
    """Return the writer for the options of a statement."""
    from lance_spark.spark.read.snapshot import snapshot_of

    write = json.loads(options[OPTION])
    read_options = {name: value for name, value in options.items() if name.lower() != OPTION}
    return RowChangeWriter(snapshot_of(open_planned(read_options, write)), write)


def _batch(columns: Sequence[pa.Array], names: Sequence[str], num_rows: int) -> pa.RecordBatch:
    """Return a batch, which may have no columns: an update that changes nothing."""
    if columns:
        return pa.RecordBatch.from_arrays(list(columns), names=list(names))
    return pa.RecordBatch.from_struct_array(pa.array([{}] * num_rows, pa.struct([])))
