"""`write_dataset`: writes rows to a table in one commit, without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa

from lance_spark.arguments import takes_keywords
from lance_spark.dataset.changes.write_keywords import REFUSED, UNUSED
from lance_spark.dataset.dataset import Dataset
from lance_spark.dataset.error_paths import names_table_at
from lance_spark.namespace import table_entry
from lance_spark.progress import ProgressCallback, reports_progress
from lance_spark.storage.commit.lock import CommitLock, with_lock
from lance_spark.storage.commit.manifest_store import ManifestStore, with_store
from lance_spark.storage.options.base_paths import with_base_params

if TYPE_CHECKING:
    from lance_spark.table.bases import BaseLike
    from lance_spark.table.commit.write_job import Mode
    from lance_spark.table.fragments.write_progress import FragmentWriteProgress


@takes_keywords(renamed={"data_obj": "data"}, unused=UNUSED, refused=REFUSED)
@names_table_at
@reports_progress
def write_dataset(
    data: pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch],
    uri: str | os.PathLike[str] | None = None,
    schema: pa.Schema | Mode | None = None,
    mode: Mode = "create",
    *,
    data_storage_version: str | None = None,
    max_rows_per_file: int | None = 1 << 20,
    max_bytes_per_file: int | None = 90 << 30,
    enable_stable_row_ids: bool = False,
    auto_cleanup_options: Mapping[str, int] | None = None,
    external_blob_mode: Literal["reference", "ingest"] = "reference",
    allow_external_blob_outside_bases: bool = False,
    blob_pack_file_size_threshold: int | None = None,
    commit_retries: int | None = None,
    commit_message: str | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    branch: str | None = None,
    initial_bases: Sequence[BaseLike] | None = None,
    target_bases: Sequence[str] | None = None,
    target_all_bases: bool | None = None,
    base_store_params: Mapping[str, Mapping[str, Any]] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    manifest_store: ManifestStore | str | None = None,
    commit_lock: CommitLock | None = None,
    namespace_client: object | None = None,
    table_id: Sequence[str] | None = None,
    progress: FragmentWriteProgress | None = None,
    progress_callback: ProgressCallback | None = None,
) -> Dataset:
    """Write rows to a table in one commit.

    Parameters
    ----------
    data : Table, RecordBatch, RecordBatchReader, iterable of RecordBatch, DataFrame, ...
        The rows. Also: a `Dataset`, a dataset or scanner of pyarrow, a DataFrame of pandas or
        polars, any other object with ``__arrow_c_stream__``, a mapping of names to values, or a
        list of mappings.
    uri : str or path
        A path, or a URI of any scheme that fsspec knows.
    schema : pa.Schema, optional
        Schema of an iterable; by default the schema of its first batch. Needed if the iterable may
        be empty. A text in this place is the mode.
    mode : str
        ``create`` (the table must not exist), ``append`` or ``overwrite`` (both create a missing
        table).
    data_storage_version : str, optional
        File version: ``2.0``, ``2.1``, ``2.2`` or ``stable`` (2.2, the default for new tables), or
        ``0.1`` (``legacy``). An append uses the version of the table. Version 2.0 cannot store maps
        and null structs. Version 0.1 can store nulls only in strings and binary columns, and
        refuses other nulls.
    max_rows_per_file, max_bytes_per_file : int, optional
        Size at which a data file is closed; by default 1,048,576 rows or 90 GiB.
    enable_stable_row_ids : bool
        Whether a new table has stable row ids, which survive compaction.
    auto_cleanup_options : mapping, optional
        Turns on cleanup after commits of a new table: ``interval`` (versions between two cleanups)
        and ``older_than_seconds``.
    external_blob_mode : str
        Handling of blobs that are given as URIs: ``reference`` stores the URI, ``ingest`` copies
        the bytes.
    allow_external_blob_outside_bases : bool
        Whether stored URIs may refer to files outside of base paths. Nothing protects such files
        from being deleted.
    blob_pack_file_size_threshold : int, optional
        Size in bytes at which a file of packed blobs is closed; by default 1 GiB.
    commit_retries : int, optional
        Maximum number of times to retry the commit after other clients committed first; by default
        20.
    commit_message : str, optional
        Stored in the transaction; see `Dataset.versions`.
    transaction_properties : mapping of str to str, optional
        Stored in the transaction.
    txn_app_id, txn_version : str and int, optional
        Id of the writing application, and number of its write. If the table already has this write
        or a later one of the same application, nothing is written, and the version with that write
        is returned.
    branch : str, optional
        The existing branch to write to, ``main`` for the main branch. By default, the branch that
        `uri` is the root of.
    initial_bases : sequence of BasePath, optional
        Base paths of a new table. pylance's `DatasetBasePath` is accepted as well. An existing
        table must have them already; see `Dataset.add_bases`.
    target_bases : sequence of str, optional
        Names or paths of the base paths that new data files go to in turn; the path of the table
        stands for its own root.
    target_all_bases : bool, optional
        True: new data files go to the table's root and all base paths in turn; False: to all base
        paths in turn.
    base_store_params : mapping of str to mapping, optional
        Storage options of base paths, by their paths; as in `open_dataset`. Each path must be a
        base path of the table or of `initial_bases`.
    storage_options : mapping, optional
        Settings of the store.
    manifest_store, commit_lock, namespace_client, table_id
        As in `open_dataset`. With the mode ``create``, the namespace chooses the place of the
        table; with other modes, it must have the table.
    progress : FragmentWriteProgress, optional
        The writer calls it for each fragment that it begins and completes.
    progress_callback : callable, optional
        Receives a `lance_spark.Progress` from time to time.

    Returns
    -------
    Dataset
        The version that was committed.

    Raises
    ------
    TableExistsError
        The mode is ``create`` and the table exists.
    SchemaMismatchError
        The schema of the data does not fit the table.
    CommitConflictError
        Another client committed an incompatible change.
    InvalidInputError, InvalidOptionError, UnsupportedTypeError, StorageError

    Examples
    --------
    >>> dataset = lance_spark.write_dataset(pa.table({"id": [1, 2]}), "/data/t.lance")
    >>> dataset = lance_spark.write_dataset(pa.table({"id": [3]}), "/data/t.lance", mode="append")
    """
    # Imported here: readers need none of these modules.
    from lance_spark.dataset.changes.writing import write_rows

    if isinstance(schema, str):
        mode, schema = cast("Mode", schema), None
    options = with_store(with_lock(storage_options, commit_lock), manifest_store)
    options = with_base_params(options, base_store_params)
    is_new = mode == "create"
    with table_entry(uri, namespace_client, table_id, options, is_new=is_new) as entry:
        return Dataset(
            write_rows(
                data,
                entry.location,
                mode,
                schema=schema,
                data_storage_version=data_storage_version,
                max_rows_per_file=max_rows_per_file,
                max_bytes_per_file=max_bytes_per_file,
                enable_stable_row_ids=enable_stable_row_ids,
                auto_cleanup_options=auto_cleanup_options,
                external_blob_mode=external_blob_mode,
                allow_external_blob_outside_bases=allow_external_blob_outside_bases,
                blob_pack_file_size_threshold=blob_pack_file_size_threshold,
                commit_retries=commit_retries,
                commit_message=commit_message,
                transaction_properties=transaction_properties,
                txn_app_id=txn_app_id,
                txn_version=txn_version,
                branch=branch,
                initial_bases=initial_bases,
                target_bases=target_bases,
                target_all_bases=target_all_bases,
                progress=progress,
                storage_options=entry.storage_options,
            ),
            entry.storage_options,
        )
