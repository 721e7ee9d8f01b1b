"""Columns of a table: added, updated from a DataFrame, and altered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidInputError
from lance_spark.spark.job import Job
from lance_spark.spark.table.base import ChangeResult

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from lance_spark.spark.table.base import TableHandle
    from lance_spark.table.commit.options import CommitOptions

_ALTER = "alter column"


def add_columns(
    handle: TableHandle,
    columns: Mapping[str, str | Column],
    nullable: bool,
    options: Mapping[str, Any] | None,
    commit: CommitOptions,
) -> ChangeResult:
    """Add columns that are computed from others; see `LanceTable.add_columns`."""
    from lance_spark.mutations.columns.fill import Computation
    from lance_spark.spark.table.jobs.columns import add_expressions

    metadata = _column_metadata(handle, options)
    with Computation() as computation:
        return handle.change(
            "add columns",
            lambda job, dataset: add_expressions(
                handle, job, dataset, computation, columns, nullable, metadata, commit
            ),
            commit,
            list(columns.values()),
        )


def add_columns_from(
    handle: TableHandle,
    source: DataFrame,
    key: str | Sequence[str],
    missing: str,
    options: Mapping[str, Any] | None,
    commit: CommitOptions,
) -> ChangeResult:
    """Add the columns of a DataFrame, joined by a key; see `LanceTable.add_columns_from`."""
    from lance_spark.mutations.columns.fill import Computation
    from lance_spark.spark.table.jobs.columns import add_from

    if missing not in ("null", "error"):
        raise InvalidInputError(f'missing must be "null" or "error", not {missing!r}')
    keys = [key] if isinstance(key, str) else list(key)
    metadata = _column_metadata(handle, options)
    required = missing == "error"
    with Computation() as computation:
        return handle.change(
            "add columns",
            lambda job, dataset: add_from(
                handle,
                job,
                dataset,
                computation,
                *_keyed(handle, dataset, source, keys),
                required,
                metadata,
                commit,
            ),
            commit,
            keys,
        )


def update_columns_from(
    handle: TableHandle, source: DataFrame, key: str | Sequence[str], commit: CommitOptions
) -> ChangeResult:
    """Update columns by the values of a DataFrame; see `LanceTable.update_columns_from`."""
    from lance_spark.spark.table.jobs.columns import update_from

    keys = [key] if isinstance(key, str) else list(key)
    return handle.change(
        "update columns",
        lambda job, dataset: update_from(
            handle, job, dataset, *_keyed(handle, dataset, source, keys), commit
        ),
        commit,
        keys,
    )


def drop_columns(handle: TableHandle, names: Sequence[str], commit: CommitOptions) -> ChangeResult:
    """Drop columns; see `LanceTable.drop_columns`."""
    from lance_spark.mutations.columns.alter import drop_columns as drop

    table = handle.writable("drop columns")
    paths = handle.spelled_paths(Dataset(table), *names)
    return ChangeResult(drop(table, paths, commit).version)


def reorder_columns(
    handle: TableHandle, names: Sequence[str], commit: CommitOptions
) -> ChangeResult:
    """Move columns to the front; see `LanceTable.reorder_columns`."""
    from lance_spark.mutations.columns.alter import reorder_columns as reorder

    table = handle.writable("reorder columns")
    paths = handle.spelled_paths(Dataset(table), *names)
    return ChangeResult(reorder(table, paths, commit).version)


def rename_column(
    handle: TableHandle, name: str, new_name: str, commit: CommitOptions
) -> ChangeResult:
    """Rename a column; see `LanceTable.rename_column`."""
    return _alter(handle, {"path": name, "name": new_name}, commit)


def alter_column(
    handle: TableHandle,
    name: str,
    nullable: bool | None,
    data_type: str | DataType | pa.DataType | None,
    commit: CommitOptions,
) -> ChangeResult:
    """Change the nullability or the type of a column; see `LanceTable.alter_column`."""
    alteration: dict[str, Any] = {"path": name}
    if nullable is not None:
        alteration["nullable"] = nullable
    record: dict[str, str | None] = {}
    if data_type is not None:
        from lance_spark.spark.table.create import arrow_field
        from lance_spark.spark.types.recorded import changed_record

        field = arrow_field(data_type, name)
        alteration["data_type"] = field.type
        if not isinstance(data_type, pa.DataType):
            table = handle.writable(_ALTER)
            (name,) = handle.spelled_paths(Dataset(table), name)
            old = table.schema.field(name).to_arrow()
            record = changed_record(old, field)
            if record and field.type == old.type:
                del alteration["data_type"]
    if not record:
        return _alter(handle, alteration, commit)
    if len(alteration) > 1:
        _alter(handle, alteration, commit)
    from lance_spark.mutations.metadata_updates import update_config

    table = handle.writable(_ALTER)
    altered = update_config(table, field_metadata={name: record}, options=commit)
    return ChangeResult(altered.version)


def _keyed(
    handle: TableHandle, dataset: Dataset, source: DataFrame, keys: Sequence[str]
) -> tuple[DataFrame, list[str]]:
    """Return a DataFrame and its key with the names of the table's columns."""
    names = handle.spelled_paths(dataset, *keys)
    if handle.is_case_sensitive():
        return source, names
    by_lower = {name.lower(): name for name in names}
    columns = [by_lower.get(name.lower(), name) for name in source.columns]
    return (source if columns == source.columns else source.toDF(*columns)), names


def _alter(
    handle: TableHandle, alteration: Mapping[str, Any], options: CommitOptions
) -> ChangeResult:
    from lance_spark.mutations.columns.alter import alter_columns

    table = handle.writable(_ALTER)
    (path,) = handle.spelled_paths(Dataset(table), alteration["path"])
    with Job(handle.spark, table, _ALTER) as job:
        runner = job.runner("cast values")
        altered = alter_columns(table, [{**alteration, "path": path}], options, runner)
        job.committed(altered.manifest)
    return ChangeResult(altered.version)


def _column_metadata(
    handle: TableHandle, options: Mapping[str, Any] | None
) -> Mapping[str, Mapping[str, str]]:
    from lance_spark.spark.options.write import WriteOptions

    texts = {name: str(value) for name, value in (options or {}).items()}
    return WriteOptions.parse({**texts, "path": handle.path}).column_metadata
