"""Streams of upserts: rows replace rows of their keys in a MemWAL, each batch once."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import FloatType, StructField, StructType

import lance_spark
from lance_spark.errors import InvalidInputError, InvalidOptionError, SchemaMismatchError
from lance_spark.mem_wal import stream_batches
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.snapshot import read_state
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.streaming.upserts import LanceUpsertWriter
from lance_spark.table.open import open_table

_KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=_KEY),
        pa.field("name", pa.string(), nullable=False),
        ("score", pa.float32()),
    ]
)
STREAM = (
    StructType()
    .add("ID", "long")
    .add("name", "string")
    .add("seq", "integer")
    .add("gone", "boolean")
)
OPTIONS = {"upsert": "true", "sequenceColumn": "SEQ", "delete_column": "gone"}
Row = tuple[int, str | None, int, bool | None]


def new_table(root: Path, buckets: int = 3) -> None:
    rows = {"id": range(10), "name": [f"base{key}" for key in range(10)], "score": [0.5] * 10}
    dataset = lance.write_dataset(pa.table(rows, schema=SCHEMA), root)
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=buckets)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    ids, names, sequence, gone = zip(*rows, strict=True)
    return pa.record_batch(
        [
            pa.array(ids, pa.int64()),
            pa.array(names, pa.string()),
            pa.array(sequence, pa.int32()),
            pa.array(gone, pa.bool_()),
        ],
        names=["ID", "name", "seq", "gone"],
    )


def fresh(root: Path) -> dict[int, str]:
    rows = lance_spark.open_dataset(str(root)).fresh().to_table()
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def run(spark: Any, source: Path, table: Path, checkpoint: Path, **options: object) -> None:
    frame = spark.readStream.schema(STREAM).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = frame.writeStream.format("lance").option("checkpointLocation", str(checkpoint))
    query = writer.options(**{**OPTIONS, **options}).trigger(availableNow=True).start(str(table))
    try:
        assert query.awaitTermination(300)
    finally:
        query.stop()


@pytest.mark.parametrize("mode", ["sstable", "log"])
def test_a_query(spark: Any, tmp_path: Path, mode: str) -> None:
    lance_spark.enable(spark)
    source, table, checkpoint = tmp_path / "s", tmp_path / "t", tmp_path / "c"
    new_table(table)
    source.mkdir()
    batches: list[list[Row]] = [
        [(1, "a", 1, False), (2, "b", 1, None), (20, "c", 1, False), (1, "late", 0, False)],
        [(2, None, 5, True), (20, "d", 7, True), (20, "e", 8, False), (3, None, 1, True)],
    ]
    for number, rows in enumerate(batches):
        pq.write_table(pa.Table.from_batches([batch_of(rows)]), source / f"{number}.parquet")
        run(spark, source, table, checkpoint, upsert_mode=mode)
    expected = {key: f"base{key}" for key in range(10) if key not in (2, 3)}
    expected.update({1: "a", 20: "e"})
    assert fresh(table) == expected
    assert not list((table / "_mem_wal" / "_staged").iterdir())
    before = _sources(table)
    # The last batch is lost from the checkpoint: Spark runs it again.
    for path in (checkpoint / "commits").glob("*1*"):
        path.unlink()
    run(spark, source, table, checkpoint, upsert_mode=mode)
    assert _sources(table) == before
    compact_mem_wal(open_table(str(table)))
    if mode == "sstable":
        rows = lance.dataset(table).to_table()
        names = dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
        assert names == expected
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    assert query


def _sources(table: Path) -> list[tuple[int, int]]:
    state = read_state(open_table(str(table)))
    return [(len(shard.sstables), len(shard.entries)) for shard in state.shards]


def _writer(table: Path, **options: str) -> LanceUpsertWriter:
    given = {"path": str(table), "streaming_query_id": "q", **OPTIONS, **options}
    writer = LanceUpsertWriter(WriteOptions.parse(given), STREAM, False)
    copy: LanceUpsertWriter = pickle.loads(pickle.dumps(writer))
    return copy


def _staged(writer: LanceUpsertWriter, *tasks: list[Row]) -> list[Any]:
    return [writer.write(iter([batch_of(rows)] if rows else [])) for rows in tasks]


@pytest.mark.parametrize("mode", ["sstable", "log"])
def test_a_crash_between_shards(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream_batches._WRITERS.clear()
    table = tmp_path / "t"
    new_table(table)
    tasks: list[list[Row]] = [
        [(key, f"x{key}", key, key == 4) for key in range(6)],
        [],
        [(key, f"y{key}", -key, False) for key in range(4, 12)],
    ]
    writer = _writer(table, upsert_mode=mode)
    real, count = stream_batches._ShardOfStream.write, []

    def crashing(part: Any) -> bool:
        if len(count) == 1:
            raise KeyboardInterrupt
        count.append(1)
        return real(part)

    monkeypatch.setattr(stream_batches._ShardOfStream, "write", crashing)
    with pytest.raises(KeyboardInterrupt):
        writer.commit(_staged(writer, *tasks), 0)
    monkeypatch.undo()
    stream_batches._WRITERS.clear()
    for _ in range(2):
        again = _writer(table, upsert_mode=mode)
        again.commit(_staged(again, *tasks), 0)
        stream_batches._WRITERS.clear()
    state = read_state(open_table(str(table)))
    assert sum(len(shard.sstables) + len(shard.entries) for shard in state.shards) == 3
    expected = {key: f"x{key}" if key < 6 else f"y{key}" for key in range(12) if key != 4}
    assert fresh(table) == expected


@pytest.mark.parametrize("change", ["renamed", "replaced"])
def test_a_column_that_changes_during_a_batch(tmp_path: Path, change: str) -> None:
    table = tmp_path / "t"
    new_table(table)
    stream = StructType([*STREAM.fields, StructField("score", FloatType())])
    options = WriteOptions.parse({"path": str(table), "streaming_query_id": "q", **OPTIONS})
    task, driver = (LanceUpsertWriter(options, stream, False) for _ in range(2))
    rows = batch_of([(1, "a", 1, False)]).append_column("score", pa.array([2.0], pa.float32()))
    messages = [task.write(iter([rows]))]
    dataset = lance_spark.open_dataset(str(table))
    if change == "renamed":
        dataset.alter_columns({"path": "score", "name": "points"})
    else:
        dataset.drop_columns(["score"]).add_columns(pa.schema([("score", pa.float32())]))
        driver = LanceUpsertWriter(options, stream, False)
    with pytest.raises(SchemaMismatchError, match="'score' of the table was renamed, dropped or"):
        driver.commit(messages, 0)
    assert read_state(open_table(str(table))).shards == ()


def test_abort_deletes_staged_rows(tmp_path: Path) -> None:
    table = tmp_path / "t"
    new_table(table)
    writer = _writer(table)
    messages = _staged(writer, [(1, "a", 1, False)], [])
    assert len(list((table / "_mem_wal" / "_staged").iterdir())) == 1
    writer.abort([*messages, None], 0)
    assert not list((table / "_mem_wal" / "_staged").iterdir())
    assert len(fresh(table)) == 10


def test_refused_rows_leave_the_shards(tmp_path: Path) -> None:
    table = tmp_path / "t"
    new_table(table)
    writer = _writer(table)
    with pytest.raises(InvalidInputError, match="'name' must not be null"):
        writer.commit(_staged(writer, [(1, None, 1, False)]), 0)
    with pytest.raises(InvalidInputError, match="column id holds a null"):
        writer.commit(_staged(writer, [(None, "a", 1, False)]), 0)  # type: ignore[list-item]
    assert read_state(open_table(str(table))).shards == ()


def test_refused_options_and_columns(tmp_path: Path) -> None:
    table = tmp_path / "t"
    new_table(table)
    lance.write_dataset(pa.table({"ID": [1]}), tmp_path / "plain")
    cases: list[tuple[dict[str, str], Any, str]] = [
        ({"sequence_column": "x"}, InvalidOptionError, "no column 'x'"),
        ({"upsert_mode": "x"}, InvalidOptionError, "sstable, log"),
        ({"upsert": "false"}, InvalidOptionError, "only to streams"),
        ({"delete_column": "seq"}, SchemaMismatchError, "must be boolean"),
        ({"delete_column": "name"}, SchemaMismatchError, "must be boolean"),
        ({"sequenceColumn": "name"}, SchemaMismatchError, "no column 'seq'"),
        ({"mergeSchema": "true"}, InvalidOptionError, "does not apply"),
        ({"path": str(tmp_path / "plain")}, InvalidInputError, "no MemWAL"),
    ]
    for options, error, message in cases:
        given = {"path": str(table), **OPTIONS, **options}
        if "sequence_column" in options:
            given.pop("sequenceColumn")
        with pytest.raises(error, match=message):
            LanceUpsertWriter(WriteOptions.parse(given), STREAM, False)
    with pytest.raises(InvalidOptionError, match="complete"):
        LanceUpsertWriter(WriteOptions.parse({"path": str(table), **OPTIONS}), STREAM, True)
    fewer = StructType().add("id", "long")
    with pytest.raises(SchemaMismatchError, match="no column 'name'"):
        LanceUpsertWriter(WriteOptions.parse({"path": str(table), "upsert": "true"}), fewer, False)


def test_a_batch_write_refuses_the_option(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(3)
    with pytest.raises(Exception, match="only to streams"):
        frame.write.format("lance").option("upsert", "true").mode("append").save(
            str(tmp_path / "t")
        )
