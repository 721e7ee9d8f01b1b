"""Replacement of rows by the rows of a DataFrame, by Spark.

| step | runs on | effect |
| --- | --- | --- |
| `InsertRows` | executors | checks the new rows and writes data files |
| `replace_once` | executors | finds the old rows and writes deletion files |
| `replace_once` | driver | commits one `Update` |

The task that writes a row also checks it, because a DataFrame that is read twice can have other
rows the second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.blobs.writer import BlobOptions
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types as check_file_types
from lance_spark.mutations.mem_wal import check_rows_changeable
from lance_spark.mutations.rows.partial_overwrite import replace_once
from lance_spark.runner import abort_on_error
from lance_spark.spark.job import Job, task_number
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.checks import checked_rows, checks_on, named_by, with_checks
from lance_spark.spark.table.conditions import cast_to_field
from lance_spark.spark.table.dataframes import (
    analysis_errors,
    named_columns,
    null_of,
    text_of,
    to_column,
    with_defaults,
)
from lance_spark.spark.table.jobs.find_rows import STEP, select_rows
from lance_spark.spark.types.mapping import written_as
from lance_spark.spark.write.input import BackgroundWriter, InputConverter
from lance_spark.spark.write.planning import check_types, map_columns
from lance_spark.table.bases import folders
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.constraints import Constraint
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.writer import FragmentWriter
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.placement import placement_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableHandle

_NEW = "__new_{}"
#: Maximum number of characters of a value in errors.
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class InsertRows:
    """Work that writes the rows of a partition to new fragments, and yields these as a list.

    Batches have the new values, then the columns of the condition, and last its value.

    - `shown`: Columns of the condition, which errors show.
    """

    table: TableSnapshot
    names: tuple[str, ...]
    shown: tuple[str, ...]
    text: str
    tag: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[Fragment]]:
        """Write the rows of all batches."""
        table = self.table.open()
        schema = partial_schema(table, self.names)
        convert = InputConverter(input_schema(schema), self.names)
        manifest = table.manifest
        writer = FragmentWriter(
            table.paths,
            schema,
            manifest.data_storage_version,
            tag=self.tag,
            blobs=BlobOptions(bases=folders(manifest.base_paths)),
            targets=placement_of(table).of_new_rows,
            first=task_number(),
        )

        def write(batch: pa.RecordBatch) -> None:
            self._check(batch)
            for piece in convert(batch.select(range(len(self.names)))):
                writer.write(piece)

        with abort_on_error(writer.abort):
            with BackgroundWriter(write) as background:
                for batch in batches:
                    if batch.num_rows:
                        background.put(batch)
            fragments = writer.finish()
        if fragments:
            yield fragments

    def _check(self, batch: pa.RecordBatch) -> None:
        is_met = batch.column(batch.num_columns - 1)
        if is_met.true_count == len(is_met):
            return
        row = next(index for index, value in enumerate(is_met.to_pylist()) if not value)
        values = [
            f"{name} is {batch.column(len(self.names) + index)[row].as_py()!r:.{_SHOWN}}"
            for index, name in enumerate(self.shown)
        ]
        shown = f": {', '.join(values)}" if values else ""
        raise InvalidInputError(
            f"replace_where: a row of the DataFrame does not meet {self.text!r}{shown}. Nothing "
            "was replaced; filter the DataFrame by the same condition"
        )


def replace_where(
    handle: TableHandle,
    job: Job,
    dataset: Dataset,
    source: DataFrame,
    condition: str | Column,
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Replace rows of a version, once; see `LanceTable.replace_where`."""
    table = dataset._table
    options = with_checks(options, table)
    check_rows_changeable(table, data_files=True, checked=options.checked_constraints)
    source = with_defaults(source, table.schema)
    names = map_columns(source.columns, dataset.schema, table.store.display)
    schema = partial_schema(table, names)
    check_file_types(schema, table.manifest.data_storage_version)
    write_options = WriteOptions.parse({"path": handle.path})
    check_types(source.schema, write_options, names, input_schema(schema))
    checks = checks_on(table, None)
    rows, shown = with_condition(handle, dataset, source, names, condition, checks)
    work = InsertRows(snapshot_of(table), tuple(names), shown, text_of(condition), job.tag)
    written = job.run_frame(rows, work, "write rows")
    fragments = [fragment for part in written for fragment in part]
    filters, replaced = select_rows(handle, job, dataset, condition)
    manifest, count = replace_once(table, job.runner(STEP), filters, replaced, fragments, options)
    inserted = sum(fragment.physical_rows for fragment in fragments)
    return manifest, ChangeResult(
        manifest.version, num_inserted_rows=inserted, num_deleted_rows=count
    )


def with_condition(
    handle: TableHandle,
    dataset: Dataset,
    source: DataFrame,
    names: Sequence[str],
    condition: str | Column,
    checks: Sequence[Constraint] = (),
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return a frame of new rows with the value of the condition.

    Parameters
    ----------
    names : sequence of str
        For each column of the source, the column of the table.
    checks : sequence of Constraint
        Conditions of the table that the rows must meet.

    Returns
    -------
    tuple of DataFrame and tuple of str
        The frame: new values, columns that the condition names, value of the condition. And the
        names of these columns.

    Raises
    ------
    InvalidInputError
        Spark cannot analyse the condition, or its type is not boolean.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
    from pyspark.sql.types import BooleanType

    table = dataset._table
    new = {name: _NEW.format(index) for index, name in enumerate(names)}
    named = set(named_columns(dataset, condition))
    needed = named.union(named_by(checks, dataset.schema.names))
    fields = [field for field in table.schema.fields if field.name in needed]
    # The condition sees values as the table will have them: cast, and null if they are missing.
    types = {name: item.dataType for name, item in zip(names, source.schema.fields, strict=True)}
    columns = [
        (
            cast_to_field(F.col(new[field.name]), types[field.name], field, by_name=True)
            if field.name in new
            else null_of(field)
        ).alias(field.name)
        for field in fields
    ]
    written = [written_as(F.col(new_name), new_name, name) for name, new_name in new.items()]
    rows = checked_rows(source.toDF(*new.values()).select(*written, *columns), checks)
    if handle.alias_name is not None:
        rows = rows.alias(handle.alias_name)
    shown = tuple(field.name for field in fields if field.name in named)
    with analysis_errors("replace_where: condition"):
        is_met = to_column(condition, "replace_where: condition").alias("__met")
        checked = rows.select(*new.values(), *shown, is_met)
        dtype = checked.schema[-1].dataType
    if not isinstance(dtype, BooleanType):
        raise InvalidInputError(
            f"replace_where: the type of condition {text_of(condition)!r} must be boolean, but is "
            f"{dtype.simpleString()}"
        )
    return checked, shown


def partial_schema(table: OpenTable, names: Sequence[str]) -> Schema:
    """Return the schema of some columns of a table, in the table's order.

    Raises SchemaMismatchError: the table has none of these columns.
    """
    chosen = set(names)
    fields = tuple(field for field in table.schema.fields if field.name in chosen)
    if not fields:
        raise SchemaMismatchError(
            f"{table.store.display}: the DataFrame has no column of the table"
        )
    return Schema(fields)
