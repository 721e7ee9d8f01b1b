"""Entries of the log of a MemWAL, some of which claim many rows or bytes."""

from __future__ import annotations

import uuid

import pyarrow as pa

from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.entries import Entry, decode_entry, delete_rows, encode_entry, put_rows
from lance_spark.mem_wal.log_rows import LogRows
from lance_spark.storage.store import ObjectStore

_KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = Schema.from_arrow(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata=_KEY),
            pa.field("s", pa.struct([("a", pa.string()), ("l", pa.list_(pa.int32()))])),
            pa.field("m", pa.map_(pa.string(), pa.int8())),
            pa.field("v", pa.list_(pa.float32(), 3)),
            pa.field("j", pa.json_()),
        ]
    )
)


def entry(data: bytes) -> None:
    """Read an entry, and its rows as those of a table."""
    decoded = decode_entry(data, "e", 1)
    store = ObjectStore.from_uri("memory://entries")
    LogRows.of(store, uuid.UUID(int=1), [decoded]).read(SCHEMA.fields)


def entries() -> list[bytes]:
    """Return sound and damaged entries."""
    rows = pa.table(
        {
            "id": list(range(20)),
            "s": [{"a": "x", "l": [number]} if number % 3 else None for number in range(20)],
            "m": [[("k", 1)]] * 20,
            "v": [[1.0, 2.0, 3.0], None] * 10,
            "j": pa.array(['{"a": 1}'] * 20, pa.json_()),
        },
        schema=SCHEMA.to_arrow(),
    )
    put = put_rows(SCHEMA, rows)
    deleted = delete_rows(SCHEMA, rows.select(["id"]))
    return [
        encode_entry(Entry(1, 3, 2, rows=put)),
        encode_entry(Entry(1, 3, 2, rows=deleted, properties={"query": "q"})),
        encode_entry(Entry(1, 3, is_sentinel=True)),
        _stream(put, "zstd"),
        _stream(put, "lz4"),
        _stream(pa.table({"id": pa.repeat(pa.scalar(0, pa.int64()), 50_000_000)}), "zstd"),
        _stream(pa.table({"n": pa.Array.from_buffers(pa.null(), (1 << 31) - 1, [None])}), None),
    ]


def _stream(rows: pa.Table, compression: str | None) -> bytes:
    schema = rows.schema.with_metadata({"writer_epoch": "1"})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in rows.to_batches():
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return bytes(sink.getvalue())
