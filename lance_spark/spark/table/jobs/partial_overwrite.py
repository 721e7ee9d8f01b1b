"""Replacing rows by those of a DataFrame, by Spark.

| step | where | what |
| --- | --- | --- |
| rows of the DataFrame, with the condition's value | executors | data files; false is an error |
| rows of the table that meet it | executors | deletion files |
| `replacement` | driver | one `Update` |

A row is looked at by the task that writes it, so that a DataFrame need not give the same rows
twice.
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
from lance_spark.mutations.commits import check_rows_writable
from lance_spark.mutations.job_files import abort_on_error
from lance_spark.mutations.rows.partial_overwrite import replace_once
from lance_spark.spark.jobs.job import Job
from lance_spark.spark.jobs.task_number import task_number
from lance_spark.spark.options.options import WriteOptions
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.dataframes import cast_to, named_in, to_column, understood
from lance_spark.spark.table.jobs.delete import STEP, chosen_rows, text_of
from lance_spark.spark.write.background_writer import BackgroundWriter
from lance_spark.spark.write.input_converter import InputConverter
from lance_spark.spark.write.planning import check_types, map_columns
from lance_spark.table.bases import folders
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.writer import FragmentWriter
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.placement import placement_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableBase

_NEW = "__new_{}"
#: Characters of a value that an error shows.
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class InsertRows:
    """Writes the rows of a partition to new fragments, which it yields, if there are any.

    Batches have the new values, then the columns that errors show, and whether the row meets the
    condition.

    Attributes
    ----------
    table : Pinned
    names : tuple of str
        Columns that the new values are for.
    shown : tuple of str
    text : str
        The condition.
    tag : bytes
        Ends the names of the files.
    """

    table: TableSnapshot
    names: tuple[str, ...]
    shown: tuple[str, ...]
    text: str
    tag: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[Fragment]]:
        """Write the rows of all batches."""
        table = self.table.open()
        schema = given_columns(table, self.names)
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
            with BackgroundWriter(write) as behind:
                for batch in batches:
                    if batch.num_rows:
                        behind.put(batch)
            fragments = writer.finish()
        if fragments:
            yield fragments

    def _check(self, batch: pa.RecordBatch) -> None:
        met = batch.column(batch.num_columns - 1)
        if met.true_count == len(met):
            return
        position = next(n for n, item in enumerate(met.to_pylist()) if not item)
        values = [
            f"{name} is {batch.column(len(self.names) + n)[position].as_py()!r:.{_SHOWN}}"
            for n, name in enumerate(self.shown)
        ]
        shown = f": {', '.join(values)}" if values else ""
        raise InvalidInputError(
            f"replaceWhere: a row of the DataFrame does not meet {self.text!r}{shown}. Nothing was "
            "replaced; filter the DataFrame "
            "by the same condition"
        )


def replace_where(
    base: TableBase,
    job: Job,
    dataset: Dataset,
    source: DataFrame,
    condition: str | Column,
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Replace rows of a version, once; see `LanceTable.replaceWhere`."""
    table = dataset._table
    check_rows_writable(table, data_files=True)
    names = map_columns(source.columns, dataset.schema, table.store.display)
    schema = given_columns(table, names)
    check_file_types(schema, table.manifest.data_storage_version)
    write_options = WriteOptions.parse({"path": base.path})
    check_types(source.schema, write_options, names, input_schema(schema))
    rows, shown = with_condition(base, dataset, source, names, condition)
    work = InsertRows(snapshot_of(table), tuple(names), shown, text_of(condition), job.tag)
    written = job.run_frame(rows, work, "write rows")
    fragments = [one for part in written for one in part]
    filters, replaced = chosen_rows(base, job, dataset, condition)
    manifest, count = replace_once(table, job.runner(STEP), filters, replaced, fragments, options)
    inserted = sum(fragment.physical_rows for fragment in fragments)
    return manifest, ChangeResult(
        manifest.version, num_inserted_rows=inserted, num_deleted_rows=count
    )


def with_condition(
    base: TableBase,
    dataset: Dataset,
    source: DataFrame,
    names: Sequence[str],
    condition: str | Column,
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return a frame of new rows: values, columns that the condition names as the table has them,
    whether it is true.

    Parameters
    ----------
    base : TableBase
    dataset : Dataset
    source : DataFrame
    names : sequence of str
        For each column of it, that of the table.
    condition : str or Column

    Returns
    -------
    tuple of DataFrame and tuple of str
        The frame, and the columns that the condition names.

    Raises
    ------
    InvalidInputError
        Spark cannot make sense of the condition.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
    from pyspark.sql.types import BooleanType

    table = dataset._table
    given = {name: _NEW.format(index) for index, name in enumerate(names)}
    named = set(named_in(dataset, condition))
    fields = [field for field in table.schema.fields if field.name in named]
    # What the DataFrame does not have is null.
    columns = [
        cast_to(F.col(given[field.name]) if field.name in given else F.lit(None), field).alias(
            field.name
        )
        for field in fields
    ]
    rows = source.toDF(*given.values()).select(*given.values(), *columns)
    if base.alias_name is not None:
        rows = rows.alias(base.alias_name)
    shown = tuple(field.name for field in fields)
    with understood("replaceWhere: condition"):
        met = to_column(condition, "replaceWhere: condition").alias("__met")
        checked = rows.select(*given.values(), *shown, met)
        kind = checked.schema[-1].dataType
    if not isinstance(kind, BooleanType):
        raise InvalidInputError(
            f"replaceWhere: condition {text_of(condition)!r} is neither true nor false, but "
            f"{kind.simpleString()}"
        )
    return checked, shown


def given_columns(table: OpenTable, names: Sequence[str]) -> Schema:
    """Return the columns of a table that are given, in the table's order.

    Raises
    ------
    SchemaMismatchError
        There are none.
    """
    chosen = set(names)
    fields = tuple(field for field in table.schema.fields if field.name in chosen)
    if not fields:
        raise SchemaMismatchError(
            f"{table.store.display}: the DataFrame has no column of the table"
        )
    return Schema(fields)
