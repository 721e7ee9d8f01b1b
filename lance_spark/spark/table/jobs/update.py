"""Updating rows by Spark: executors compute new values, and write them where the mode says.

| mode | executors write | bytes, about |
| --- | --- | --- |
| rows | whole rows that get values, to new fragments; deletion files | all columns of these rows |
| columns | data files of the columns that get values | these columns of all rows of the fragments |

The mode "auto" finds the rows first, and takes what has fewer bytes. A frame has the addresses of
the rows and their new values, and no other column. Who writes a row notes its address; what is
committed is made of these notes, so that what is deleted is what was written, even if a condition
would not say the same again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    UnsupportedError,
)
from lance_spark.file.blobs.fields import has_blobs, input_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types
from lance_spark.mutations.commits import check_rows_writable
from lance_spark.mutations.job_files import abort_on_error
from lance_spark.mutations.rewrite.row_reader import hides_first_field
from lance_spark.mutations.rewrite.row_rewriter import RewrittenRows, RowRewriter
from lance_spark.mutations.rows.merge import commit_moved
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.scan.plan import estimated_bytes, read_bytes
from lance_spark.spark.jobs.job import Job
from lance_spark.spark.jobs.task_number import task_number
from lance_spark.spark.read.projection import finder
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.conditions import matching
from lance_spark.spark.table.dataframes import by_fragment, cast_to, has_windows, to_column
from lance_spark.spark.table.jobs.assigned_columns import assigned_columns
from lance_spark.spark.table.jobs.delete import STEP
from lance_spark.spark.table.jobs.find_rows import addresses_of, find_rows
from lance_spark.spark.table.jobs.rewrite_columns import update_in_place
from lance_spark.spark.write.input_converter import InputConverter
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableBase

UpdateMode = Literal["auto", "rows", "columns"]
#: Rows of a new file, about, and those that are worth one.
_ROWS_PER_FILE = 1024 * 1024
_FEW_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class MoveRows:
    """Moves the rows of a partition, which come as an address and new values; yields a
    `RewrittenRows`, if there are any.

    Attributes
    ----------
    table : Pinned
    names : tuple of str
        Columns that the values are for.
    tag : bytes
        Ends the names of the files.
    """

    table: TableSnapshot
    names: tuple[str, ...]
    tag: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[RewrittenRows]:
        """Write the rows of all batches."""
        table = self.table.open()
        chosen = set(self.names)
        given = Schema(tuple(field for field in table.schema.fields if field.name in chosen))
        incoming = InputConverter(input_schema(given), self.names)
        mover = RowRewriter(table, table.schema, self.names, tag=self.tag, first=task_number())
        with abort_on_error(mover.abort):
            for batch in batches:
                addresses = addresses_of(batch)
                position = 0
                for values in incoming(batch.select(range(1, batch.num_columns))):
                    mover.move(addresses[position : position + values.num_rows], values)
                    position += values.num_rows
            moved = mover.finish()
        if moved.num_rows:
            yield moved


def update(
    base: TableBase,
    job: Job,
    dataset: Dataset,
    condition: str | Column | None,
    values: Mapping[str, str | Column] | None,
    mode: UpdateMode,
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Update rows of a version, once; see `LanceTable.update`."""
    if mode not in get_args(UpdateMode):
        raise InvalidOptionError(f"mode {mode!r} is none of {', '.join(get_args(UpdateMode))}")
    table = dataset._table
    check_rows_writable(table, data_files=True)
    check_types(table.schema, table.manifest.data_storage_version)
    assigned = assignments(table.schema, values, base.spark, base.alias_name)
    by_name = {item.name: item for item in table.schema.fields}
    fields = [by_name[name] for name in assigned]
    ids = {node.id for item in fields for node in item.walk()}
    blobs = [item.name for item in fields if has_blobs(item)]
    if blobs and mode == "columns":
        raise UnsupportedError(
            f'update: blobs of column {blobs[0]!r} cannot be set in mode "columns"; use "rows" or '
            '"auto"'
        )
    results: dict[int, BitMap] | None = None
    matched = 0
    if mode == "auto":
        results = {n: item for n, item in find_rows(base, job, dataset, condition).items() if item}
        if not results:
            return _commit(job, table, [], assigned, options)
        matched = sum(map(len, results.values()))
        in_place = not blobs and not hides_first_field(table.manifest.fragments, ids)
        if in_place and columns_are_cheaper(table, fields, results, matched):
            mode = "columns"
    if mode == "columns":
        in_order = not has_windows(condition, *assigned.values())
        rows = new_values(
            base, dataset, condition, assigned, fragments=results, whole_fragments=in_order
        )
        there = results or [item.id for item in counted_fragments(table.paths, table.manifest)]
        return update_in_place(job, table, fields, rows, there, options, ordered=in_order)
    rows = new_values(base, dataset, condition, assigned, fragments=results)
    if results is not None and matched < _FEW_ROWS * len(results):
        # A partition of a scan is not worth a file of its own.
        rows = by_fragment(rows, -(-matched // _ROWS_PER_FILE))
    work = MoveRows(snapshot_of(table), tuple(assigned), job.tag)
    moved: list[RewrittenRows] = job.run_frame(rows, work, "write rows")
    return _commit(job, table, moved, assigned, options)


def columns_are_cheaper(
    table: OpenTable, fields: Sequence[Field], fragments: Collection[int], matched: int
) -> bool:
    """Tell whether new files of some columns have fewer bytes than rows that move.

    Parameters
    ----------
    table : OpenTable
    fields : sequence of Field
        Top-level columns that get new values, none of them of blobs.
    fragments : collection of int
        Ids of those with rows that get them.
    matched : int
        Such rows.
    """
    there = counted_fragments(table.paths, table.manifest)
    touched = [item for item in there if item.id in fragments]
    physical = sum(item.physical_rows for item in touched)
    stored = estimated_bytes(touched, physical)
    if not stored:
        # Nobody noted the sizes of the files.
        return matched >= physical
    moved = stored * matched / physical
    return 2 * read_bytes(stored, physical, fields, table.schema.fields) < moved


def assignments(
    schema: Schema,
    values: Mapping[str, str | Column] | None,
    session: Any,
    alias: str | None = None,
) -> dict[str, str | Column]:
    """Return the columns that get new values, by their names in the table, and expressions for
    them.

    Raises
    ------
    InvalidInputError
        There are none, or two for one column.
    SchemaMismatchError
        There is no such column.
    UnsupportedError
        A struct that has blobs gets a new child.
    """
    if not isinstance(values, Mapping) or not values:
        raise InvalidInputError("set must map one column at least to an expression")
    return assigned_columns(schema, values, "set", find=finder(session), alias=alias)


def new_values(
    base: TableBase,
    dataset: Dataset,
    condition: str | Column | None,
    assigned: Mapping[str, str | Column],
    *,
    fragments: Mapping[int, object] | None = None,
    whole_fragments: bool = False,
) -> DataFrame:
    """Return the addresses of the rows that meet a condition, and their new values, cast to what
    the columns have.
    """
    ids = None if fragments is None else list(fragments)
    rows = matching(
        base,
        dataset,
        condition,
        *assigned.values(),
        fragments=ids,
        whole_fragments=whole_fragments,
        called=[f"set[{name!r}]" for name in assigned],
    )
    fields = {field.name: field for field in dataset._table.schema.fields}
    columns = [
        cast_to(to_column(value, f"set[{name!r}]"), fields[name]).alias(f"__new_{index}")
        for index, (name, value) in enumerate(assigned.items())
    ]
    return rows.select(ROW_ADDRESS.name, *columns)


def _commit(
    job: Job,
    table: OpenTable,
    moved: list[RewrittenRows],
    assigned: Mapping[str, object],
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    count = sum(rewritten.num_rows for rewritten in moved)
    manifest = commit_moved(table, job.runner(STEP), moved, count, assigned.keys(), options)
    return manifest, ChangeResult(manifest.version, num_updated_rows=count)
