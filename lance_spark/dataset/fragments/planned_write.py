"""The arguments of a write, checked, and the planned write with its rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.storage.options.base_paths import with_base_params

if TYPE_CHECKING:
    from lance_spark.table.bases import BaseLike
    from lance_spark.table.commit.write_job import WriteJob


def plan_write(
    data: Any,
    uri: str | os.PathLike[str],
    mode: str,
    *,
    schema: pa.Schema | None = None,
    data_storage_version: str | None = None,
    max_rows_per_file: int | None = None,
    max_bytes_per_file: int | None = None,
    enable_stable_row_ids: bool = False,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    blob_pack_file_size_threshold: int | None = None,
    commit_retries: int | None = None,
    branch: str | None = None,
    initial_bases: Sequence[BaseLike] | None = None,
    target_bases: Sequence[str] | None = None,
    target_all_bases: bool | None = None,
    base_store_params: Mapping[str, Mapping[str, Any]] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[WriteJob, Iterable[pa.RecordBatch]]:
    """Check the arguments of a write, and return the planned write with its rows.

    The parameters and errors are those of `write_dataset`.
    """
    from lance_spark.file.blobs.writer import blob_options
    from lance_spark.table.commit.write_job import TableSettings, WriteLimits
    from lance_spark.table.commit.write_plan import BaseTargets, begin_write

    blobs = blob_options(
        external_blob_mode, allow_external_blob_outside_bases, blob_pack_file_size_threshold
    )
    data_schema, batches = _schema_and_batches(data, schema)
    job = begin_write(
        os.fspath(uri),
        data_schema,
        mode=mode,  # type: ignore[arg-type]
        data_storage_version=data_storage_version,
        limits=WriteLimits.of(max_rows_per_file, max_bytes_per_file),
        settings=TableSettings(enable_stable_row_ids),
        storage_options=with_base_params(storage_options, base_store_params),
        blobs=blobs,
        commit_retries=commit_retries,
        branch=branch,
        bases=BaseTargets(initial_bases or (), target_bases, target_all_bases),
    )
    return job, batches


def _schema_and_batches(
    data: Any, schema: pa.Schema | None
) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if schema is not None and not isinstance(schema, pa.Schema):
        raise InvalidInputError(f"schema must be a pyarrow schema, not {type(schema).__name__}")
    data_schema = getattr(data, "schema", None)
    if schema is not None and isinstance(data_schema, pa.Schema) and not data_schema.equals(schema):
        raise InvalidInputError(
            f"schema must be equal to the schema of the data, which is not cast: {data_schema}"
        )
    if isinstance(data, pa.Table):
        return data.schema, data.to_batches()
    if isinstance(data, pa.RecordBatch):
        return data.schema, [data]
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, data
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | Mapping):
        raise InvalidInputError(
            "data must be a Table, a RecordBatch, a RecordBatchReader or an iterable of "
            f"RecordBatch, not {type(data).__name__}"
        )
    batches = iter(data)
    if schema is not None:
        return schema, _checked(batches, schema)
    first = next(batches, None)
    if first is None:
        raise InvalidInputError("data has no batches, so its schema is unknown: pass `schema`")
    if not isinstance(first, pa.RecordBatch):
        raise _not_a_batch(first)
    return first.schema, chain([first], _checked(batches, first.schema))


def _not_a_batch(item: object) -> InvalidInputError:
    return InvalidInputError(f"data must yield RecordBatch, not {type(item).__name__}")


def _checked(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise _not_a_batch(batch)
        if not batch.schema.equals(schema):
            raise InvalidInputError(
                f"all batches of data must have the same schema: first {schema}, then "
                f"{batch.schema}"
            )
        yield batch
