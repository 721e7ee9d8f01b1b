"""New columns that Spark computes, and columns that it writes again."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_spark.errors import (
    InvalidInputError,
    LanceError,
    SchemaMismatchError,
    StorageError,
    UnsupportedError,
)
from lance_spark.file.blobs.fields import has_blobs, input_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import SPARK_TYPE
from lance_spark.mutations.columns.add import with_new_ids
from lance_spark.mutations.columns.fill import Computation
from lance_spark.mutations.rewrite.column_rewriter import (
    ColumnFile,
    ColumnRewriter,
    ColumnTarget,
    RowOrderError,
    changed_columns,
    overlay_files,
)
from lance_spark.mutations.rewrite.overlay_files import check_overlaid_fields
from lance_spark.mutations.rewrite.readers import check_first_field
from lance_spark.mutations.rewrite.writers import undo
from lance_spark.mutations.rows.update import UpdateResult, commit_updates
from lance_spark.scan.fragment.row_meta import META_FIELDS, ROW_ADDRESS
from lance_spark.spark.catalog.properties import of_new_columns
from lance_spark.spark.job import Job, parallelism
from lance_spark.spark.quoting import quoted
from lance_spark.spark.read.projection import find
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.checks import checked_rows, checks_on, named_by, with_checks
from lance_spark.spark.table.conditions import cast_to_field
from lance_spark.spark.table.dataframes import (
    analysis_errors,
    by_fragment,
    cast_to,
    frame,
    has_windows,
    named_columns,
    resolve_columns,
    to_column,
)
from lance_spark.spark.table.jobs.find_rows import addresses_of
from lance_spark.spark.types.mapping import to_arrow_schema, written_as
from lance_spark.spark.write.input import InputConverter
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.rows.ids import check_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableHandle
    from lance_spark.table.commit.options import CommitOptions
    from lance_spark.table.manifest.manifest import Manifest
    from lance_spark.table.open import OpenTable


# --------------------------------------------------------------------------------------------------
# Columns from frames to data files by row address, for new columns and updates of columns.
#
# A scan passes all rows of a fragment to one task, in order, so no shuffle is needed. Expressions
# that need other rows, such as window functions, shuffle the rows; then the rows are sorted by
# address in a second run.

#: Partitions per concurrent task.
_WAVES = 4


@dataclass(frozen=True, slots=True)
class WriteColumns:
    """Work that writes the columns of a partition. The first column is the row address.

    It yields the written files, or None if the rows are not in order.

    - `schema`: The columns, with their ids.
    - `target`: What the files are; see `ColumnRewriter`.
    - `ordered`: Whether it is an error if the rows are not in order.
    - `flagged`: Whether there is a last column that is null in rows without values, which are an
      error.
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

    - `table`: The version to which the addresses refer.
    - `rows`: ``_rowaddr``, then the columns.
    - `fragments`: Ids of the fragments that the rows can belong to.
    - `complete`: Whether the frame must have all live rows of these fragments.

    Raises LanceError, PySparkException. Raises RowOrderError: the frame has a row twice.
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

    - `table`: The version to which the addresses refer.
    - `rows`: The rows to update: ``_rowaddr`` and the columns, in Spark's types for them.
    - `fragments`: Ids of the fragments that the rows can belong to.
    - `ordered`: Whether the frame has whole fragments, in order.
    - `overlay`: Whether the new files are overlays.

    Raises LanceError, PySparkException. Raises RowOrderError: the frame has a row twice. Raises
    UnsupportedFeatureError: the first column of files of version 0.1 would be in another file than
    later columns.
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


# --------------------------------------------------------------------------------------------------
# New columns for existing rows, and updates of columns by another frame, computed by Spark.
#
# | step | runs on | effect |
# | --- | --- | --- |
# | frame of `_rowaddr` and expressions | executors | reads the columns that expressions name |
# | `WriteColumns` | executors | writes one data file for each fragment |
# | `Computation.finish` | driver | commits one `Merge` |
#
# After a conflict, files of fragments whose values did not change are used again; only values of
# other fragments are computed again. If values depend on other rows (window functions, subqueries),
# all are computed again.

_SOURCE_KEY, _SOURCE_VALUE, _MATCHED = "__key_{}", "__new_{}", "__found"
_TARGET_KEY = "__own_{}"
#: A text that may have a subquery, or an expression that may be the value of one.
_SUBQUERY = re.compile(r"\bselect\b|subquery|scalar|exists", re.IGNORECASE)


def add_expressions(
    handle: TableHandle,
    job: Job,
    dataset: Dataset,
    computation: Computation,
    expressions: Mapping[str, str | Column],
    nullable: bool,
    metadata: Mapping[str, Mapping[str, str]],
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Add columns to a version, once; see `LanceTable.add_columns`."""
    table = dataset._table
    labels = [f"new column {name!r}" for name in expressions]
    columns = {
        name: to_column(expression, label)
        for label, (name, expression) in zip(labels, expressions.items(), strict=True)
    }
    check_new_columns(table, columns)
    named = named_columns(dataset, *expressions.values())
    read = resolve_columns(handle, dataset, named, *columns.values(), labels=labels)
    selection = [column.alias(name) for name, column in columns.items()]
    with analysis_errors("new columns"):
        types = frame(handle, dataset, read).select(ROW_ADDRESS.name, *selection).schema
    schema = _new_schema(table, types, metadata, nullable)
    is_sorted = has_windows(*expressions.values())
    by_row = not (is_sorted or any(map(_SUBQUERY.search, map(str, expressions.values()))))
    computation.start(table, table.schema, schema, by_row=by_row)
    missing = _missing_fragments(table, computation)
    if missing:
        rows = frame(handle, dataset, read, fragments=missing, whole_fragments=not is_sorted)
        written = (written_as(column, name, name) for name, column in columns.items())
        rows = rows.select(ROW_ADDRESS.name, *written)
        work = WriteColumns(snapshot_of(table), schema, job.tag)
        if is_sorted:
            files = write_sorted(job, work, rows, missing)
        else:
            files = write_in_order(job, table, work, rows, missing, complete=True)
        _add_files(table, computation, files)
    return _finish(table, schema, computation, options)


def add_from(
    handle: TableHandle,
    job: Job,
    dataset: Dataset,
    computation: Computation,
    source: DataFrame,
    key: Sequence[str],
    required: bool,
    metadata: Mapping[str, Mapping[str, str]],
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Add columns of another frame to a version, once; see `LanceTable.add_columns_from`."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    table = dataset._table
    check_key(table, source, key)
    source = with_keys_as_stored(source, table, key)
    new = [name for name in source.columns if name not in key]
    check_new_columns(table, new)
    types = source.select(F.lit(0), *(source[name] for name in new)).schema
    schema = _new_schema(table, types, metadata, True)
    computation.start(table, table.schema, schema)
    missing = _missing_fragments(table, computation)
    if missing:
        target = frame(handle, dataset, key, fragments=missing)
        values = {name: source[name] for name in new}
        joined = join_by_key(target, source, key, values, "left", required)
        work = WriteColumns(snapshot_of(table), schema, job.tag, flagged=required)
        _add_files(table, computation, write_sorted(job, work, joined, missing))
    return _finish(table, schema, computation, options)


def update_from(
    handle: TableHandle,
    job: Job,
    dataset: Dataset,
    source: DataFrame,
    key: Sequence[str],
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Update columns of a version by another frame, once; see `LanceTable.update_columns_from`."""
    table = dataset._table
    check_key(table, source, key)
    source = with_keys_as_stored(source, table, key)
    names = [name for name in source.columns if name not in key]
    if not names:
        raise InvalidInputError("the DataFrame must have a column besides the key")
    by_name = {field.name: field for field in table.schema.fields}
    indexes = {name: find(table.schema.names, name) for name in names}
    unknown = [name for name, index in indexes.items() if index < 0]
    if unknown:
        raise SchemaMismatchError(
            f"{table.store.display} has no column {unknown[0]!r} to update, only "
            f"{', '.join(by_name)}"
        )
    fields = [by_name[table.schema.names[index]] for index in indexes.values()]
    blobs = [field.name for field in fields if has_blobs(field)]
    if blobs:
        raise UnsupportedError(
            f"update_columns_from: column {blobs[0]!r} holds blobs; use update() or merge()"
        )
    types = {name: source.schema[name].dataType for name in names}
    values = {
        field.name: cast_to_field(source[name], types[name], field, by_name=False)
        for name, field in zip(names, fields, strict=True)
    }
    if len(values) < len(names):
        raise InvalidInputError(
            f"two columns of the DataFrame match one column of the table: {', '.join(names)}"
        )
    fragments = [
        fragment.id
        for fragment in counted_fragments(table.paths, table.manifest)
        if fragment.num_rows
    ]
    checks = checks_on(table, values.keys())
    # Values that the rows keep, and that a condition names.
    unchanged = [name for name in named_by(checks, table.schema.names) if name not in values]
    target = frame(handle, dataset, list(dict.fromkeys([*key, *unchanged])))
    rows = join_by_key(target, source, key, values, "inner", kept=unchanged)
    if checks:
        written = [ROW_ADDRESS.name, *map(quoted, values)]
        rows = checked_rows(rows, checks, kept=written)
    options = with_checks(options, table)
    return rewrite_columns(job, table, fields, rows, fragments, options, ordered=False)


def join_by_key(
    target: DataFrame,
    source: DataFrame,
    key: Sequence[str],
    values: Mapping[str, Column],
    join_type: str,
    flagged: bool = False,
    kept: Sequence[str] = (),
) -> DataFrame:
    """Return the addresses of a table's rows, with values of a source's rows with the same key.

    - `target`: Rows of the table: the key, ``_rowaddr``, and the columns `kept`.
    - `values`: Expressions over the source, by the names of the new columns.
    - `kept`: Columns of the table that stand behind the values.
    - `flagged`: Whether to add a last column that is null for rows whose key is not in the source.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    unchanged = [quoted(name) for name in kept]
    target_keys = target.select(
        ROW_ADDRESS.name,
        *(F.col(name).alias(_TARGET_KEY.format(i)) for i, name in enumerate(key)),
        *unchanged,
    )
    source_values = source.select(
        *(source[name].alias(_SOURCE_KEY.format(i)) for i, name in enumerate(key)),
        *(
            written_as(value, _SOURCE_VALUE.format(i), name)
            for i, (name, value) in enumerate(values.items())
        ),
        F.lit(True).alias(_MATCHED),
    )
    conditions = [
        F.col(_TARGET_KEY.format(i)) == F.col(_SOURCE_KEY.format(i)) for i in range(len(key))
    ]
    return target_keys.join(source_values, conditions, join_type).select(
        ROW_ADDRESS.name,
        *(F.col(_SOURCE_VALUE.format(i)).alias(name) for i, name in enumerate(values)),
        *unchanged,
        *([_MATCHED] if flagged else []),
    )


def with_keys_as_stored(source: DataFrame, table: OpenTable, key: Sequence[str]) -> DataFrame:
    """Return a source whose keys have the types in Spark of the columns, such as char(4)."""
    fields = {field.name: field for field in table.schema.fields if field.name in key}
    recorded = {
        name: cast_to(source[name], field)
        for name, field in fields.items()
        if SPARK_TYPE in field.metadata
    }
    return source.withColumns(recorded) if recorded else source


def check_key(table: OpenTable, source: DataFrame, key: Sequence[str]) -> None:
    """Check that a key has columns, and that both the table and the source have them.

    Raises InvalidInputError.
    """
    if not key:
        raise InvalidInputError("key must name at least one column")
    for name in key:
        if name not in (*table.schema.names, *META_FIELDS):
            raise InvalidInputError(f"key: {table.store.display} has no column {name!r}")
        if name not in source.columns:
            raise InvalidInputError(
                f"key: the DataFrame has no column {name!r}; it has {', '.join(source.columns)}"
            )


def check_new_columns(table: OpenTable, names: Iterable[Any]) -> None:
    """Check that the names of new columns are valid, and that the table does not have them.

    Raises InvalidInputError.
    """
    names = list(names)
    if not names:
        raise InvalidInputError("nothing to add: name at least one new column")
    existing = {name.lower(): name for name in table.schema.names}
    for name in names:
        if not isinstance(name, str) or not name or "." in name:
            raise InvalidInputError(
                f"{name!r} is not a valid name of a column: it must be text without dots"
            )
        if name.lower() in existing:
            raise InvalidInputError(
                f"{table.store.display}: column {existing[name.lower()]!r} exists already"
            )
    if len({name.lower() for name in names}) < len(names):
        raise InvalidInputError(f"two new columns have the same name: {', '.join(names)}")
    check_names(names)


def _new_schema(
    table: OpenTable, types: StructType, metadata: Mapping[str, Mapping[str, str]], nullable: bool
) -> Schema:
    """Return the new columns with their ids. The first column of `types` is the address."""
    from pyspark.sql.types import StructType

    columns = StructType(types.fields[1:])
    known = of_new_columns(table.manifest.table_metadata, columns.names)
    arrow = to_arrow_schema(columns, {**known, **metadata})
    return with_new_ids(table, pa.schema([field.with_nullable(nullable) for field in arrow]))


def _missing_fragments(table: OpenTable, computation: Computation) -> list[int]:
    """Return the ids of the fragments with rows whose values are not computed yet."""
    return [
        fragment.id
        for fragment in counted_fragments(table.paths, table.manifest)
        if fragment.num_rows and fragment.id not in computation.done
    ]


def _add_files(table: OpenTable, computation: Computation, files: Sequence[ColumnFile]) -> None:
    incomplete = [file for file in files if not file.complete]
    if incomplete:
        raise LanceError(
            f"{table.store.display}: rows of fragment {incomplete[0].fragment_id} have no new "
            "values: the expressions leave rows out; nothing was changed"
        )
    computation.add(table, files)


def _finish(
    table: OpenTable, schema: Schema, computation: Computation, options: CommitOptions
) -> tuple[Manifest, ChangeResult]:
    manifest = computation.finish(
        table,
        [*table.manifest.to_proto().fields, *schema.to_protos()],
        preserves_nullability=all(field.nullable for field in schema.fields),
        options=options,
    )
    return manifest, ChangeResult(manifest.version)
