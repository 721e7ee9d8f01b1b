"""The write of rows to a table in one commit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Unpack

import pyarrow as pa

from lance_spark.dataset.write_options import FileKeywords, InsertKeywords
from lance_spark.errors import AlreadyCommittedError
from lance_spark.file.blobs.writer import blob_options
from lance_spark.keywords import checked, of_group
from lance_spark.progress import stage
from lance_spark.runner import abort_on_error
from lance_spark.table.cleanup.automatic import cleanup_config
from lance_spark.table.commit.options import WriteToken
from lance_spark.table.commit.transaction import with_message
from lance_spark.table.commit.write import (
    BaseTargets,
    Mode,
    TableSettings,
    WriteJob,
    begin_write,
    commit_or_clean_up,
)
from lance_spark.table.fragments.limits import WriteLimits
from lance_spark.table.fragments.writer import check_observer
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.sources import rows_of


def write_rows(
    data: Any,
    uri: str | os.PathLike[str],
    mode: Mode = "create",
    schema: pa.Schema | None = None,
    **keywords: Unpack[InsertKeywords],
) -> OpenTable:
    """Write rows to a table; see `write_dataset`. Returns the version that was committed."""
    # All arguments are checked before any file is written.
    given = checked(InsertKeywords, keywords)
    check_observer(given["progress"])
    properties = with_message(given["transaction_properties"], given["commit_message"])
    once = WriteToken.of_app(given["txn_app_id"], given["txn_version"])
    storage = given["storage_options"]
    job, batches = plan_write(data, uri, mode, schema, storage, **of_group(FileKeywords, keywords))
    writer = job.writer(observer=given["progress"])
    with abort_on_error(writer.abort), stage("write", num_rows_of(data), "rows"):
        fragments = writer.write_all(batches)
    try:
        table = commit_or_clean_up(job, fragments, properties, once)
    except AlreadyCommittedError as done:
        return open_table(job.uri, version=done.version, storage_options=storage)
    return table


def num_rows_of(data: Any) -> int | None:
    """Return the number of rows that a write gets; None if they are not counted yet."""
    return data.num_rows if isinstance(data, pa.Table | pa.RecordBatch) else None


def plan_write(
    data: Any,
    uri: str | os.PathLike[str],
    mode: Mode,
    schema: pa.Schema | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **keywords: Unpack[FileKeywords],
) -> tuple[WriteJob, Iterable[pa.RecordBatch]]:
    """Check and plan a write; see `write_dataset`. Returns it with its rows."""
    given = checked(FileKeywords, keywords)
    blobs = blob_options(
        given["external_blob_mode"],
        given["allow_external_blob_outside_bases"],
        given["blob_pack_file_size_threshold"],
    )
    data_schema, batches = rows_of(data, schema)
    job = begin_write(
        os.fspath(uri),
        data_schema,
        mode=mode,
        data_storage_version=given["data_storage_version"],
        limits=WriteLimits.of(given["max_rows_per_file"], given["max_bytes_per_file"]),
        settings=TableSettings(
            given["enable_stable_row_ids"], cleanup_config(given["auto_cleanup_options"])
        ),
        storage_options=storage_options,
        blobs=blobs,
        commit_retries=given["commit_retries"],
        branch=given["branch"],
        bases=BaseTargets(
            given["initial_bases"] or (), given["target_bases"], given["target_all_bases"]
        ),
    )
    return job, batches
