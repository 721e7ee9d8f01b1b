"""Columns from frames to data files by row address, for new columns and updates of columns.

A scan passes all rows of a fragment to one task, in order, so no shuffle is needed. Expressions
that need other rows, such as window functions, shuffle the rows; then the rows are sorted by
address in a second run.
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
from lance_spark.mutations.rewrite.column_rewriter import (
    ColumnFile,
    ColumnRewriter,
    ColumnTarget,
    RowOrderError,
    changed_columns,
    overlay_files,
)
from lance_spark.mutations.rewrite.overlay_files import check_overlaid_fields
from lance_spark.mutations.rewrite.row_reader import check_first_field
from lance_spark.mutations.rewrite.writer import undo
from lance_spark.mutations.rows.update import commit_updates
from lance_spark.mutations.rows.update_task import UpdateResult
from lance_spark.spark.job import Job, parallelism
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.dataframes import by_fragment
from lance_spark.spark.table.jobs.find_rows import addresses_of
from lance_spark.spark.write.input import InputConverter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.table.commit.options import CommitOptions
    from lance_spark.table.manifest.manifest import Manifest
    from lance_spark.table.open import OpenTable

#: Partitions per concurrent task.
_WAVES = 4


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """Work that writes the columns of a partition. The first column is the row address.

    It yields the written files, or None if the rows are not in order.

    Attributes
    ----------
    schema : Schema
        The columns, with their ids.
    target : str
        What the files are; see `ColumnRewriter`.
    ordered : bool
        Whether it is an error if the rows are not in order.
    flagged : bool
        Whether there is a last column that is null in rows without values, which are an error.
    """

    table: TableSnapshot
    schema: Schema
    tag: bytes
    target: ColumnTarget = "new"
    ordered: bool = False
    flagged: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[ColumnFile] | None]:
        """Write the rows of all batches."""
        rewriter = ColumnRewriter(self.table.open(), self.schema, target=self.target, tag=self.tag)
        try:
            self._write(rewriter, batches)
            files: list[ColumnFile] | None = rewriter.finish()
        except RowOrderError:
            rewriter.abort()
            if self.ordered:
                raise
            for _ in batches:
                pass
            files = None
        except BaseException:
            with suppress(Exception):
                rewriter.abort()
            raise
        if files is None or files:
            yield files

    def _write(self, rewriter: ColumnRewriter, batches: Iterator[pa.RecordBatch]) -> None:
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
                        f"the key of the row with _rowaddr {addresses[missing]} is not in the "
                        'DataFrame; add a row with this key, or set missing="null"'
                    )
            start = 0
            for piece in convert(batch.select(columns)):
                rewriter.put(addresses[start : start + piece.num_rows], piece)
                start += piece.num_rows


def write_in_order(
    job: Job,
    table: OpenTable,
    work: WriteColumns,
    rows: DataFrame,
    fragments: Collection[int],
    *,
    complete: bool,
) -> list[ColumnFile]:
    """Write columns from a frame of whole fragments in order.

    If expressions changed the order of the rows, they are sorted and written again.

    Parameters
    ----------
    table : OpenTable
        The version to which the addresses refer.
    rows : DataFrame
        ``_rowaddr``, then the columns.
    fragments : collection of int
        Ids of the fragments that the rows can belong to.
    complete : bool
        Whether the frame must have all live rows of these fragments.

    Raises
    ------
    RowOrderError
        The frame has a row twice.
    LanceError, PySparkException
    """
    parts = job.run_frame(rows, work, "compute columns")
    files = _concatenated(parts)
    numbers = [file.fragment_id for file in files]
    in_order = None not in parts and len(set(numbers)) == len(numbers)
    if complete:
        in_order &= set(numbers) == set(fragments) and all(file.complete for file in files)
    if in_order:
        return files
    with suppress(StorageError):
        undo(table.paths, files)
    return write_sorted(job, work, rows, fragments)


def write_sorted(
    job: Job, work: WriteColumns, rows: DataFrame, fragments: Collection[int]
) -> list[ColumnFile]:
    """Write columns from a frame of rows in any order; see `write_in_order`."""
    partitions = min(len(fragments), _WAVES * parallelism(job.spark))
    ordered = by_fragment(rows, partitions)
    return _concatenated(job.run_frame(ordered, replace(work, ordered=True), "write columns"))


def rewrite_columns(
    job: Job,
    table: OpenTable,
    fields: Sequence[Field],
    rows: DataFrame,
    fragments: Collection[int],
    options: CommitOptions,
    *,
    ordered: bool = True,
    overlay: bool = False,
) -> tuple[Manifest, ChangeResult]:
    """Update columns in new data files of these columns, or in overlay files, and commit.

    Rows stay in their fragments.

    Parameters
    ----------
    table : OpenTable
        The version to which the addresses refer.
    rows : DataFrame
        The rows to update: ``_rowaddr`` and the columns, in Spark's types for them.
    fragments : collection of int
        Ids of the fragments that the rows can belong to.
    ordered : bool
        Whether the frame has whole fragments, in order.
    overlay : bool
        Whether the new files are overlays.

    Raises
    ------
    RowOrderError
        The frame has a row twice.
    UnsupportedFeatureError
        The first column of files of version 0.1 would be in another file than later columns.
    LanceError, PySparkException
    """
    if overlay:
        check_overlaid_fields(table, fields)
    else:
        check_first_field(table, {node.id for field in fields for node in field.walk()})
    target: ColumnTarget = "overlay" if overlay else "old"
    work = WriteColumns(snapshot_of(table), Schema(tuple(fields)), job.tag, target)
    if ordered:
        files = write_in_order(job, table, work, rows, fragments, complete=False)
    else:
        files = write_sorted(job, work, rows, fragments)
    if overlay:
        result = UpdateResult(overlays=tuple(overlay_files(files)))
    else:
        result = UpdateResult(columns=tuple(changed_columns(table, files)))
    manifest = commit_updates(
        table, [result], (), mode="overlay" if overlay else "columns", options=options
    )
    return manifest, ChangeResult(manifest.version, num_updated_rows=result.num_rows)


def _concatenated(parts: Sequence[list[ColumnFile] | None]) -> list[ColumnFile]:
    return [file for part in parts for file in part or ()]
