"""The number of requests to S3 of operations of a MemWAL: the table in docs/howto/mem-wal.md."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

import lance_spark
from lance_spark.mem_wal.entries import put_rows
from lance_spark.mem_wal.stream_batches import StreamBatch, StreamMode, write_batch
from tests.support.stores.aws import BUCKET, Aws

DOCS = Path(__file__).parents[2] / "docs" / "howto" / "mem-wal.md"
_ROW = re.compile(r"\| (?P<what>[^|]+) \| (?P<requests>\d+) \|")
#: Modes of streams, as the page names them.
_BATCHES = {
    StreamMode.SSTABLE: "a batch of a stream as an SSTable",
    StreamMode.LOG: "a batch of a stream as a WAL entry",
}
KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("name", pa.string())])


def rows_of(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "name": [str(number) for number in ids]}, schema=SCHEMA)


def test_requests_of_a_mem_wal(aws: Aws) -> None:
    uri = f"s3://{BUCKET}/mem-wal"

    def opened() -> lance_spark.Dataset:
        return lance_spark.open_dataset(uri, storage_options=aws.ours)

    measured: dict[str, int] = {}

    def measure(name: str, act: Any) -> Any:
        with aws.counted() as requests:
            result = act()
        measured[name] = len(requests)
        return result

    lance_spark.write_dataset(rows_of([1, 2, 3]), uri, storage_options=aws.ours)
    opened().initialize_mem_wal(unsharded=True)
    shard = str(uuid.uuid4())
    # The first claim of a shard is another one than those that follow.
    opened().mem_wal_writer(shard).close()
    dataset = opened()
    writer = measure("claim a shard without rows in its log", lambda: dataset.mem_wal_writer(shard))
    measure("put rows, durably", lambda: writer.put(rows_of([1])))
    measure("flush the rows as an SSTable", writer.close)
    writer = opened().mem_wal_writer(shard)
    for number in range(3):
        writer.put(rows_of([2 + number]))
    dataset = opened()
    fresh = measure("`fresh()` of a table with a shard", dataset.fresh)
    scan = "its first scan, with 1 fragment, an SSTable and 3 WAL entries"
    ids = measure(scan, fresh.to_table)["id"].to_pylist()
    assert (fresh.num_sstables, fresh.num_entries) == (1, 3)
    assert sorted(ids) == [1, 2, 3, 4]
    answer = measure("the search of a key in the table", lambda: fresh.to_table(filter="id = 77"))
    assert answer.num_rows == 0
    opened().disable_mem_wal()
    opened().initialize_mem_wal(unsharded=True)

    def stream(number: int, mode: StreamMode) -> None:
        table = opened()._table
        rows = put_rows(table.schema, rows_of([1, 9]))
        with_batch = StreamBatch("q", number, mode=mode)
        measure(_BATCHES[mode], lambda: write_batch(table, rows, with_batch))

    # The first batch claims the shard, the second one is measured.
    for number in range(2):
        stream(number, StreamMode.SSTABLE)
    for number in range(2, 4):
        stream(number, StreamMode.LOG)
    dataset = opened()
    measure("compact two SSTables", dataset.compact_mem_wal)
    assert opened().count_rows() == 5
    opened().disable_mem_wal()
    opened().initialize_mem_wal(bucket_column="id", num_buckets=4)
    for shard_id, part in opened().split_by_shard(rows_of(list(range(20)))).items():
        opened().mem_wal_writer(shard_id).put(part)
    fresh = opened().fresh()
    search = "the first search of a key in one of 4 shards, which have a WAL entry each"
    answer = measure(search, lambda: fresh.to_table(filter="id = 7"))
    assert answer.num_rows == 1
    table = DOCS.read_text().partition("### Requests")[2].partition("\n## ")[0]
    documented = {row["what"]: int(row["requests"]) for row in _ROW.finditer(table)}
    assert measured == documented
