"""A merge by Spark: executors write rows that change or are new, and note those that go; one commit
makes them part of the table.

Rows of one row of the table come next to one another, and so do new ones of one key, also from one
batch to the next. What is deleted is what the tasks noted that wrote the new rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.errors import AmbiguousMergeError
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.offsets import with_offsets
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types
from lance_spark.mutations.commits import check_rows_writable
from lance_spark.mutations.job_files import abort_on_error
from lance_spark.mutations.rewrite.address_reader import AddressReader
from lance_spark.mutations.rewrite.row_rewriter import RewrittenRows, RowRewriter
from lance_spark.mutations.rows.key_filter import KeyFilter
from lance_spark.mutations.rows.merge import commit_moved, primary_key
from lance_spark.spark.jobs.job import Job
from lance_spark.spark.jobs.task_number import task_number
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.dataframes import named_in
from lance_spark.spark.table.jobs.delete import STEP
from lance_spark.spark.table.merge.clauses import Action, Step
from lance_spark.spark.table.merge.plan import merge_frame
from lance_spark.spark.write.input_converter import InputConverter
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.rows.addresses import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableBase
    from lance_spark.spark.table.merge.clauses import Clause

#: Columns that tell a row which several source rows match, at most.
_SHOWN = 3
_Where = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Merged:
    """What a task did.

    Attributes
    ----------
    moved : Moved
        Its rows are those that moved, and those that went.
    num_deleted : int
        Rows that went.
    keys : KeyFilter, optional
        Those of the new rows, of a table that has a primary key.
    """

    moved: RewrittenRows
    num_deleted: int = 0
    keys: KeyFilter | None = None


@dataclass(frozen=True, slots=True)
class MergeRows:
    """Merges the rows of a partition, which come as an address, an action and values; yields a
    `Merged`, if there are any.

    Attributes
    ----------
    table : Pinned
    names : tuple of str
        Columns that the values are for.
    steps : tuple of Step
        By number of the action.
    tag : bytes
        Ends the names of the files.
    shown : tuple of str
        Columns that tell a row.
    """

    table: TableSnapshot
    names: tuple[str, ...]
    steps: tuple[Step, ...]
    tag: bytes
    shown: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Merged]:
        """Write the rows of all batches."""
        rows = _Rows(self)
        with abort_on_error(rows.abort):
            for batch in batches:
                if batch.num_rows:
                    rows.take(batch)
            merged = rows.finish()
        if merged.moved.rows or merged.moved.num_inserted:
            yield merged


class _Rows:
    """The rows of one task."""

    def __init__(self, work: MergeRows) -> None:
        self._work = work
        self._table = table = work.table.open()
        self._mover = RowRewriter(
            table, table.schema, work.names, tag=work.tag, first=task_number()
        )
        self._arrow = input_schema(table.schema)
        self._incoming = [InputConverter(self._arrow, step.names) for step in work.steps]
        self._key = [tuple(node.name for node in path) for path in primary_key(table.schema)]
        self._filter = _key_filter(table.schema)
        self._inserts = np.array([step.action is Action.INSERT for step in work.steps])
        self._deletes = np.array(
            [step.action is Action.DELETE and not step.conditional for step in work.steps]
        )
        self._last: tuple[int, int] | None = None
        self._last_key: list[pa.Array] | None = None
        self._deleted = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Write or note rows."""
        actions = batch.column(1).to_numpy()
        addresses = batch.column(0).fill_null(0).to_numpy().view(np.uint64)
        new = np.flatnonzero(self._inserts[actions])
        old = np.flatnonzero(~self._inserts[actions])
        values = pa.RecordBatch.from_arrays(
            [with_offsets(column) for column in batch.columns[2:]], names=list(self._work.names)
        )
        if self._key and len(new):
            self._check_keys(_rows_of(values, new))
        old = old[self._first_of_each(addresses[old], actions[old])]
        for number in np.unique(actions):
            chosen = new if self._inserts[number] else old
            self._apply(int(number), chosen[actions[chosen] == number], addresses, values)

    def finish(self) -> Merged:
        """Close the files."""
        keys = self._filter
        if keys is not None and not keys.num_keys:
            keys = None
        return Merged(self._mover.finish(), self._deleted, keys)

    def abort(self) -> None:
        """Delete what was written."""
        self._mover.abort()

    def _apply(
        self, number: int, rows: _Where, addresses: UInt64Array, values: pa.RecordBatch
    ) -> None:
        if not len(rows):
            return
        step = self._work.steps[number]
        if step.action is Action.DELETE:
            self._mover.mark_deleted(addresses[rows])
            self._deleted += len(rows)
            return
        chosen = _rows_of(values.select(step.names), rows)
        position = 0
        for piece in self._incoming[number](chosen):
            if step.action is Action.INSERT:
                self._insert(piece)
            else:
                self._mover.move(
                    addresses[rows[position : position + piece.num_rows]], piece, step.names
                )
            position += piece.num_rows

    def _insert(self, values: pa.RecordBatch) -> None:
        if self._filter is not None:
            keys = [_column(values, path) for path in self._key]
            names = [str(index) for index in range(len(keys))]
            self._filter.add(pa.RecordBatch.from_arrays(keys, names=names))
        given = dict(zip(values.schema.names, values.columns, strict=True))
        columns = [
            given[item.name] if item.name in given else pa.nulls(values.num_rows, item.type)
            for item in self._arrow
        ]
        self._mover.insert(pa.RecordBatch.from_arrays(columns, names=self._arrow.names))

    def _first_of_each(
        self, addresses: UInt64Array, actions: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.bool_]:
        """Tell which rows are the first ones of their address.

        Raises
        ------
        AmbiguousMergeError
            Another one is not to be deleted in any case.
        """
        if not len(addresses):
            return np.ones(0, np.bool_)
        last, action = self._last or (int(addresses[0]) ^ 1, int(actions[0]))
        before = np.concatenate([np.array([last], np.uint64), addresses[:-1]])
        earlier = np.concatenate([[action], actions[:-1]])
        again = addresses == before
        wrong = np.flatnonzero(again & ~(self._deletes[actions] & self._deletes[earlier]))
        if len(wrong):
            raise AmbiguousMergeError(self._name(int(addresses[wrong[0]])))
        self._last = int(addresses[-1]), int(actions[-1])
        first: npt.NDArray[np.bool_] = ~again
        return first

    def _check_keys(self, values: pa.RecordBatch) -> None:
        """Refuse new rows of one primary key, which come one after the other.

        Raises
        ------
        AmbiguousMergeError
        """
        keys = [_column(values, path) for path in self._key]
        if self._last_key is not None:
            keys = [pa.concat_arrays([a, b]) for a, b in zip(self._last_key, keys, strict=True)]
        self._last_key = [key.slice(len(key) - 1) for key in keys]
        same = np.ones(len(keys[0]) - 1, np.bool_)
        for key in keys:
            equal = pc.equal(key.slice(1), key.slice(0, len(key) - 1)).fill_null(False)
            same &= equal.to_numpy(zero_copy_only=False)
        if same.any():
            position = int(np.argmax(same))
            shown = ", ".join(
                f"{'.'.join(path)}={key[position].as_py()!r}"
                for path, key in zip(self._key, keys, strict=True)
            )
            raise AmbiguousMergeError(
                f"{self._table.store.display}: the source has several rows of the key {shown}, "
                "which the table does not have: only one "
                "of them can be inserted; nothing was changed, make the source's keys unique"
            )

    def _name(self, address: int) -> str:
        shown = f"_rowaddr {address} (fragment {address >> OFFSET_BITS})"
        with suppress(Exception):
            fields = [self._table.schema.field(name) for name in self._work.shown]
            with AddressReader(self._table, fields) as rows:
                row = rows.read(np.array([address], np.uint64))
            values = row.values.to_pylist()[0] if fields else {}
            told = [f"_rowid={int(row.row_ids[0])}"]
            told += (f"{name}={value!r}" for name, value in values.items())
            shown = f"{', '.join(told)} at {shown}"
        return (
            f"{self._table.store.display}: several rows of the source match the row with {shown}, "
            "and it is not clear which one is to "
            "change it; nothing was changed, make the source's keys unique"
        )


def merge(
    base: TableBase,
    job: Job,
    dataset: Dataset,
    source: DataFrame,
    condition: str | Column,
    clauses: Sequence[Clause],
    options: CommitOptions,
    kept: Sequence[str] = (),
) -> tuple[Manifest, ChangeResult]:
    """Merge a frame into a version, once; see `LanceTable.merge`.

    Parameters
    ----------
    base, job, dataset, source, condition, clauses, options
    kept : sequence of str
        Columns that updates with all columns of the source leave as they are.

    Returns
    -------
    tuple of Manifest and ChangeResult
        The new version, or the current one if nothing changed.
    """
    table = dataset._table
    check_rows_writable(table, data_files=True)
    check_types(table.schema, table.manifest.data_storage_version)
    key = primary_key(table.schema)
    frame = merge_frame(base, dataset, source, condition, clauses, key, kept)
    shown = _shown(dataset, condition, key)
    work = MergeRows(snapshot_of(table), frame.names, frame.steps, job.tag, shown)
    merged: list[Merged] = job.run_frame(frame.rows, work, "merge rows")
    inserted = sum(one.moved.num_inserted for one in merged)
    updated = sum(one.moved.num_rows for one in merged)
    deleted = sum(one.num_deleted for one in merged)
    if not merged:
        return table.manifest, ChangeResult(table.version)
    keys = _key_filter(table.schema) if inserted else None
    for one in merged:
        if keys is not None and one.keys is not None:
            keys.merge(one.keys)
    updates = (step.names for step in frame.steps if step.action is Action.UPDATE)
    manifest = commit_moved(
        table,
        job.runner(STEP),
        [one.moved for one in merged],
        updated + deleted,
        {name for names in updates for name in names},
        options,
        None if keys is None else keys.inserted([path[-1].id for path in key]),
    )
    return manifest, ChangeResult(manifest.version, inserted, updated, deleted)


def _key_filter(schema: Schema) -> KeyFilter | None:
    key = primary_key(schema)
    return KeyFilter([path[-1].to_arrow().type for path in key]) if key else None


def _shown(
    dataset: Dataset, condition: str | Column, key: Sequence[tuple[Field, ...]]
) -> tuple[str, ...]:
    """Return columns that tell a row: the primary key, or what the condition names."""
    schema = dataset._table.schema
    names = [path[0].name for path in key] or named_in(dataset, condition)
    simple = {item.name for item in schema.fields if not item.children and not item.is_blob}
    return tuple(item for item in names if item in simple)[:_SHOWN]


def _rows_of(batch: pa.RecordBatch, rows: _Where) -> pa.RecordBatch:
    """Return rows of a batch, which increase."""
    if len(rows) == batch.num_rows:
        return batch
    if int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return batch.slice(int(rows[0]), len(rows))
    return batch.take(pa.array(rows))


def _column(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    result = batch.column(path[0])
    for name in path[1:]:
        result = pc.struct_field(result, name)
    return result
