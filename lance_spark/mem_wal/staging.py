"""Rows that a task of a job stages for the driver: Arrow IPC files in `_mem_wal/_staged/`.

A file has the rows of one task. The driver reads it once, and deletes it when the rows are in the
shards. Files of failed jobs are removed by `cleanup`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.mem_wal.table.shard_manifest import FOLDER
from lance_spark.storage.parallel import read_all
from lance_spark.storage.store import ObjectStore
from lance_spark.table.rows.deletions import check_decompressed_stream

STAGED = f"{FOLDER}/_staged"
#: A file of LZ4 expands at most so many times.
_LEAST_BYTES, _MOST_TIMES = 1024 * 1024, 256


def stage(store: ObjectStore, batches: Iterable[pa.RecordBatch]) -> str | None:
    """Write rows to a new file, and return its path; None without rows.

    - `store`: Root of the branch.

    Raises StorageError.
    """
    sink = pa.BufferOutputStream()
    writer: pa.RecordBatchWriter | None = None
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    for batch in batches:
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema, options=options)
        writer.write_batch(batch)
    if writer is None:
        return None
    writer.close()
    path = f"{STAGED}/{uuid.uuid4()}.arrow"
    store.write_bytes(path, sink.getvalue().to_pybytes(), durable=False)
    return path


def read_staged(store: ObjectStore, paths: Sequence[str]) -> list[pa.Table]:
    """Read staged files in order. Raises MissingFileError, CorruptFileError, StorageError."""

    def read(path: str) -> pa.Table:
        data = store.read_bytes(path)
        try:
            check_decompressed_stream(data, _LEAST_BYTES + _MOST_TIMES * len(data))
            with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
                rows = reader.read_all()
            rows.validate(full=True)
        except (ValueError, pa.ArrowException, OSError, MemoryError) as error:
            raise CorruptFileError(
                f"{store.name(path)}: the staged rows cannot be read: {error}; start the query "
                "again, whose tasks stage them again"
            ) from error
        return rows

    return read_all(read, paths, local=store.is_local)
