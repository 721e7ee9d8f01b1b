"""A merge by Spark: tasks write updated and new rows and record deleted rows; the driver commits.

Rows with the same address are adjacent, and so are new rows with the same key, also across batches.
The rows that are deleted from old fragments are those that the tasks recorded.
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
from lance_spark.file.arrays import with_offsets
from lance_spark.file.schema.field import Field
from lance_spark.file.writer import check_types
from lance_spark.mutations.mem_wal import check_rows_changeable
from lance_spark.mutations.rewrite.readers import AddressReader
from lance_spark.mutations.rows.update import commit_moved
from lance_spark.runner import abort_on_error
from lance_spark.spark.job import Job
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.checks import with_checks
from lance_spark.spark.table.dataframes import named_columns
from lance_spark.spark.table.jobs.find_rows import STEP
from lance_spark.spark.table.merge.join import Action, TaskClause
from lance_spark.spark.table.merge.plan import merge_frame
from lance_spark.spark.write.row_changes import RowChanger, TaskChanges, column_at, key_filter
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.primary_key import primary_key
from lance_spark.table.rows.addresses import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableHandle
    from lance_spark.spark.table.merge.join import Clause

#: Maximum number of columns in errors that identify a row.
_SHOWN = 3
_Indexes = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class MergeRows:
    """Work that merges the rows of a partition: address, number of the clause, values.

    It yields one `TaskChanges` if the partition has rows.

    - `clauses`: Indexed by their numbers.
    - `shown`: Columns that identify a row in errors.
    """

    table: TableSnapshot
    names: tuple[str, ...]
    clauses: tuple[TaskClause, ...]
    tag: bytes
    shown: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[TaskChanges]:
        """Merge the rows of all batches."""
        merger = _RowMerger(self)
        with abort_on_error(merger.abort):
            for batch in batches:
                if batch.num_rows:
                    merger.merge(batch)
            result = merger.finish()
        if result.rewritten.rows or result.rewritten.num_inserted:
            yield result


class _RowMerger:
    """Merges the rows of one task, batch by batch."""

    def __init__(self, work: MergeRows) -> None:
        self._work = work
        self._table = table = work.table.open()
        self._changer = RowChanger(table, work.names, work.tag)
        self._key = [tuple(node.name for node in path) for path in primary_key(table.schema)]
        self._inserts = np.array([clause.action is Action.INSERT for clause in work.clauses])
        self._deletes = np.array(
            [clause.action is Action.DELETE and not clause.conditional for clause in work.clauses]
        )
        self._last: tuple[int, int] | None = None
        self._last_key: list[pa.Array] | None = None

    def merge(self, batch: pa.RecordBatch) -> None:
        """Write updated and new rows, and record deleted rows."""
        numbers = batch.column(1).to_numpy()
        addresses = batch.column(0).fill_null(0).to_numpy().view(np.uint64)
        new = np.flatnonzero(self._inserts[numbers])
        old = np.flatnonzero(~self._inserts[numbers])
        values = pa.RecordBatch.from_arrays(
            [with_offsets(column) for column in batch.columns[2:]], names=list(self._work.names)
        )
        if self._key and len(new):
            self._check_keys(_rows_of(values, new))
        old = old[self._first_of_each(addresses[old], numbers[old])]
        for number in np.unique(numbers):
            rows = new if self._inserts[number] else old
            self._apply(int(number), rows[numbers[rows] == number], addresses, values)

    def finish(self) -> TaskChanges:
        """Close the files."""
        return self._changer.finish()

    def abort(self) -> None:
        """Delete the files that were written."""
        self._changer.abort()

    def _apply(
        self, number: int, rows: _Indexes, addresses: UInt64Array, values: pa.RecordBatch
    ) -> None:
        if not len(rows):
            return
        clause = self._work.clauses[number]
        if clause.action is Action.DELETE:
            self._changer.delete(addresses[rows])
            return
        clause_rows = _rows_of(values.select(clause.names), rows)
        if clause.action is Action.INSERT:
            self._changer.insert(clause_rows)
        else:
            self._changer.update(addresses[rows], clause_rows)

    def _first_of_each(
        self, addresses: UInt64Array, numbers: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that are the first with their address.

        Raises AmbiguousMergeError: several rows have an address, and not all of them delete it
        without a condition.
        """
        if not len(addresses):
            return np.ones(0, np.bool_)
        last, last_number = self._last or (int(addresses[0]) ^ 1, int(numbers[0]))
        before = np.concatenate([np.array([last], np.uint64), addresses[:-1]])
        earlier = np.concatenate([[last_number], numbers[:-1]])
        repeated = addresses == before
        ambiguous = np.flatnonzero(repeated & ~(self._deletes[numbers] & self._deletes[earlier]))
        if len(ambiguous):
            raise AmbiguousMergeError(self._ambiguity(int(addresses[ambiguous[0]])))
        self._last = int(addresses[-1]), int(numbers[-1])
        first: npt.NDArray[np.bool_] = ~repeated
        return first

    def _check_keys(self, values: pa.RecordBatch) -> None:
        """Refuse new rows with the same primary key, which are adjacent.

        Raises AmbiguousMergeError.
        """
        keys = [column_at(values, path) for path in self._key]
        if self._last_key is not None:
            keys = [pa.concat_arrays([a, b]) for a, b in zip(self._last_key, keys, strict=True)]
        self._last_key = [key.slice(len(key) - 1) for key in keys]
        is_repeated = np.ones(len(keys[0]) - 1, np.bool_)
        for key in keys:
            equal = pc.equal(key.slice(1), key.slice(0, len(key) - 1)).fill_null(False)
            is_repeated &= equal.to_numpy(zero_copy_only=False)
        if is_repeated.any():
            index = int(np.argmax(is_repeated))
            shown = ", ".join(
                f"{'.'.join(path)}={key[index].as_py()!r}"
                for path, key in zip(self._key, keys, strict=True)
            )
            raise AmbiguousMergeError(
                f"{self._table.store.display}: the source has several rows with the key {shown}, "
                "which the table does not have, and only one of them can be inserted; nothing was "
                "changed, make the source's keys unique"
            )

    def _ambiguity(self, address: int) -> str:
        """Return the error for a row that several rows of the source match."""
        shown = f"_rowaddr {address} (fragment {address >> OFFSET_BITS})"
        # The values only help the user: an error while reading them must not hide this one.
        with suppress(Exception):
            fields = [self._table.schema.field(name) for name in self._work.shown]
            with AddressReader(self._table, fields) as rows:
                row = rows.read(np.array([address], np.uint64))
            values = row.values.to_pylist()[0] if fields else {}
            identity = [f"_rowid={int(row.row_ids[0])}"]
            identity += (f"{name}={value!r}" for name, value in values.items())
            shown = f"{', '.join(identity)} at {shown}"
        return (
            f"{self._table.store.display}: several rows of the source match the row with {shown}, "
            "so its new values are not defined; nothing was changed, make the source's keys unique"
        )


def merge(
    handle: TableHandle,
    job: Job,
    dataset: Dataset,
    source: DataFrame,
    condition: str | Column,
    clauses: Sequence[Clause],
    options: CommitOptions,
    unchanged: Sequence[str] = (),
) -> tuple[Manifest, ChangeResult]:
    """Merge a frame into a version, once; see `LanceTable.merge`.

    Parameters
    ----------
    unchanged : sequence of str
        Columns that updates with all columns of the source do not write.

    Returns
    -------
    tuple of Manifest and ChangeResult
        The new version, or this version if nothing changed.
    """
    table = dataset._table
    # The frame checks the conditions that a clause may break.
    options = with_checks(options, table)
    check_rows_changeable(table, data_files=True, checked=options.checked_constraints)
    check_types(table.schema, table.manifest.data_storage_version)
    key = primary_key(table.schema)
    frame = merge_frame(handle, dataset, source, condition, clauses, key, unchanged)
    shown = _shown_columns(dataset, condition, key)
    work = MergeRows(snapshot_of(table), frame.names, frame.clauses, job.tag, shown)
    results: list[TaskChanges] = job.run_frame(frame.rows, work, "merge rows")
    if not results:
        return table.manifest, ChangeResult(table.version)
    inserted = sum(result.rewritten.num_inserted for result in results)
    updated = sum(result.rewritten.num_rows for result in results)
    deleted = sum(result.num_deleted for result in results)
    keys = key_filter(table.schema) if inserted else None
    for result in results:
        if keys is not None and result.keys is not None:
            keys.merge(result.keys)
    updates = (clause.names for clause in frame.clauses if clause.action is Action.UPDATE)
    manifest = commit_moved(
        table,
        job.runner(STEP),
        [result.rewritten for result in results],
        updated + deleted,
        {name for names in updates for name in names},
        options,
        None if keys is None else keys.inserted([path[-1].id for path in key]),
    )
    return manifest, ChangeResult(manifest.version, inserted, updated, deleted)


def _shown_columns(
    dataset: Dataset, condition: str | Column, key: Sequence[tuple[Field, ...]]
) -> tuple[str, ...]:
    """Return columns that identify a row in errors, of the primary key or of the condition."""
    schema = dataset._table.schema
    names = [path[0].name for path in key] or named_columns(dataset, condition)
    simple = {field.name for field in schema.fields if not field.children and not field.is_blob}
    return tuple(name for name in names if name in simple)[:_SHOWN]


def _rows_of(batch: pa.RecordBatch, rows: _Indexes) -> pa.RecordBatch:
    """Return rows of a batch by increasing indexes."""
    if len(rows) == batch.num_rows:
        return batch
    if int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return batch.slice(int(rows[0]), len(rows))
    return batch.take(pa.array(rows))
