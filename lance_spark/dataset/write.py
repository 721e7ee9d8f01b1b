"""Writing a table in one commit, without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.error_paths import names_table_at
from lance_spark.errors import AlreadyCommittedError, InvalidInputError
from lance_spark.storage.commit.manifest_store import ManifestStore, with_store
from lance_spark.storage.options.base_paths import with_base_params

if TYPE_CHECKING:
    from lance_spark.table.bases import BaseLike


@names_table_at
def write_dataset(
    data: pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch],
    uri: str | os.PathLike[str],
    mode: Literal["create", "append", "overwrite"] = "create",
    *,
    schema: pa.Schema | None = None,
    data_storage_version: str | None = None,
    max_rows_per_file: int | None = None,
    max_bytes_per_file: int | None = None,
    enable_stable_row_ids: bool = False,
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
) -> Dataset:
    """Write rows to a table in one commit.

    Parameters
    ----------
    data : Table, RecordBatch, RecordBatchReader or iterable of RecordBatch
    uri : str or path
        A path, or a URI of any scheme that fsspec knows.
    mode : str
        ``create`` (there must be no table), ``append`` or ``overwrite`` (both create a missing table).
    schema : pa.Schema, optional
        Of an iterable that may be empty; otherwise the first batch tells.
    data_storage_version : str, optional
        ``2.0``, ``2.1``, ``2.2`` or ``stable`` (2.2), which is the default for new tables. An append keeps the
        table's. Version 2.0 stores neither maps nor null structs; ``0.1`` or ``legacy`` stores no nulls but those of strings and
        bytes, and refuses all others.
    max_rows_per_file, max_bytes_per_file : int, optional
        A data file is closed once it holds so many rows or bytes; by default 1,048,576 rows or 90 GiB.
    enable_stable_row_ids : bool
        Of a new table: row ids that survive compaction.
    external_blob_mode : str
        What becomes of blobs that are given as URIs: ``reference`` keeps the URI, ``ingest`` stores what it names.
    allow_external_blob_outside_bases : bool
        References are refused unless this is true: nobody watches over what they name.
    blob_pack_file_size_threshold : int, optional
        A file of packed blobs is closed once it has so many bytes; by default 1 GiB.
    commit_retries : int, optional
        How often the commit starts again after other writers were faster; by default 20 times.
    commit_message : str, optional
        Kept with the version; see `Dataset.versions`.
    transaction_properties : mapping of str to str, optional
        Kept with the version.
    txn_app_id, txn_version : str and int, optional
        Who writes, and which of its writes this is: if the table has that write, or a later one of the same, nothing is written
        again, and the version that has it is returned.
    branch : str, optional
        Write to this branch, which there is; ``main`` for the main one. The one that `uri` is the root of, if none is given.
    initial_bases : sequence of BasePath, optional
        Other places where files of a new table can lie. pylance's `DatasetBasePath` does too. A table that exists must have them
        already; see `Dataset.add_bases`.
    target_bases : sequence of str, optional
        Names or paths of the base paths that new data files go to, one after the other; the path of the table stands for the table.
    target_all_bases : bool, optional
        True: new data files go to the table itself and all base paths, one after the other; False: to all base paths.
    base_store_params : mapping of str to mapping, optional
        Storage options of base paths, by their paths; as for `open_dataset`. The table must have each of these base paths, or
        `initial_bases` name it.
    storage_options : mapping, optional
        Settings of the store.
    manifest_store : ManifestStore or str, optional
        As for `open_dataset`.

    Returns
    -------
    Dataset
        The version that was committed.

    Raises
    ------
    TableExistsError
        The mode is ``create`` and there is a table.
    SchemaMismatchError
        The columns are not those of the table.
    CommitConflictError
        Others committed what this write cannot follow.
    InvalidInputError, InvalidOptionError, UnsupportedTypeError, StorageError
    """
    # Readers need none of it.
    from lance_spark.file.blobs.writer import blob_options
    from lance_spark.table.commit.idempotency import write_of
    from lance_spark.table.commit.transaction import with_message
    from lance_spark.table.commit.write_cleanup import commit_or_clean_up
    from lance_spark.table.commit.write_job import begin_write

    blobs = blob_options(
        external_blob_mode, allow_external_blob_outside_bases, blob_pack_file_size_threshold
    )
    storage_options = with_base_params(
        with_store(storage_options, manifest_store), base_store_params
    )
    # Before any file is written: what is refused must leave none behind.
    properties = with_message(transaction_properties, commit_message)
    once = write_of(txn_app_id, txn_version)
    found, batches = _batches(data, schema)
    given = {
        "max_rows_per_file": max_rows_per_file,
        "max_bytes_per_file": max_bytes_per_file,
        "commit_retries": commit_retries,
    }
    limits: dict[str, Any] = {name: n for name, n in given.items() if n is not None}
    job = begin_write(
        os.fspath(uri),
        found,
        mode=mode,
        data_storage_version=data_storage_version,
        enable_stable_row_ids=enable_stable_row_ids,
        storage_options=storage_options,
        blobs=blobs,
        branch=branch,
        initial_bases=initial_bases,
        target_bases=target_bases,
        target_all_bases=target_all_bases,
        **limits,
    )
    writer = job.writer()
    try:
        for batch in batches:
            writer.write(batch)
        fragments = writer.finish()
    except BaseException:
        writer.abort()
        raise
    try:
        table = commit_or_clean_up(job, fragments, properties, once)
    except AlreadyCommittedError as done:
        return open_dataset(job.uri, version=done.version, storage_options=storage_options)
    return Dataset(table, storage_options)


def _batches(data: Any, schema: pa.Schema | None) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if schema is not None and not isinstance(schema, pa.Schema):
        raise InvalidInputError(f"schema must be a pyarrow schema, not {type(schema).__name__}")
    own = getattr(data, "schema", None)
    if schema is not None and isinstance(own, pa.Schema) and not own.equals(schema):
        raise InvalidInputError(
            f"schema is not that of the data, which is not cast: the data has {own}"
        )
    if isinstance(data, pa.Table):
        return data.schema, data.to_batches()
    if isinstance(data, pa.RecordBatch):
        return data.schema, [data]
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, data
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | Mapping):
        raise InvalidInputError(
            f"data must be a Table, a RecordBatch or an iterator of batches, not {type(data).__name__}"
        )
    batches = iter(data)
    if schema is not None:
        return schema, _checked(batches, schema)
    first = next(batches, None)
    if first is None:
        raise InvalidInputError("data has no batch to tell the schema: give it as `schema`")
    if not isinstance(first, pa.RecordBatch):
        raise InvalidInputError(f"data yields {type(first).__name__}, not RecordBatch")
    return first.schema, _chain(first, _checked(batches, first.schema))


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _checked(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise InvalidInputError(f"data yields {type(batch).__name__}, not RecordBatch")
        if not batch.schema.equals(schema):
            raise InvalidInputError(
                f"data yields batches of different schemas: first {schema}, then {batch.schema}"
            )
        yield batch
