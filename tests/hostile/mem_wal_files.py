"""Files of a MemWAL: entries, some of which claim many rows or bytes, and the state of shards."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa

from lance_spark.file.schema.schema import Schema
from lance_spark.indexes.btree.files import DATA_FILE
from lance_spark.indexes.cache import CACHE
from lance_spark.mem_wal.entries import (
    Entry,
    LogRows,
    decode_entry,
    delete_rows,
    encode_entry,
    put_rows,
)
from lance_spark.mem_wal.key_index import FOLDER, KeyPages, SortedKeys, write_key_index
from lance_spark.mem_wal.keys import encode_filter, may_have
from lance_spark.mem_wal.sharding import split_by_shard
from lance_spark.mem_wal.shards import entries_of_shard
from lance_spark.mem_wal.staging import read_staged
from lance_spark.mem_wal.table import details
from lance_spark.mem_wal.table import shard_manifest as names
from lance_spark.mem_wal.table import shard_manifest as shard_manifests
from lance_spark.mem_wal.table.guard import has_fresh_rows
from lance_spark.mem_wal.writer_options import WriterOptions
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.paths import TablePaths
from tests.hostile import corpus
from tests.hostile.guard import worse_of

_SHARD = uuid.UUID(int=7)
_KEYS = pa.array([5, 3, 3, 9], pa.int64())

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
    store = ObjectStore.from_uri("memory://entries")
    store.write_bytes(names.wal_path(_SHARD, 1), data)
    failed: Exception | None = None
    try:
        has_fresh_rows(store, shard_manifests.ShardManifest(_SHARD), 0)
    except Exception as error:
        failed = error
    try:
        decoded = decode_entry(data, "e", 1)
        LogRows.of(store, uuid.UUID(int=1), [decoded]).read(SCHEMA.fields)
    except Exception as error:
        failed = worse_of(failed, error)
    if failed is not None:
        raise failed


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


def staged(data: bytes) -> None:
    """Read rows that a task of a stream staged."""
    store = ObjectStore.from_uri("memory://staged")
    store.write_bytes("rows", data)
    read_staged(store, ["rows"])


def staged_rows() -> list[bytes]:
    """Return sound and damaged files of staged rows."""
    rows = pa.table({"id": range(40), "s": [f"w{number % 9}" for number in range(40)]})
    words = rows.set_column(1, "s", rows["s"].dictionary_encode())
    nothing = pa.Table.from_batches([], rows.schema)
    bomb = pa.table({"id": pa.repeat(pa.scalar(0, pa.int64()), 50_000_000)})
    return [
        *(_stream(table, "lz4") for table in (rows, words, nothing)),
        _stream(rows, None),
        _stream(bomb, "zstd"),
    ]


def key_filter(data: bytes) -> None:
    """Look up keys in a Bloom filter."""
    may_have(data, [pa.array([1, 2, 3], pa.int64())], "f")


def key_filters() -> list[bytes]:
    """Return Bloom filters of few blocks."""
    data = encode_filter([pa.array(range(200), pa.int64())])
    return [data[:size] for size in (32, 512, len(data))]


def key_index(data: bytes) -> None:
    """Read the keys of an SSTable."""
    store = ObjectStore.from_uri("memory://keys")
    paths = TablePaths(store)
    write_key_index(paths, SortedKeys.of([_KEYS]))
    store.write_bytes(f"{FOLDER}/{DATA_FILE}", data)
    CACHE.clear()
    pages = KeyPages.open(paths, _KEYS.type, len(_KEYS))
    if pages is not None:
        pages.read(range(len(pages.pages.low)))


def key_indexes() -> list[bytes]:
    """Return the file with the keys of an SSTable."""
    path = corpus.folder() / "keys"
    store = ObjectStore.from_uri(str(path))
    write_key_index(TablePaths(store), SortedKeys.of([_KEYS]))
    return [(path / FOLDER / DATA_FILE).read_bytes()]


def shard_manifest(data: bytes) -> None:
    """Read a shard manifest, and write the next version."""
    manifest = shard_manifests.decode(data, _SHARD, 3, "m")
    shard_manifests.encode(replace(manifest, version=4))


def manifests() -> list[bytes]:
    """Return sound shard manifests."""
    full = shard_manifests.ShardManifest(
        _SHARD,
        version=3,
        writer_epoch=2,
        replay_after=7,
        last_seen=9,
        current_generation=5,
        sstables=(
            shard_manifests.SsTable(2, "0123abcd_gen_2", 10, 3, 24),
            shard_manifests.SsTable(4, "0123abcd_gen_4"),
        ),
        spec_id=1,
        field_entries=(("bucket", b"\x02\0\0\0"),),
        status=shard_manifests.ShardStatus.SEALED,
    )
    return [
        shard_manifests.encode(manifest)
        for manifest in (full, shard_manifests.ShardManifest(_SHARD, version=3))
    ]


def mem_wal_details(data: bytes) -> None:
    """Read the details of a MemWAL, its writer options and its shards."""
    index = table_pb2.IndexMetadata()
    index.index_details.value = data
    decoded = details.decode(index, "m")
    details.encode(decoded)
    WriterOptions.from_text(decoded.writer_defaults)
    for spec in decoded.sharding_specs:
        split_by_shard(spec, SCHEMA, pa.table({"id": [1, 2, 3]}))
        entries_of_shard(spec, _SHARD)


def all_details() -> list[bytes]:
    """Return sound details."""
    part = details.ShardingField("bucket", (0,), "bucket", parameters={"num_buckets": "4"})
    full = details.MemWalDetails(
        num_shards=4,
        sharding_specs=(details.ShardingSpec(1, (part,)),),
        maintained_indexes=("i",),
        writer_defaults=WriterOptions(hnsw_params={"i": {"max_level": 3}}).to_text(),
        compacted={_SHARD: 3},
        index_catchup={"i": {_SHARD: 2}},
    )
    identity = details.ShardingField("bucket", (0,), "identity", result_type="int64")
    other = replace(full, sharding_specs=(details.ShardingSpec(1, (identity,)),))
    return [details.encode(full), details.encode(other), details.encode(details.MemWalDetails())]


def _stream(rows: pa.Table, compression: str | None) -> bytes:
    schema = rows.schema.with_metadata({"writer_epoch": "1"})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in rows.to_batches():
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return bytes(sink.getvalue())
