"""The write of rows to a table in one commit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lance_spark.errors import AlreadyCommittedError
from lance_spark.file.blobs.writer import blob_options
from lance_spark.mutations.runner import abort_on_error
from lance_spark.progress import stage
from lance_spark.table.cleanup.automatic import cleanup_config
from lance_spark.table.commit.idempotency import write_of
from lance_spark.table.commit.transaction import with_message
from lance_spark.table.commit.write_commit import commit_or_clean_up
from lance_spark.table.commit.write_job import TableSettings, WriteJob
from lance_spark.table.commit.write_plan import BaseTargets, begin_write
from lance_spark.table.fragments.limits import WriteLimits
from lance_spark.table.fragments.write_progress import FragmentWriteProgress, check_observer
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.sources import rows_of

if TYPE_CHECKING:
    from lance_spark.table.bases import BaseLike


def write_rows(
    data: Any,
    uri: str | os.PathLike[str],
    mode: Literal["create", "append", "overwrite"] = "create",
    *,
    commit_message: str | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    progress: FragmentWriteProgress | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> OpenTable:
    """Write rows to a table; see `write_dataset`. Returns the version that was committed.

    `options` are arguments of `plan_write`.
    """
    # All arguments are checked before any file is written.
    check_observer(progress)
    properties = with_message(transaction_properties, commit_message)
    once = write_of(txn_app_id, txn_version)
    job, batches = plan_write(data, uri, mode, storage_options=storage_options, **options)
    writer = job.writer(observer=progress)
    with abort_on_error(writer.abort), stage("write", num_rows_of(data), "rows"):
        fragments = writer.write_all(batches)
    try:
        table = commit_or_clean_up(job, fragments, properties, once)
    except AlreadyCommittedError as done:
        return open_table(job.uri, version=done.version, storage_options=storage_options)
    return table


def num_rows_of(data: Any) -> int | None:
    """Return the number of rows that a write gets; None if they are not counted yet."""
    return data.num_rows if isinstance(data, pa.Table | pa.RecordBatch) else None


def plan_write(
    data: Any,
    uri: str | os.PathLike[str],
    mode: Literal["create", "append", "overwrite"],
    *,
    schema: pa.Schema | None = None,
    data_storage_version: str | None = None,
    max_rows_per_file: int | None = None,
    max_bytes_per_file: int | None = None,
    enable_stable_row_ids: bool = False,
    auto_cleanup_options: Mapping[str, int] | None = None,
    external_blob_mode: Literal["reference", "ingest"] = "reference",
    allow_external_blob_outside_bases: bool = False,
    blob_pack_file_size_threshold: int | None = None,
    commit_retries: int | None = None,
    branch: str | None = None,
    initial_bases: Sequence[BaseLike] | None = None,
    target_bases: Sequence[str] | None = None,
    target_all_bases: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[WriteJob, Iterable[pa.RecordBatch]]:
    """Check and plan a write; see `write_dataset`. Returns it with its rows."""
    blobs = blob_options(
        external_blob_mode, allow_external_blob_outside_bases, blob_pack_file_size_threshold
    )
    data_schema, batches = rows_of(data, schema)
    job = begin_write(
        os.fspath(uri),
        data_schema,
        mode=mode,
        data_storage_version=data_storage_version,
        limits=WriteLimits.of(max_rows_per_file, max_bytes_per_file),
        settings=TableSettings(enable_stable_row_ids, cleanup_config(auto_cleanup_options)),
        storage_options=storage_options,
        blobs=blobs,
        commit_retries=commit_retries,
        branch=branch,
        bases=BaseTargets(initial_bases or (), target_bases, target_all_bases),
    )
    return job, batches
