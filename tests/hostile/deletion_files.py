"""Deletion files of the `.arrow` kind whose few bytes claim many rows."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from lance_spark.table.rows import deletions as ipc_size_check

#: So many offsets take more memory than `guard` allows.
MANY = 70_000_000
_BLOCK = struct.Struct("<qi4xq")
_KEY = b"ARROW:experimental_compression"
#: Place of the field in the header of a batch.
_COMPRESSION = 3


def deletions() -> list[bytes]:
    """Return sound files and damaged files."""
    some = pa.array(np.arange(300, dtype=np.uint32))
    sound = [ipc(some, compression="zstd"), ipc(some, compression="lz4")]
    small = [of_dictionary(300), of_old_compression(300), behind_another_message(300)]
    return [*sound, ipc(zeros(MANY), compression="zstd"), *small, of_dictionary(MANY)]


def zeros(count: int) -> pa.Array:
    """Return this number of offsets, all of them 0."""
    return pa.array(np.zeros(count, np.uint32))


def of_dictionary(count: int) -> bytes:
    """Return a file of one row, whose offset refers to a dictionary of `count` values."""
    values = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), zeros(count))
    return ipc(values, compression="zstd")


def of_old_compression(count: int) -> bytes:
    """Return a file with the compression of Arrow 0.17: only metadata of the batch name the
    codec.
    """
    data = bytearray(
        ipc(
            zeros(count),
            {_KEY: b"ZSTD"},
            compression="zstd",
            metadata_version=pa.ipc.MetadataVersion.V4,
        )
    )
    start, _, _ = _block(data)
    _forget(data, start + 8)
    return bytes(data)


def behind_another_message(count: int) -> bytes:
    """Return a file whose batch follows another, harmless message in the same block.

    Arrow goes by the last message of a block.
    """
    data = bytearray(ipc(zeros(count), compression="zstd"))
    start, length, _ = _block(data)
    batch = _block(empty := ipc(zeros(0), compression="zstd"))
    first = empty[batch[0] : batch[0] + batch[1]]
    data[start:start] = first
    (footer,) = struct.unpack_from("<i", data, len(data) - 10)
    at = len(data) - 10 - footer
    block = at + _block_place(memoryview(bytes(data))[at : at + footer])
    struct.pack_into("<qi", data, block, start, len(first) + length)
    return bytes(data)


def ipc(array: pa.Array, metadata: dict[bytes, bytes] | None = None, **options: object) -> bytes:
    """Return a file of one column."""
    schema = pa.schema([pa.field("row_id", array.type, nullable=False)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        batch = pa.record_batch([array], schema=schema)
        writer.write_batch(batch, custom_metadata=metadata)
    return bytes(sink.getvalue())


def _block(data: bytes | bytearray) -> tuple[int, int, int]:
    """Return the place of the batch of a file: its position, and the lengths of its message and
    body.
    """
    (footer,) = struct.unpack_from("<i", data, len(data) - 10)
    part = memoryview(bytes(data))[-10 - footer : -10]
    position, in_message, in_body = _BLOCK.unpack_from(part, _block_place(part))
    return position, in_message, in_body


def _block_place(footer: memoryview) -> int:
    batches = ipc_size_check._field(footer, ipc_size_check._root(footer), 3)
    assert batches is not None
    return ipc_size_check._items(footer, batches, _BLOCK.size)[0]


def _forget(data: bytearray, message: int) -> None:
    """Remove the compression of the buffers from the header of a message."""
    view = memoryview(bytes(data))[message:]
    header = ipc_size_check._field(view, ipc_size_check._root(view), 2)
    assert header is not None
    batch = ipc_size_check._target(view, header)
    (back,) = struct.unpack_from("<i", view, batch)
    struct.pack_into("<H", data, message + batch - back + 4 + 2 * _COMPRESSION, 0)
