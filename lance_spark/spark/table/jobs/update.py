"""Updates of rows by Spark: executors compute new values and write them.

| mode | executors write | bytes, approximately |
| --- | --- | --- |
| rows | updated rows to new fragments, and deletion files | all columns of these rows |
| columns | data files of the updated columns | these columns of all rows of the fragments |
| overlay | overlay files | these columns of these rows |

The mode ``auto`` finds the rows first, and chooses the mode with fewer bytes. A frame has the
addresses of the rows and their new values, and no other column. The task that writes a row records
its address, and the commit deletes the recorded rows: so exactly the written rows are deleted, even
if a condition selects other rows when it is evaluated again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, InvalidOptionError, UnsupportedError
from lance_spark.file.blobs.fields import has_blobs, input_schema
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types
from lance_spark.mutations.mem_wal import check_rows_changeable
from lance_spark.mutations.rewrite.writers import RewrittenRows, RowRewriter
from lance_spark.mutations.rows.update import can_rewrite_columns, columns_are_cheaper, commit_moved
from lance_spark.runner import abort_on_error
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.spark.job import Job, task_number
from lance_spark.spark.quoting import quoted
from lance_spark.spark.read.projection import finder
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.checks import checked_rows, checks_on, named_by, with_checks
from lance_spark.spark.table.conditions import cast_to_field, matching_rows
from lance_spark.spark.table.dataframes import by_fragment, cast_to, has_windows, to_column
from lance_spark.spark.table.jobs.columns import rewrite_columns
from lance_spark.spark.table.jobs.find_rows import STEP, addresses_of, find_rows
from lance_spark.spark.table.merge.join import assigned_columns
from lance_spark.spark.types.mapping import written_as
from lance_spark.spark.write.input import InputConverter
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.constraints import Constraint
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableHandle

UpdateMode = Literal["auto", "rows", "columns", "overlay"]
#: Approximate number of rows of a new file.
_ROWS_PER_FILE = 1024 * 1024
#: With fewer updated rows per fragment, tasks do not write a file for each fragment.
_MIN_ROWS_PER_FRAGMENT = 100_000


@dataclass(frozen=True, slots=True)
class RewriteRows:
    """Work that rewrites the rows of a partition: address and new values.

    It yields one `RewrittenRows` if the partition has rows.
    """

    table: TableSnapshot
    names: tuple[str, ...]
    tag: bytes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[RewrittenRows]:
        """Write the rows of all batches."""
        table = self.table.open()
        names = set(self.names)
        updated = Schema(tuple(field for field in table.schema.fields if field.name in names))
        convert = InputConverter(input_schema(updated), self.names)
        rewriter = RowRewriter(table, table.schema, self.names, tag=self.tag, first=task_number())
        with abort_on_error(rewriter.abort):
            for batch in batches:
                addresses = addresses_of(batch)
                position = 0
                for values in convert(batch.select(range(1, batch.num_columns))):
                    rewriter.move(addresses[position : position + values.num_rows], values)
                    position += values.num_rows
            rewritten = rewriter.finish()
        if rewritten.num_rows:
            yield rewritten


def update(
    handle: TableHandle,
    job: Job,
    dataset: Dataset,
    condition: str | Column | None,
    values: Mapping[str, str | Column] | None,
    mode: UpdateMode,
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Update rows of a version, once; see `LanceTable.update`."""
    if mode not in get_args(UpdateMode):
        modes = ", ".join(get_args(UpdateMode))
        raise InvalidOptionError(f"update: mode must be one of {modes}, not {mode!r}")
    table = dataset._table
    assigned = assignments(table.schema, values, handle.spark, handle.alias_name)
    by_name = {field.name: field for field in table.schema.fields}
    fields = [by_name[name] for name in assigned]
    written = {node.id for field in fields for node in field.walk()}
    options = with_checks(options, table)
    check_rows_changeable(
        table, data_files=True, written=written, checked=options.checked_constraints
    )
    check_types(table.schema, table.manifest.data_storage_version)
    checks = checks_on(table, assigned.keys())
    blobs = [field.name for field in fields if has_blobs(field)]
    if blobs and mode == "columns":
        raise UnsupportedError(
            f'update: blobs of column {blobs[0]!r} cannot be set in mode "columns"; use "rows" or '
            '"auto"'
        )
    # Rows to update by fragment, if they are known already.
    matches: dict[int, BitMap] | None = None
    num_matches = 0
    if mode == "auto":
        matches = {
            fragment_id: offsets
            for fragment_id, offsets in find_rows(handle, job, dataset, condition).items()
            if offsets
        }
        if not matches:
            return _commit(job, table, [], assigned, options)
        num_matches = sum(map(len, matches.values()))
        can_rewrite = can_rewrite_columns(table, fields)
        if can_rewrite and columns_are_cheaper(table, fields, matches, num_matches):
            mode = "columns"
    if mode in ("columns", "overlay"):
        in_order = not has_windows(condition, *assigned.values())
        rows = new_values(
            handle,
            dataset,
            condition,
            assigned,
            checks,
            fragments=matches,
            whole_fragments=in_order,
        )
        fragments = matches or [
            fragment.id for fragment in counted_fragments(table.paths, table.manifest)
        ]
        return rewrite_columns(
            job,
            table,
            fields,
            rows,
            fragments,
            options,
            ordered=in_order,
            overlay=mode == "overlay",
        )
    rows = new_values(handle, dataset, condition, assigned, checks, fragments=matches)
    if matches is not None and num_matches < _MIN_ROWS_PER_FRAGMENT * len(matches):
        # Otherwise each partition of the scan would write a small file.
        rows = by_fragment(rows, -(-num_matches // _ROWS_PER_FILE))
    work = RewriteRows(snapshot_of(table), tuple(assigned), job.tag)
    rewritten: list[RewrittenRows] = job.run_frame(rows, work, "write rows")
    return _commit(job, table, rewritten, assigned, options)


def assignments(
    schema: Schema,
    values: Mapping[str, str | Column] | None,
    session: Any,
    alias: str | None = None,
) -> dict[str, str | Column]:
    """Return expressions for the updated columns, by their names in the table.

    Raises InvalidInputError: no value is given, or a column gets two values. Raises
    SchemaMismatchError: a column is not found. Raises UnsupportedError: a child of a struct with
    blobs gets a new value.
    """
    if not isinstance(values, Mapping) or not values:
        raise InvalidInputError("set must map at least one column to an expression")
    return assigned_columns(schema, values, "set", find=finder(session), alias=alias)


def new_values(
    handle: TableHandle,
    dataset: Dataset,
    condition: str | Column | None,
    assigned: Mapping[str, str | Column],
    checks: Sequence[Constraint] = (),
    *,
    fragments: Mapping[int, object] | None = None,
    whole_fragments: bool = False,
) -> DataFrame:
    """Return the addresses and the new values of the rows that meet a condition.

    The values are cast to the types of their columns, with children of structs by name.

    - `checks`: Conditions that the new rows must meet.

    Raises InvalidInputError: Spark cannot analyse the condition or a value. Raises
    SchemaMismatchError: a struct has names of its column in other places, and other names.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    ids = None if fragments is None else list(fragments)
    named = named_by(checks, dataset.schema.names)
    # Values that the rows keep, and that a condition names.
    unchanged = [quoted(name) for name in named if name not in assigned]
    rows = matching_rows(
        handle,
        dataset,
        condition,
        *assigned.values(),
        *map(F.col, unchanged),
        fragments=ids,
        whole_fragments=whole_fragments,
        labels=[*(f"set[{name!r}]" for name in assigned), *unchanged],
    )
    by_name = {field.name: field for field in dataset._table.schema.fields}
    fields = [by_name[name] for name in assigned]
    values = [to_column(value, f"set[{name!r}]") for name, value in assigned.items()]
    names = [f"__new_{index}" for index in range(len(fields))]
    if any(field.children for field in fields):
        # Children of structs are matched by name, for which their types must be known. Spark
        # evaluates each value once, although a cast can name it several times.
        rows = rows.select(ROW_ADDRESS.name, *map(_aliased, values, names), *unchanged)
        given_fields = rows.schema.fields[1 : 1 + len(fields)]
        values = [
            cast_to(F.col(name), field)
            if has_blobs(field)
            else cast_to_field(F.col(name), given.dataType, field, by_name=False)
            for name, given, field in zip(names, given_fields, fields, strict=True)
        ]
    else:
        values = list(map(cast_to, values, fields))
    written = [ROW_ADDRESS.name, *names]
    rows = rows.select(written[0], *map(written_as, values, names, assigned), *unchanged)
    new = [F.col(new).alias(name) for name, new in zip(assigned, names, strict=True)]
    return checked_rows(rows.select("*", *new), checks, kept=written) if checks else rows


def _aliased(value: Column, name: str) -> Column:
    return value.alias(name)


def _commit(
    job: Job,
    table: OpenTable,
    rewritten: list[RewrittenRows],
    assigned: Mapping[str, object],
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    count = sum(rows.num_rows for rows in rewritten)
    manifest = commit_moved(table, job.runner(STEP), rewritten, count, assigned.keys(), options)
    return manifest, ChangeResult(manifest.version, num_updated_rows=count)
