"""Plans writes through Spark: checks the schema of the data, and makes the writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_spark.errors import SchemaMismatchError, naming
from lance_spark.file.blobs.fields import given_as
from lance_spark.spark.options.options import WriteOptions
from lance_spark.spark.read.projection import find
from lance_spark.spark.read.reader import display
from lance_spark.spark.types.convert import BatchConverter
from lance_spark.spark.types.mapping import to_arrow_schema
from lance_spark.spark.write.writer import LanceWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceWriter
    from pyspark.sql.types import StructType

    from lance_spark.table.commit.write_job import WriteJob

#: Options that `begin_write` takes unchanged.
_JOB_OPTIONS = (
    "max_rows_per_file",
    "max_bytes_per_file",
    "enable_stable_row_ids",
    "commit_retries",
)


def make_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> DataSourceWriter:
    """Plan a write on the driver.

    Parameters
    ----------
    options : WriteOptions
    schema : StructType
        Schema of the DataFrame.
    overwrite : bool
        True to replace rows and schema of the table, False to append.

    Raises
    ------
    SchemaMismatchError
        The columns do not match the table.
    """
    with naming(display(options.path)):
        return _make_writer(options, schema, overwrite)


def _make_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> DataSourceWriter:
    from lance_spark.file.blobs.writer import blob_options
    from lance_spark.spark.options.overwrite_options import OverwriteOptions
    from lance_spark.table.commit.write_job import begin_write

    if not schema.fields:
        raise SchemaMismatchError("the DataFrame has no columns: a table needs at least one")
    rules = OverwriteOptions.parse(options, overwrite) if options.rules else OverwriteOptions()
    part = overwrite and rules.replaces_part
    table = None if overwrite and not part else existing_schema(options)
    job_options = {name: getattr(options, name) for name in _JOB_OPTIONS}
    if table is None:
        target = to_arrow_schema(
            schema, options.column_metadata, large_var_types=options.large_var_types
        )
        names = schema.names
    else:
        names = map_columns(schema.names, table, display(options.path), merge=rules.merge_schema)
        target = _appended(schema, table, names, options)
    begin: Callable[..., WriteJob] = begin_write
    if rules.merge_schema:
        from lance_spark.mutations.merge_schema import begin_merging_write

        begin = begin_merging_write
    mode = ("append" if table is not None else "create") if part else None
    job = begin(
        options.path,
        target,
        mode=mode or ("overwrite" if overwrite else "append"),
        branch=options.branch,
        data_storage_version=options.data_storage_version,
        initial_bases=options.initial_bases,
        target_bases=options.target_bases.names,
        target_all_bases=options.target_bases.all_bases,
        storage_options=options.storage_options or None,
        blobs=blob_options(
            options.external_blob_mode,
            options.allow_external_blob_outside_bases,
            options.blob_pack_file_size_threshold,
        ),
        **{name: value for name, value in job_options.items() if value is not None},
    )
    check_types(schema, options, names, job.arrow_schema)
    if not part:
        return LanceWriter(job, names, options.commit_message, rules.once)
    from lance_spark.spark.write.partial_overwrite import replacing_writer

    return replacing_writer(options, rules, job, names)


def existing_schema(options: WriteOptions) -> pa.Schema | None:
    """Return the schema of the existing table; None without one."""
    from lance_spark.dataset.dataset import open_dataset
    from lance_spark.errors import TableNotFoundError

    try:
        return open_dataset(
            options.path, branch=options.branch, storage_options=options.storage_options or None
        ).schema
    except TableNotFoundError:
        return None


def map_columns(
    given: list[str], schema: pa.Schema, table: str, *, merge: bool = False
) -> list[str]:
    """Return the target column of each column of a DataFrame.

    Columns are matched by name, in any order. For an INSERT by position, Spark has renamed the
    columns.

    Parameters
    ----------
    given : list of str
        Columns of the DataFrame; nullable columns of the table may be missing.
    schema : pa.Schema
        Schema of the table.
    table : str
        Name of the table in errors.
    merge : bool
        Whether new columns are allowed; they keep their names.

    Raises
    ------
    SchemaMismatchError
        A column has no target.
    """
    wanted = schema.names
    result = [find(wanted, name) for name in given]
    unknown = [name for name, index in zip(given, result, strict=True) if index < 0 and not merge]
    missing = [
        field.name for index, field in enumerate(schema) if not (index in result or field.nullable)
    ]
    twice = [
        name
        for name, index in zip(given, result, strict=True)
        if index >= 0 and result.count(index) > 1
    ]
    problems = []
    if unknown:
        problems.append(f"the table has no {', '.join(unknown)}")
    if missing:
        problems.append(f"the DataFrame has no {', '.join(missing)}")
    if not problems and twice:
        problems.append(f"{', '.join(twice)} match the same column")
    if problems:
        raise SchemaMismatchError(
            f"table {table}: {'; '.join(problems)}. Columns are matched by name: select the "
            f"columns of the table ({', '.join(wanted[:50])}), add new columns by the option "
            "mergeSchema, or overwrite the table"
        )
    return [name if index < 0 else wanted[index] for name, index in zip(given, result, strict=True)]


def _appended(
    schema: StructType, table: pa.Schema, names: list[str], options: WriteOptions
) -> pa.Schema:
    """Return the schema of an append: existing columns as in the table, new columns nullable."""
    converted = to_arrow_schema(
        schema, options.column_metadata, large_var_types=options.large_var_types
    )
    return pa.schema(
        [
            table.field(name) if name in table.names else field.with_nullable(True)
            for name, field in zip(names, converted, strict=True)
        ],
        table.metadata,
    )


def check_types(
    schema: StructType, options: WriteOptions, names: list[str], target: pa.Schema
) -> None:
    """Refuse types that cannot be converted, before any task runs.

    Raises
    ------
    SchemaMismatchError
    """
    converted = to_arrow_schema(schema, options.column_metadata)
    source = pa.schema(field.with_name(name) for field, name in zip(converted, names, strict=True))
    BatchConverter(source, given_as(target, source), reading=False)
