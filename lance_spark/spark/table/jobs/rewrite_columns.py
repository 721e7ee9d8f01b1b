"""Columns of rows by address, from frames to data files: what backfills and updates of columns
share.

A scan gives all rows of a fragment to one task, in order: nothing is shuffled. Expressions that
need other rows, window functions for example, are computed after a shuffle. What comes of them is
sorted by address, in a second run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.commits import commit_rows
from lance_spark.mutations.rewrite.column_rewriter import (
    ColumnFile,
    ColumnRewriter,
    RowOrderError,
    changed_columns,
)
from lance_spark.mutations.rewrite.row_reader import check_first_field
from lance_spark.mutations.rewrite.writer import undo
from lance_spark.mutations.rows.update import update_operation
from lance_spark.mutations.rows.update_task import UpdateResult
from lance_spark.spark.jobs.job import Job, parallelism
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.dataframes import by_fragment
from lance_spark.spark.table.jobs.find_rows import addresses_of
from lance_spark.spark.write.input_converter import InputConverter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.table.commit.options import CommitOptions
    from lance_spark.table.manifest.manifest import Manifest
    from lance_spark.table.open import OpenTable

#: Partitions for each task that can run at the same time.
_WAVES = 4


@dataclass(frozen=True, slots=True)
class PatchColumns:
    """Writes the columns of a partition, whose first column is addresses: what was written, or None
    if rows come in another order.

    Attributes
    ----------
    table : Pinned
        At the version that the addresses are of.
    schema : Schema
        The columns, with their ids.
    tag : bytes
        Ends the names of the files.
    old : bool
        Whether the table has the columns; see `ColumnRewriter`.
    ordered : bool
        Whether another order is an error.
    flagged : bool
        Whether the last column says of each row if it has values, which it must.
    """

    table: TableSnapshot
    schema: Schema
    tag: bytes
    old: bool = False
    ordered: bool = False
    flagged: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[ColumnFile] | None]:
        """Yield what was written."""
        patch = ColumnRewriter(self.table.open(), self.schema, old=self.old, tag=self.tag)
        try:
            self._write(patch, batches)
            results: list[ColumnFile] | None = patch.finish()
        except RowOrderError:
            patch.abort()
            if self.ordered:
                raise
            for _ in batches:
                pass
            results = None
        except BaseException:
            with suppress(Exception):
                patch.abort()
            raise
        if results is None or results:
            yield results

    def _write(self, patch: ColumnRewriter, batches: Iterator[pa.RecordBatch]) -> None:
        convert = InputConverter(input_schema(self.schema), self.schema.names)
        columns = list(range(1, 1 + len(self.schema.fields)))
        for batch in batches:
            if not batch.num_rows:
                continue
            addresses = addresses_of(batch)
            if self.flagged:
                flags = batch.column(batch.num_columns - 1)
                missing = flags.is_valid().index(False).as_py()
                if missing >= 0:
                    raise InvalidInputError(
                        f"the row with _rowaddr {addresses[missing]} has no row of the same key: "
                        "give it one, or leave missing "
                        'at "null"'
                    )
            start = 0
            for piece in convert(batch.select(columns)):
                patch.put(addresses[start : start + piece.num_rows], piece)
                start += piece.num_rows


def patched_in_order(
    job: Job,
    table: OpenTable,
    work: PatchColumns,
    rows: DataFrame,
    fragments: Collection[int],
    *,
    every: bool,
) -> list[ColumnFile]:
    """Write columns from a frame that has whole fragments in order; sort it, if its expressions
    have moved the rows.

    Parameters
    ----------
    job : Job
    table : OpenTable
        At the version that the addresses are of.
    work : PatchColumns
    rows : DataFrame
        ``_rowaddr``, then the columns.
    fragments : collection of int
        That rows can be of.
    every : bool
        Whether all live rows of these must come.

    Raises
    ------
    RowOrderError
        A row comes twice.
    LanceError, PySparkException
    """
    parts = job.run_frame(rows, work, "compute columns")
    patched = _joined(parts)
    numbers = [item.fragment_id for item in patched]
    good = None not in parts and len(set(numbers)) == len(numbers)
    if every:
        good = good and set(numbers) == set(fragments) and all(item.complete for item in patched)
    if good:
        return patched
    with suppress(StorageError):
        undo(table.paths, patched)
    return patched_sorted(job, work, rows, fragments)


def patched_sorted(
    job: Job, work: PatchColumns, rows: DataFrame, fragments: Collection[int]
) -> list[ColumnFile]:
    """Write columns from a frame of rows in any order; see `patched_in_order`."""
    partitions = min(len(fragments), _WAVES * parallelism(job.spark))
    ordered = by_fragment(rows, partitions)
    return _joined(job.run_frame(ordered, replace(work, ordered=True), "write columns"))


def commit_patched(
    table: OpenTable, patched: Sequence[ColumnFile], options: CommitOptions
) -> tuple[Manifest, ChangeResult]:
    """Commit new values of columns that the table has.

    Raises
    ------
    LanceError
        What `commit` raises.
    """
    columns = tuple(changed_columns(table, patched))
    operation = update_operation(table, [UpdateResult(columns=columns)], (), "columns")
    manifest = commit_rows(table, operation, options)
    count = sum(one.num_rows for one in columns)
    return manifest, ChangeResult(manifest.version, num_updated_rows=count)


def update_in_place(
    job: Job,
    table: OpenTable,
    fields: Sequence[Field],
    rows: DataFrame,
    fragments: Collection[int],
    options: CommitOptions,
    *,
    ordered: bool = True,
) -> tuple[Manifest, ChangeResult]:
    """Give rows new values of columns that the table has, in new data files of these columns alone.

    Parameters
    ----------
    job : Job
    table : OpenTable
        At the version that the addresses are of.
    fields : sequence of Field
        Top-level columns.
    rows : DataFrame
        ``_rowaddr`` and the columns, of Spark's types for them; of rows that change.
    fragments : collection of int
        That rows can be of.
    options : CommitOptions
    ordered : bool
        Whether the frame has whole fragments, in order.

    Raises
    ------
    RowOrderError
        A row comes twice.
    UnsupportedFeatureError
        The first column of files of version 0.1 would be in another file than those after it.
    LanceError, PySparkException
    """
    check_first_field(table, {node.id for field in fields for node in field.walk()})
    work = PatchColumns(snapshot_of(table), Schema(tuple(fields)), job.tag, old=True)
    if ordered:
        patched = patched_in_order(job, table, work, rows, fragments, every=False)
    else:
        patched = patched_sorted(job, work, rows, fragments)
    return commit_patched(table, patched, options)


def _joined(parts: Sequence[list[ColumnFile] | None]) -> list[ColumnFile]:
    return [item for part in parts for item in part or ()]
