"""New columns of rows that there are, computed by Spark.

| step | where | what |
| --- | --- | --- |
| frame of `_rowaddr` and expressions | executors | reads only the columns that expressions name |
| `PatchColumns` | executors | one new data file for each fragment |
| `Computation.finish` | driver | one `Merge` |

If others commit first, files of fragments whose values are as they were are used again; the others
are computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_spark.errors import (
    InvalidInputError,
    LanceError,
    SchemaMismatchError,
    UnsupportedError,
)
from lance_spark.file.blobs.fields import has_blobs
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.add import with_new_ids
from lance_spark.mutations.columns.fill import Computation
from lance_spark.mutations.rewrite.column_rewriter import ColumnFile
from lance_spark.scan.fragment.row_meta import META_FIELDS, ROW_ADDRESS
from lance_spark.spark.jobs.job import Job
from lance_spark.spark.read.projection import find
from lance_spark.spark.read.snapshot import snapshot_of
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.dataframes import (
    cast_to,
    frame,
    has_windows,
    named_in,
    resolved,
    to_column,
    understood,
)
from lance_spark.spark.table.jobs.rewrite_columns import (
    PatchColumns,
    patched_in_order,
    patched_sorted,
    update_in_place,
)
from lance_spark.spark.types.mapping import to_arrow_schema
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.rows.ids import check_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableBase
    from lance_spark.table.commit.options import CommitOptions
    from lance_spark.table.manifest.manifest import Manifest
    from lance_spark.table.open import OpenTable

_KEY, _NEW, _FOUND, _OWN = "__key_{}", "__new_{}", "__found", "__own_{}"


def add_expressions(
    base: TableBase,
    job: Job,
    dataset: Dataset,
    computation: Computation,
    given: Mapping[str, str | Column],
    nullable: bool,
    marks: Mapping[str, Mapping[str, str]],
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Add columns to a version, once; see `LanceTable.addColumns`."""
    table = dataset._table
    called = [f"new column {name!r}" for name in given]
    columns = {
        name: to_column(item, what)
        for what, (name, item) in zip(called, given.items(), strict=True)
    }
    check_new(table, columns)
    names = named_in(dataset, *given.values())
    used = resolved(base, dataset, names, *columns.values(), called=called)
    wanted: list[str | Column] = [ROW_ADDRESS.name]
    wanted += (item.alias(name) for name, item in columns.items())
    empty = frame(base, dataset, used)
    with understood("new columns"):
        types = empty.select(*wanted).schema
    schema = _schema_of(table, types, marks, nullable)
    computation.start(table, table.schema, schema)
    missing = _missing(table, computation)
    if missing:
        sort = has_windows(*given.values())
        rows = frame(base, dataset, used, fragments=missing, whole_fragments=not sort)
        rows = rows.select(*wanted)
        work = PatchColumns(snapshot_of(table), schema, job.tag)
        if sort:
            patched = patched_sorted(job, work, rows, missing)
        else:
            patched = patched_in_order(job, table, work, rows, missing, every=True)
        _note(table, computation, patched)
    return _finish(table, schema, computation, options)


def add_from(
    base: TableBase,
    job: Job,
    dataset: Dataset,
    computation: Computation,
    source: DataFrame,
    key: Sequence[str],
    required: bool,
    marks: Mapping[str, Mapping[str, str]],
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Add columns of another frame to a version, once; see `LanceTable.addColumnsFrom`."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    table = dataset._table
    check_key(table, source, key)
    new = [name for name in source.columns if name not in key]
    check_new(table, new)
    types = source.select(F.lit(0), *(source[name] for name in new)).schema
    schema = _schema_of(table, types, marks, True)
    computation.start(table, table.schema, schema)
    missing = _missing(table, computation)
    if missing:
        own = frame(base, dataset, key, fragments=missing)
        joined = by_key(own, source, key, {name: source[name] for name in new}, "left", required)
        work = PatchColumns(snapshot_of(table), schema, job.tag, flagged=required)
        _note(table, computation, patched_sorted(job, work, joined, missing))
    return _finish(table, schema, computation, options)


def update_from(
    base: TableBase,
    job: Job,
    dataset: Dataset,
    source: DataFrame,
    key: Sequence[str],
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Update columns of a version by another frame, once; see `LanceTable.updateColumnsFrom`."""
    table = dataset._table
    check_key(table, source, key)
    names = [name for name in source.columns if name not in key]
    if not names:
        raise InvalidInputError("the DataFrame has no column but the key")
    by_name = {item.name: item for item in table.schema.fields}
    result = {name: find(table.schema.names, name) for name in names}
    unknown = [name for name, position in result.items() if position < 0]
    if unknown:
        raise SchemaMismatchError(
            f"{table.store.display} has no column {unknown[0]!r} to update, only "
            f"{', '.join(by_name)}"
        )
    fields = [by_name[table.schema.names[position]] for position in result.values()]
    blobs = [item.name for item in fields if has_blobs(item)]
    if blobs:
        raise UnsupportedError(f"blobs of column {blobs[0]!r} are updated by update() or merge()")
    values = {
        field.name: cast_to(source[name], field) for name, field in zip(names, fields, strict=True)
    }
    if len(values) < len(names):
        raise InvalidInputError(f"two columns of the DataFrame go to one: {', '.join(names)}")
    there = [item.id for item in counted_fragments(table.paths, table.manifest) if item.num_rows]
    rows = by_key(frame(base, dataset, key), source, key, values, "inner")
    return update_in_place(job, table, fields, rows, there, options, ordered=False)


def by_key(
    own: DataFrame,
    source: DataFrame,
    key: Sequence[str],
    values: Mapping[str, Column],
    how: str,
    flagged: bool = False,
) -> DataFrame:
    """Return the addresses of a table's rows with values of the rows of a frame that have the same
    key.

    Parameters
    ----------
    own : DataFrame
        Of the table: the key, and ``_rowaddr``.
    source : DataFrame
    key : sequence of str
    values : mapping of str to Column
        Expressions on the source, by the names that they get.
    how : str
        "left" or "inner".
    flagged : bool
        Whether a last column is null for rows without one of the same key.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    addressed = own.select(
        ROW_ADDRESS.name, *(F.col(name).alias(_OWN.format(index)) for index, name in enumerate(key))
    )
    other = source.select(
        *(source[name].alias(_KEY.format(index)) for index, name in enumerate(key)),
        *(item.alias(_NEW.format(index)) for index, item in enumerate(values.values())),
        F.lit(True).alias(_FOUND),
    )
    same = [F.col(_OWN.format(index)) == F.col(_KEY.format(index)) for index in range(len(key))]
    return addressed.join(other, same, how).select(
        ROW_ADDRESS.name,
        *(F.col(_NEW.format(index)).alias(name) for index, name in enumerate(values)),
        *([_FOUND] if flagged else []),
    )


def check_key(table: OpenTable, source: DataFrame, key: Sequence[str]) -> None:
    """Refuse keys that are not columns of both.

    Raises
    ------
    InvalidInputError
    """
    if not key:
        raise InvalidInputError("key: name at least one column")
    for name in key:
        if name not in (*table.schema.names, *META_FIELDS):
            raise InvalidInputError(f"key: {table.store.display} has no column {name!r}")
        if name not in source.columns:
            raise InvalidInputError(
                f"key: the DataFrame has no column {name!r}; it has {', '.join(source.columns)}"
            )


def check_new(table: OpenTable, names: Any) -> None:
    """Refuse columns that there are, or that no table can have.

    Raises
    ------
    InvalidInputError
    """
    names = list(names)
    if not names:
        raise InvalidInputError("say which columns to add: there are none")
    lower = {item.lower(): item for item in table.schema.names}
    for name in names:
        if not isinstance(name, str) or not name or "." in name:
            raise InvalidInputError(f"{name!r} is no name of a column")
        if name.lower() in lower:
            raise InvalidInputError(
                f"{table.store.display}: there is a column {lower[name.lower()]!r} already"
            )
    if len({name.lower() for name in names}) < len(names):
        raise InvalidInputError(f"two of the columns have one name: {', '.join(names)}")
    check_names(names)


def _schema_of(
    table: OpenTable, types: StructType, marks: Mapping[str, Mapping[str, str]], nullable: bool
) -> Schema:
    """Return the new columns with their ids; the first column is the addresses."""
    from pyspark.sql.types import StructType

    arrow = to_arrow_schema(StructType(types.fields[1:]), marks)
    return with_new_ids(table, pa.schema([item.with_nullable(nullable) for item in arrow]))


def _missing(table: OpenTable, computation: Computation) -> list[int]:
    there = counted_fragments(table.paths, table.manifest)
    return [item.id for item in there if item.num_rows and item.id not in computation.done]


def _note(table: OpenTable, computation: Computation, patched: Sequence[ColumnFile]) -> None:
    lacking = [item for item in patched if not item.complete]
    if lacking:
        raise LanceError(
            f"{table.store.display}: rows of fragment {lacking[0].fragment_id} have no new values: "
            "the expressions leave rows "
            "out; nothing was changed"
        )
    computation.add(table, patched)


def _finish(
    table: OpenTable,
    schema: Schema,
    computation: Computation,
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    manifest = computation.finish(
        table,
        [*table.manifest.to_proto().fields, *schema.to_protos()],
        preserves_nullability=all(one.nullable for one in schema.fields),
        options=options,
    )
    return manifest, ChangeResult(manifest.version)
