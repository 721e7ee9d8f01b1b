"""The commit of a merge without Spark: rows with new values, new rows and deleted rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lance_spark import progress
from lance_spark.encoding.nulls import nulls
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.writer import check_types
from lance_spark.mutations.commits import commit_rows
from lance_spark.mutations.mem_wal import check_rows_changeable
from lance_spark.mutations.rewrite.row_rewriter import RowRewriter
from lance_spark.mutations.rewrite.writer import undo
from lance_spark.mutations.rows.chunked_rows import ChunkedRows, Indexes
from lance_spark.mutations.rows.delete import run_delete, union_rows
from lance_spark.mutations.rows.key_filter import KeyFilter
from lance_spark.mutations.rows.update import moved_operation
from lance_spark.mutations.runner import abort_on_error, runner_for, write_and_delete
from lance_spark.table.align import align
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.inserted_keys import InsertedKeys
from lance_spark.table.operations.data.update import Update
from lance_spark.table.primary_key import primary_key
from lance_spark.table.rows.u64_segments import UInt64Array


@dataclass(frozen=True, slots=True)
class MergedRows:
    """What a merge changes.

    - `source`: Columns of the table.
    - `updated`: Addresses of rows that get the values of `updates`, increasing.
    - `updates`, `inserts`: Rows of the source.
    - `deleted`: Addresses of rows.
    """

    source: pa.Table
    updated: UInt64Array
    updates: Indexes
    inserts: Indexes
    deleted: UInt64Array


def check_mergeable(table: OpenTable) -> None:
    """Raise an error if rows of a table cannot be changed."""
    check_rows_changeable(table, data_files=True)
    check_types(table.schema, table.manifest.data_storage_version)


def commit_merge(table: OpenTable, rows: MergedRows, options: CommitOptions) -> Manifest:
    """Write the new rows, and commit the merge, also if nothing changes.

    Raises CommitConflictError, StorageError: And errors of `merge_operation`.
    """
    return commit_rows(table, merge_operation(table, rows), options)


def merge_operation(table: OpenTable, rows: MergedRows) -> Update:
    """Write the files of a merge, and return the operation that commits them.

    Raises StorageError. Raises InvalidInputError, SchemaMismatchError: a value does not fit its
    column.
    """
    names = rows.source.column_names
    runner = runner_for(table, None)
    rewriter = RowRewriter(table, table.schema, names, tag=runner.tag)
    count = len(rows.updated) + len(rows.deleted)
    with abort_on_error(rewriter.abort):
        source = ChunkedRows(rows.source)
        total = len(rows.updated) + len(rows.inserts)
        with progress.stage("rewrite", total, "rows"):
            for start, batch in source.steps(rows.updates):
                rewriter.move(rows.updated[start : start + batch.num_rows], batch)
            if len(rows.deleted):
                rewriter.mark_deleted(rows.deleted)
            schema = input_schema(table.schema)
            for _, batch in source.steps(rows.inserts):
                rewriter.insert(_with_all_columns(batch, schema))
        # After the stage: an error of a callback at its end would leave deletion files.
        removed = union_rows([rewriter.removed], disjoint=True)
        written, deletions = write_and_delete(
            rewriter.finish,
            lambda: run_delete(table, runner, (), removed) if removed else [],
            partial(undo, table.paths),
        )
    keys = _inserted_keys(table, rows) if len(rows.inserts) else None
    return moved_operation(table, [written], deletions, count, names, keys)


def _with_all_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return new rows with all columns; those that are not given are null."""
    names = set(batch.schema.names)
    batch = align(batch, pa.schema([field for field in schema if field.name in names]))
    columns = [
        batch.column(field.name) if field.name in names else nulls(batch.num_rows, field)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _inserted_keys(table: OpenTable, rows: MergedRows) -> InsertedKeys | None:
    """Return the filter of the primary keys of new rows; None without a primary key."""
    key = primary_key(table.schema)
    names = [path[0].name for path in key]
    if (
        not key
        or any(len(path) > 1 for path in key)
        or not set(names) <= set(rows.source.schema.names)
    ):
        return None
    keys = KeyFilter([path[-1].to_arrow().type for path in key])
    schema = pa.schema([path[-1].to_arrow() for path in key])
    for _, batch in ChunkedRows(rows.source.select(names)).steps(rows.inserts):
        keys.add(align(batch, schema))
    return keys.inserted([path[-1].id for path in key]) if keys.num_keys else None
