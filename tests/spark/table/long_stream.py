"""`make test-long`: streams of 24 simulated hours, a batch for each minute.

Both tables are compacted each hour, and their old versions are removed. Each row must be in the
target once, and the last hours must not take more processor time than the first. The first test
calls the source and the sink as Spark does, each minute in another object, as in a query that
begins again. The second is a query of Spark that begins again each hour. Tests print figures.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType

import lance_spark
from lance_spark.spark.options.feed import FeedOptions
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.streaming.reader import LanceStreamReader
from lance_spark.spark.streaming.writer import LanceStreamWriter

HOURS = 24
ROWS = 5
SCHEMA = StructType([StructField("id", LongType())])
#: Versions that stay: those of the last hours.
KEPT = 150
#: Batches that stay in the checkpoint.
BATCHES = 5
#: An hour by the processor time of another: the noise of a busy machine.
ALLOWED = 2.0


def append(path: str, minute: int) -> None:
    """Append the rows of a minute."""
    ids = pa.array(range(ROWS * minute, ROWS * (minute + 1)), pa.int64())
    lance_spark.write_dataset(pa.table({"id": ids}), path, mode="append")


def maintain(*paths: str) -> None:
    """Compact tables, and remove old versions."""
    for path in paths:
        lance_spark.open_dataset(path).compact_files()
        lance_spark.open_dataset(path).cleanup_old_versions(retain_versions=KEPT)


def batch(source: str, target: str, start: dict[str, Any], number: int) -> dict[str, Any]:
    """Read and write one batch, and return its end; see `test_minutes`."""
    options = ReadOptions.parse({"path": source, "skipchangecommits": "true"})
    reader = LanceStreamReader(options, FeedOptions.parse(options), SCHEMA)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    writing = WriteOptions.parse({"path": target, "streamingQueryId": "minutes"})
    writer = LanceStreamWriter(writing, SCHEMA, overwrite=False)
    partitions = reader.partitions(start, end)
    messages = [writer.write(reader.read(partition)) for partition in partitions]
    writer.commit(messages, number)
    reader.commit(end)
    return end


def check(source: str, target: str, seconds: list[float]) -> None:
    """Check the rows, the files and the times of the hours; print figures."""
    counts = Counter(lance.dataset(target).to_table()["id"].to_pylist())
    assert counts.keys() == set(range(ROWS * 60 * HOURS))
    assert set(counts.values()) == {1}
    for path in (source, target):
        files = len(list(Path(path, "data").iterdir()))
        kept = len(lance_spark.open_dataset(path).versions())
        print(f"{Path(path).name}: {kept} versions, {files} files")
        assert kept <= KEPT + 60
        # Versions that stay name the files of their minutes, and those of compactions.
        assert files <= 2 * (KEPT + 60)
    third = max(HOURS // 3, 1)
    first, last = sorted(seconds[:third]), sorted(seconds[-third:])
    print(f"processor seconds of an hour: {first[third // 2]:.2f} at first, {last[third // 2]:.2f}")
    assert last[third // 2] < ALLOWED * first[third // 2]


def test_minutes(tmp_path: Path) -> None:
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    place: dict[str, Any] = {"version": 1, "index": 0, "snapshot": False}
    seconds, sizes = [], set()
    for hour in range(HOURS):
        began = time.process_time()
        for minute in range(60 * hour, 60 * (hour + 1)):
            append(source, minute)
            end = batch(source, target, place, minute)
            if minute % 97 == 0:
                # Spark ended before its checkpoint had the batch.
                assert batch(source, target, place, minute) == end
            place = end
            sizes.add(len(json.dumps(place)))
        maintain(source, target)
        seconds.append(time.process_time() - began)
    check(source, target, seconds)
    assert max(sizes) < 200


def test_hours(spark: Any, tmp_path: Path) -> None:
    lance_spark.enable(spark)
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    checkpoint = tmp_path / "checkpoint"
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", str(BATCHES))
    seconds = []
    try:
        for hour in range(HOURS):
            for minute in range(60 * hour, 60 * (hour + 1)):
                append(source, minute)
            began = time.process_time()
            stream = spark.readStream.format("lance").option("skipChangeCommits", "true")
            writer = stream.load(source).writeStream.format("lance")
            writer = writer.option("checkpointLocation", str(checkpoint))
            query = writer.trigger(availableNow=True).start(target)
            assert query.awaitTermination(300)
            maintain(source, target)
            seconds.append(time.process_time() - began)
    finally:
        spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    check(source, target, seconds)
    files = [path for path in checkpoint.rglob("*") if path.is_file() and path.suffix != ".crc"]
    print(f"checkpoint: {len(files)} files, {sum(path.stat().st_size for path in files):,} bytes")
    assert len(files) < 6 * BATCHES
