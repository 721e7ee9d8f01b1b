"""The arguments of a write, checked, and the planned write with its rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_spark.dataset.changes.sources import rows_of
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
    data_schema, batches = rows_of(data, schema)
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
