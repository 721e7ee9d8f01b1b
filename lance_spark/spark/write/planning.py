"""Planning of writes on the driver: the columns that are written, and the writer."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_spark.errors import (
    CommitConflictError,
    InvalidOptionError,
    SchemaMismatchError,
    TableNotFoundError,
    error_context,
)
from lance_spark.file.blobs.fields import input_schema, with_blobs_as_in
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.read.projection import Finder
from lance_spark.spark.read.reader import display
from lance_spark.spark.types.convert import check_conversion
from lance_spark.spark.types.mapping import to_arrow_schema
from lance_spark.spark.types.recorded import check_records
from lance_spark.spark.write.new_table import write_arguments
from lance_spark.spark.write.writer import LanceWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.file.schema.schema import Schema
    from lance_spark.spark.options.overwrite import OverwriteOptions
    from lance_spark.spark.pushdown.request import Version
    from lance_spark.spark.write.new_table import NewTable
    from lance_spark.table.commit.write import Mode, OpenForWrite, WriteJob
    from lance_spark.table.manifest.manifest import Manifest


# --------------------------------------------------------------------------------------------------
# Versions that one step of an append has read for the next.
#
# Spark appends by path in two steps of Python: the first finds the columns with defaults that the
# DataFrame leaves out, and the second plans the write. Both need the newest version. The first
# keeps it, under a random key that the JVM hands to the second, so that the statement lists the
# versions once. If the steps run in different processes, or with a long time between them, the
# second lists the versions itself. The commit compares the version with the newest in any case.

#: Versions that a process keeps, and for how many seconds.
_MOST = 4
_SECONDS = 10.0
_opened: OrderedDict[str, tuple[float, OpenForWrite]] = OrderedDict()


def version_for_append(options: WriteOptions) -> tuple[Manifest | None, str | None]:
    """Return the newest version of the table, and its key; None if there is no table.

    Raises UnsupportedFeatureError, CorruptTableError, StorageError.
    """
    from lance_spark.table.commit.write import open_for_write

    opened = open_for_write(options.path, options.storage_options or None, options.branch)
    if opened.base is None:
        return None, None
    key = uuid.uuid4().hex
    _opened[key] = time.monotonic(), opened
    while len(_opened) > _MOST:
        _opened.popitem(last=False)
    return opened.base, key


def take(key: str | None) -> OpenForWrite | None:
    """Return the version of a key, once; None if the process does not keep it, or for too long."""
    since, opened = _opened.pop(key or "", (0.0, None))
    return opened if time.monotonic() - since < _SECONDS else None


# --------------------------------------------------------------------------------------------------
# Planning of writes on the driver: the columns that are written, and the writer.


def make_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> LanceWriter:
    """Plan a write on the driver.

    - `schema`: Schema of the DataFrame.
    - `overwrite`: True to replace rows and schema of the table, False to append.

    Raises SchemaMismatchError: the columns do not match the table.
    """
    if options.upsert:
        raise InvalidOptionError(
            "option upsert applies only to streams; upsert a DataFrame by LanceTable.upsert or "
            "MERGE, or compute rows of a stream by foreachBatch"
        )
    with error_context(display(options.path)):
        return _make_writer(options, schema, overwrite)


def _make_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> LanceWriter:
    from lance_spark.spark.options.overwrite import OverwriteOptions

    if not schema.fields:
        raise SchemaMismatchError("the DataFrame has no columns: a table needs at least one")
    effect = OverwriteOptions()
    if options.overwrite:
        effect = OverwriteOptions.parse(options, overwrite)
        schema = _with_metadata(schema, effect.query_metadata)
    if effect.partitions is not None:
        named = effect.partitions.columns
        effect = effect.of_table(named or _columns_of_property(options))
    # A save by name names its table's partitions: other rows stay, and so does the table.
    keeps_table = effect.partitions is not None and not effect.must_create
    if effect.new_table is not None and not keeps_table:
        if effect.replace_where is not None:
            raise InvalidOptionError(
                "option replaceWhere: saveAsTable and CREATE TABLE replace the whole table; use "
                "insertInto to replace the rows that meet the condition"
            )
        return _new_table_writer(options, schema, effect.new_table, effect.rows_read)
    existing = _existing(options) if effect.merge_schema else None
    if existing is not None:
        options = _with_known_options(options, existing, schema.names)
    data_schema = to_arrow_schema(
        schema, options.column_metadata, large_var_types=options.large_var_types
    )
    partial = overwrite and effect.replaces_part
    columns = _Columns(data_schema, display(options.path))
    if effect.must_create:
        job = _begin(options, columns, "create")
    elif effect.merge_schema:
        job = _begin_merge(options, columns, existing)
    elif effect.replaces_rows:
        job = _begin_replacing_rows(options, columns, effect)
    else:
        mode: Mode = "overwrite" if overwrite and not partial else "append"
        known = take(effect.opened) if mode == "append" and not overwrite else None
        job = _begin(options, columns, mode, known)
    if effect.must_exist and not job.read_version:
        raise TableNotFoundError(
            "the table was dropped by another client after the statement or stream found it by its "
            "name; create it again"
        )
    # Batches of Spark have 32-bit offsets, also if the table has 64-bit offsets.
    source = (
        to_arrow_schema(schema, options.column_metadata) if options.large_var_types else data_schema
    )
    merges = effect.merge_schema
    check_columns(source, columns.names, job.arrow_schema, fill_children=merges)
    if not partial:
        return LanceWriter(
            job, columns.names, options.commit_message, effect.write_token, fill_children=merges
        )
    from lance_spark.spark.write.partial_overwrite import replacing_writer

    _check_read(job, effect.rows_read)
    if columns.table is None:
        from lance_spark.table.commit.write import STRATEGIES

        # Another client may create the table meanwhile: an append would add the rows to its own.
        job = job.with_strategy(STRATEGIES["create"])
    return replacing_writer(options, effect, job, columns.names, columns.table or job.schema)


def _with_metadata(schema: StructType, metadata: Mapping[str, str]) -> StructType:
    """Return a schema with metadata, as JSON texts by the names of columns."""
    from pyspark.sql.types import StructField, StructType

    if not metadata:
        return schema
    return StructType(
        [
            StructField(
                column.name,
                column.dataType,
                column.nullable,
                {**json.loads(metadata.get(column.name, "{}")), **column.metadata},
            )
            for column in schema
        ]
    )


def _begin(
    options: WriteOptions, columns: _Columns, mode: Mode, known: OpenForWrite | None = None
) -> WriteJob:
    """Plan an append or an overwrite. `columns` is fitted to the version that it reads."""
    from lance_spark.table.commit.write import begin_write

    return begin_write(
        options.path,
        columns.data_schema,
        mode=mode,
        choose_schema=columns.choose_schema,
        opened=known,
        **write_arguments(options),
    )


def _begin_replacing_rows(
    options: WriteOptions, columns: _Columns, effect: OverwriteOptions
) -> WriteJob:
    """Plan an overwrite that keeps the columns of the table."""
    from lance_spark.table.commit.write import ReplaceAllRows, begin_write

    rows_read = effect.rows_read
    dataset = _existing(options)
    if dataset is None and not effect.is_by_name:
        # The option overwriteSchema is false, and there is no table whose columns could be kept.
        return _begin(options, columns, "overwrite")
    if dataset is None:
        raise TableNotFoundError("the table was dropped while the statement was planned")
    table = input_schema(dataset._table.schema)
    columns.target(table)
    given = set(columns.names)
    if absent := [name for name in table.names if name not in given]:
        raise SchemaMismatchError(
            f"the query has no {', '.join(absent)}, which an overwrite of all rows needs"
        )
    job = begin_write(options.path, table, mode="overwrite", **write_arguments(options))
    _check_read(job, rows_read)
    kept = dataset._table.schema.to_arrow()
    return job.with_strategy(ReplaceAllRows(kept, reads_rows=rows_read is not None))


def _check_read(job: WriteJob, rows_read: Version | None) -> None:
    """Check that the query of an overwrite has read the version on which the write is planned."""
    if rows_read is not None and rows_read.number != job.read_version:
        raise CommitConflictError(
            f"another client committed version {job.read_version} after the query of the overwrite "
            f"had read version {rows_read.number}; write the rows again",
            retryable=True,
        )


def _new_table_writer(
    options: WriteOptions, schema: StructType, new_table: NewTable, rows_read: Version | None
) -> LanceWriter:
    """Plan the write of a table that a statement creates or replaces."""
    from lance_spark.spark.catalog.properties import check_partition_columns
    from lance_spark.spark.types.mapping import table_schema
    from lance_spark.spark.write.new_table import begin_new_table
    from lance_spark.table.commit.write import ReplaceAllRows

    large = options.large_var_types
    arrow = table_schema(schema, options.column_metadata, large_var_types=large)
    check_partition_columns(new_table.properties, arrow, display(options.path))
    job = begin_new_table(options, arrow, new_table)
    if rows_read is not None:
        _check_read(job, rows_read)
        job = job.with_strategy(ReplaceAllRows(reads_rows=True))
    source = to_arrow_schema(schema, options.column_metadata) if large else arrow
    check_columns(source, arrow.names, job.arrow_schema)
    return LanceWriter(job, arrow.names, options.commit_message)


def _with_known_options(
    options: WriteOptions, dataset: Dataset, names: Sequence[str]
) -> WriteOptions:
    """Return options of a write with those of new columns that the table knows."""
    from lance_spark.spark.catalog.properties import of_new_columns

    found = Finder(dataset.schema.names)
    new = [name for name in names if found(name) < 0]
    known = of_new_columns(dataset.metadata, new)
    return replace(options, column_metadata={**known, **options.column_metadata})


def _begin_merge(options: WriteOptions, columns: _Columns, dataset: Dataset | None) -> WriteJob:
    """Plan an append of a DataFrame that may have new columns."""
    from lance_spark.mutations.merge_schema import begin_merging_write

    target = columns.data_schema
    if dataset is not None:
        table = input_schema(dataset._table.schema)
        target = columns.target(table, merge=True)
    return begin_merging_write(options.path, target, **write_arguments(options))


class _Columns:
    """The columns of a DataFrame, which are fitted to the columns of the table once it is read.

    - `data_schema`: Columns that the DataFrame gives a new table.
    - `names`: For each column of the DataFrame, the table's column that it is written to.
    - `table`: Columns of the table that data is appended to; None before `choose_schema`, and for a
      new table.
    """

    def __init__(self, data_schema: pa.Schema, display: str) -> None:
        self.data_schema = data_schema
        self.names: list[str] = data_schema.names
        self.table: Schema | None = None
        self._display = display

    def choose_schema(self, base: Manifest, data: Schema, name: str) -> Schema:
        """Return the fields of the data files of an append; see `begin_write`."""
        from lance_spark.file.schema.schema import Schema
        from lance_spark.table.align import filled_by

        self.table = base.schema
        target = self.target(base.schema.to_arrow())
        return filled_by(base.schema, Schema.from_arrow(target), name)

    def target(self, table: pa.Schema, *, merge: bool = False) -> pa.Schema:
        """Return the appended columns: as the table has them, new columns as the DataFrame does.

        With `merge`, structs have all children of the table, and then those of the DataFrame.
        """
        self.names = map_columns(self.data_schema.names, table, self._display, merge=merge)
        fields = []
        known = set(table.names)
        for name, field in zip(self.names, self.data_schema, strict=True):
            if name not in known:
                fields.append(field.with_nullable(True))
            elif merge:
                fields.append(_with_new_children(table.field(name), field))
            else:
                fields.append(table.field(name))
        return pa.schema(fields, table.metadata)


def _with_new_children(field: pa.Field, data: pa.Field) -> pa.Field:
    """Return a field of a table with the children of structs that only the data has."""
    if not (pa.types.is_struct(field.type) and pa.types.is_struct(data.type)):
        return field
    children = list(field.type)
    found = Finder([child.name for child in children])
    for child in data.type:
        index = found(child.name)
        if index < 0:
            children.append(child.with_nullable(True))
        else:
            children[index] = _with_new_children(children[index], child)
    return field.with_type(pa.struct(children))


def _columns_of_property(options: WriteOptions) -> tuple[str, ...]:
    """Return the columns of partitions that the property of the table names."""
    from lance_spark.spark.catalog.properties import partition_columns

    dataset = _existing(options)
    return () if dataset is None else partition_columns(dataset.metadata)


def columns_left_out(
    options: WriteOptions, names: Sequence[str], overwrite: bool
) -> tuple[StructType, str | None, Manifest | None]:
    """Return the columns of the table with defaults that a DataFrame does not have.

    Also returns the newest version of the table, if there is one. An append also gets the key of
    the version that was read, which it is planned on (`write.opened`).

    - `names`: Columns of the DataFrame.
    - `overwrite`: Whether the mode is overwrite. An overwrite of all rows keeps no columns of the
      table.
    """
    from pyspark.sql.types import StructType

    from lance_spark.spark.options.overwrite import OverwriteOptions
    from lance_spark.spark.types.field_metadata import DEFAULT
    from lance_spark.spark.types.mapping import catalog_schema

    if overwrite:
        effect = OverwriteOptions.parse(options, overwrite)
        if effect.partitions is not None:
            effect = effect.of_table(_columns_of_property(options))
        dataset = _existing(options)
        manifest, key = None if dataset is None else dataset._table.manifest, None
        if not effect.replaces_part:
            return StructType(), None, manifest
    else:
        manifest, key = version_for_append(options)
    if manifest is None:
        return StructType(), None, None
    table = manifest.schema.to_arrow()
    default = DEFAULT.encode()
    found = Finder(list(names))
    left_out = [
        field for field in table if default in (field.metadata or {}) and found(field.name) < 0
    ]
    return catalog_schema(pa.schema(left_out)), key, manifest


def existing_schema(options: WriteOptions) -> pa.Schema | None:
    """Return the columns that a write to the table gives; None if the table is not found."""
    dataset = _existing(options)
    return None if dataset is None else input_schema(dataset._table.schema)


def _existing(options: WriteOptions) -> Dataset | None:
    from lance_spark.dataset.dataset import open_dataset

    try:
        return open_dataset(
            options.path, branch=options.branch, storage_options=options.storage_options or None
        )
    except TableNotFoundError:
        return None


def map_columns(
    data_names: list[str], schema: pa.Schema, table: str, *, merge: bool = False
) -> list[str]:
    """Return the target column of each column of a DataFrame.

    Columns are matched by name, in any order. For an INSERT by position, Spark has renamed the
    columns.

    - `data_names`: Columns of the DataFrame; nullable columns of the table may be missing.
    - `schema`: Schema of the table.
    - `merge`: Whether new columns are allowed; they keep their names.

    Raises SchemaMismatchError: a column has no target.
    """
    names = schema.names
    indexes = list(map(Finder(names), data_names))
    given = Counter(indexes)
    unknown = [
        name for name, index in zip(data_names, indexes, strict=True) if index < 0 and not merge
    ]
    missing = [
        field.name for index, field in enumerate(schema) if not (index in given or field.nullable)
    ]
    repeated = [
        name
        for name, index in zip(data_names, indexes, strict=True)
        if index >= 0 and given[index] > 1
    ]
    problems = []
    if unknown:
        problems.append(f"the table has no {', '.join(unknown)}")
    if missing:
        problems.append(f"the DataFrame has no {', '.join(missing)}")
    if not problems and repeated:
        problems.append(f"{', '.join(repeated)} match the same column")
    if problems:
        raise SchemaMismatchError(
            f"table {table}: {'; '.join(problems)}. Columns are matched by name: select the "
            f"columns of the table ({', '.join(names[:50])}), add new columns by the option "
            "mergeSchema, or overwrite the table"
        )
    return [
        name if index < 0 else names[index] for name, index in zip(data_names, indexes, strict=True)
    ]


def check_types(
    schema: StructType, options: WriteOptions, names: list[str], target: pa.Schema
) -> None:
    """Refuse columns whose types cannot be converted, before any task runs.

    - `schema`: Schema of the DataFrame.
    - `names`: Target column of each column.
    - `target`: Columns that are written.

    Raises SchemaMismatchError.
    """
    check_columns(to_arrow_schema(schema, options.column_metadata), names, target)


def check_columns(
    data_schema: pa.Schema, names: list[str], target: pa.Schema, *, fill_children: bool = False
) -> None:
    """Refuse columns whose types cannot be converted; see `check_types` and `BatchConverter`."""
    source = pa.schema(
        field.with_name(name) for field, name in zip(data_schema, names, strict=True)
    )
    target_types = with_blobs_as_in(target, source)
    check_conversion(source, target_types, reading=False, fill_children=fill_children)
    for field in source:
        check_records(field, target.field(field.name), field.name)
