"""Streams that write a table: each batch becomes one version once, also if a process is killed."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, InvalidOptionError, LanceError
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.streaming.writer import EPOCH_ID, QUERY_ID, LanceStreamWriter
from tests.spark.table.tables import typed_rows
from tests.support.spark.processes import environment
from tests.support.tables.stored_files import data_files

SCRIPT = Path(__file__).with_name("killed_stream.py")
COLUMNAR = "spark.lance.columnar.enabled"
#: Classes by which tasks of a stream send rows, and batches of columns.
SENDERS = {"rows": "PythonStreamingWriterFactory", "columns": "ColumnarWriterFactory"}


@pytest.fixture(params=list(SENDERS))
def sender(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    """Let tasks send rows, or batches of columns. Returns the name of the class."""
    lance_spark.enable(spark)
    spark.conf.set(COLUMNAR, str(request.param == "columns").lower())
    yield SENDERS[request.param]
    spark.conf.unset(COLUMNAR)


def put(folder: Path, name: str, first: int, stop: int) -> None:
    folder.mkdir(exist_ok=True)
    table = pa.table({"id": pa.array(range(first, stop), pa.int64())})
    file = folder / f"{name}.parquet"
    pq.write_table(table, file)
    # Spark orders files by their times. Files with the same time are read in any order.
    os.utime(file, (1_700_000_000 + first, 1_700_000_000 + first))


def sender_of(spark: Any, query: Any) -> str:
    """Return the name of the class by which the last batch of a query was sent."""
    write = query._jsq.streamingQuery().lastExecution().executedPlan().batchWrite()
    info = spark._jvm.org.apache.spark.sql.connector.write.PhysicalWriteInfoImpl(1)
    made = write.writeSupport().createStreamingWriterFactory(info)
    return str(made.getClass().getSimpleName())


def run(spark: Any, source: Path, table: Path, checkpoint: Path, **options: object) -> str:
    """Run a query until it has written all files of a folder. Returns `sender_of` the query."""
    frame = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)
    frame = frame.parquet(str(source))
    if options.pop("complete", False):
        frame = frame.groupBy((frame.id % 3).alias("g")).count()
        writer = frame.writeStream.outputMode("complete")
    else:
        writer = frame.writeStream
    writer = writer.format("lance").options(checkpointLocation=str(checkpoint), **options)
    query = writer.trigger(availableNow=True).start(str(table))
    try:
        assert query.awaitTermination(300)
        return sender_of(spark, query)
    finally:
        query.stop()


def found_ids(table: Path) -> list[int]:
    return sorted(lance.dataset(str(table)).to_table()["id"].to_pylist())


def named_files(table: Path) -> set[str]:
    dataset = lance.dataset(str(table))
    return {file.path for fragment in dataset.get_fragments() for file in fragment.data_files()}


def properties(table: Path) -> list[dict[str, str]]:
    """Return the properties of transactions as pylance reads them, oldest first."""
    dataset = lance.dataset(str(table))
    return [
        dataset.read_transaction(version["version"]).transaction_properties
        for version in sorted(dataset.versions(), key=lambda version: version["version"])
    ]


def test_a_query_makes_a_table_and_goes_on(spark: Any, tmp_path: Path) -> None:
    source, table, checkpoint = tmp_path / "s", tmp_path / "t", tmp_path / "c"
    put(source, "a", 0, 10)
    put(source, "b", 10, 20)
    run(spark, source, table, checkpoint, commit_message="hello")
    lance_spark.write_dataset(pa.table({"id": [100]}), str(table), mode="append")
    put(source, "c", 20, 30)
    run(spark, source, table, checkpoint)
    # A batch without rows creates no version.
    put(source, "d", 0, 0)
    run(spark, source, table, checkpoint)
    assert found_ids(table) == [*range(30), 100]
    assert data_files(table) == named_files(table)
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    noted = properties(table)
    assert [transaction.get(EPOCH_ID) for transaction in noted] == ["0", "1", None, "2"]
    assert {transaction[QUERY_ID] for transaction in noted if EPOCH_ID in transaction} == {query}
    assert noted[0]["__lance_commit_message"] == "hello"
    lance.dataset(str(table)).validate()


def test_a_batch_whose_checkpoint_is_lost_is_written_once(
    spark: Any, tmp_path: Path, sender: str
) -> None:
    source, table, checkpoint = tmp_path / "s", tmp_path / "t", tmp_path / "c"
    for number, name in enumerate("ab"):
        put(source, name, 10 * number, 10 * number + 10)
    assert run(spark, source, table, checkpoint) == sender
    # Another query writes the same rows, with the same batch numbers.
    run(spark, source, table, tmp_path / "other")
    version = lance.dataset(str(table)).version
    assert version == 4
    for file in (checkpoint / "commits").glob("*1*"):
        file.unlink()
    run(spark, source, table, checkpoint)
    assert lance.dataset(str(table)).version == version
    assert found_ids(table) == sorted([*range(20), *range(20)])
    assert data_files(table) == named_files(table)


def test_a_name_for_the_query_and_complete_batches(spark: Any, tmp_path: Path, sender: str) -> None:
    source, table, checkpoint = tmp_path / "s", tmp_path / "t", tmp_path / "c"
    for number, name in enumerate("ab"):
        put(source, name, 10 * number, 10 * number + 10)
    options = {"complete": True, "streamingQueryId": "mine"}
    assert run(spark, source, table, checkpoint, **options) == sender
    dataset = lance.dataset(str(table))
    rows = {row["g"]: row["count"] for row in dataset.to_table().to_pylist()}
    assert rows == {0: 7, 1: 7, 2: 6}
    assert dataset.version == 2
    assert [
        (transaction[QUERY_ID], transaction[EPOCH_ID]) for transaction in properties(table)
    ] == [
        ("mine", "0"),
        ("mine", "1"),
    ]
    # The query name alone identifies batches: another checkpoint begins with batch 0 again.
    with pytest.raises(Exception, match="batch 0 of the streaming query 'mine' was not written"):
        run(spark, source, table, tmp_path / "other", complete=True, streamingQueryId="mine")
    assert lance.dataset(str(table)).version == 2


def test_a_checkpoint_that_was_set_back(tmp_path: Path) -> None:
    """Its batches have other rows than those of the same numbers, which must not be left out."""
    from pyspark.sql.types import LongType, StructField, StructType

    table = tmp_path / "t"
    schema = StructType([StructField("id", LongType())])
    options = WriteOptions.parse({"path": str(table), "streamingQueryId": "mine"})

    def write(number: int, key: int) -> None:
        writer = pickle.loads(pickle.dumps(LanceStreamWriter(options, schema, False)))
        writer.commit([writer.write(iter([pa.record_batch({"id": [key]})]))], number)

    for number in range(3):
        write(number, number)
    lance_spark.write_dataset(pa.table({"id": [100]}), str(table), mode="append")
    with pytest.raises(InvalidInputError, match=r"batch 1 .* has its batch 2: the checkpoint was"):
        write(1, 7)
    write(2, 2)
    assert found_ids(table) == [0, 1, 2, 100]
    assert data_files(table) == named_files(table)


@pytest.mark.parametrize(
    ("sender", "by_name"),
    [("columns", False), ("columns", True), ("rows", False)],
    ids=["columns by path", "columns by name", "rows"],
    indirect=["sender"],
)
def test_rows_of_all_types(spark: Any, tmp_path: Path, sender: str, by_name: bool) -> None:
    rows = typed_rows(2_000)
    (tmp_path / "s").mkdir()
    pq.write_table(rows, tmp_path / "s" / "a.parquet")
    source = str(tmp_path / "s")
    schema = spark.read.parquet(source).schema
    writer = spark.readStream.schema(schema).parquet(source).writeStream
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    if by_name:
        catalog = f"streams_{sender.lower()}"
        lance_spark.enable(spark, catalog, root=str(tmp_path))
        query = writer.toTable(f"{catalog}.t")
    else:
        query = writer.format("lance").start(str(tmp_path / "t.lance"))
    assert query.awaitTermination(60)
    assert sender_of(spark, query) == sender
    dataset = lance.dataset(str(tmp_path / "t.lance"))
    assert dataset.to_table().sort_by("id").cast(rows.schema).equals(rows)
    dataset.validate()


def test_a_failed_task_is_tried_again(spark: Any, tmp_path: Path, sender: str) -> None:
    put(tmp_path / "s", "a", 0, 70_000)

    def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise ValueError("the first attempt fails")

    frame = spark.readStream.schema("id bigint").parquet(str(tmp_path / "s"))
    writer = frame.mapInArrow(failing, "id bigint").writeStream.format("lance")
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    query = writer.start(str(tmp_path / "t"))
    assert query.awaitTermination(60)
    assert sender_of(spark, query) == sender
    assert found_ids(tmp_path / "t") == list(range(70_000))
    # The file of the first attempt stays for the cleanup.
    assert lance.dataset(str(tmp_path / "t")).version == 1


def test_a_failed_query_leaves_no_files(spark: Any, tmp_path: Path) -> None:
    source, table = tmp_path / "s", tmp_path / "t"
    put(source, "a", 0, 10)
    lance_spark.write_dataset(pa.table({"other": ["x"]}), str(table))
    with pytest.raises(Exception, match="the table has no id"):
        run(spark, source, table, tmp_path / "c")
    assert data_files(table) == named_files(table)


def test_a_task_without_a_result_is_no_commit(tmp_path: Path) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType([StructField("id", LongType())])
    writer = LanceStreamWriter(WriteOptions.parse({"path": str(tmp_path / "t")}), schema, False)
    with pytest.raises(LanceError, match="a task of batch 3 sent no result"):
        writer.commit([None], 3)
    writer.commit([], 3)
    assert not (tmp_path / "t").exists()
    for given in (
        {"txnAppId": "a", "txnVersion": "1"},
        {"partitionOverwriteMode": " Dynamic ", "partitionBy": "id"},
    ):
        options = WriteOptions.parse({"path": str(tmp_path / "t"), **given})
        with pytest.raises(InvalidOptionError, match="numbers its batches itself"):
            pickle.dumps(LanceStreamWriter(options, schema, False))


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("restored", [False, True])
def test_a_concurrent_overwrite_of_a_batch(tmp_path: Path, complete: bool, restored: bool) -> None:
    """The batch is committed on the overwrite, and only once."""
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType([StructField("id", LongType())])
    path = str(tmp_path / "t")
    lance_spark.write_dataset(pa.table({"id": [1]}), path)
    lance_spark.write_dataset(pa.table({"id": [2]}), path, mode="append")
    options = WriteOptions.parse({"path": path, "streamingQueryId": "mine"})
    attempts = []
    for _ in range(2):
        writer = pickle.loads(pickle.dumps(LanceStreamWriter(options, schema, complete)))
        attempts.append((writer, [writer.write(iter([pa.record_batch({"id": [10]})]))]))
    if restored:
        lance_spark.open_dataset(path, version=1).restore()
    else:
        lance_spark.write_dataset(pa.table({"id": [3]}), path, mode="overwrite")
    for writer, messages in attempts:
        writer.commit(messages, 7)
    kept = [] if complete else [1 if restored else 3]
    assert found_ids(tmp_path / "t") == [*kept, 10]
    assert lance.dataset(path).version == 4
    assert properties(tmp_path / "t")[3] == {QUERY_ID: "mine", EPOCH_ID: "7"}
    written = {
        file.path for m in attempts[1][1] for fragment in m.fragments for file in fragment.files
    }
    assert written
    assert not written & data_files(tmp_path / "t"), "those of the second try are gone"


def test_spark_is_killed_between_commit_and_checkpoint(spark: Any, tmp_path: Path) -> None:
    source, table, checkpoint = tmp_path / "s", tmp_path / "t", tmp_path / "c"
    for number, name in enumerate("abc"):
        put(source, name, 10 * number, 10 * number + 10)
    killed = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, (source, table, checkpoint, tmp_path / "pid"))],
        check=False,
        env=environment(),
        timeout=400,
        capture_output=True,
        text=True,
    )
    assert killed.returncode != 0
    assert found_ids(table) == list(range(10)), killed.stderr[-2000:]
    assert not list((checkpoint / "commits").glob("[0-9]*"))
    assert list((checkpoint / "offsets").glob("0"))
    # Another process goes on.
    run(spark, source, table, checkpoint)
    assert found_ids(table) == list(range(30))
    assert [transaction[EPOCH_ID] for transaction in properties(table)] == ["0", "1", "2"]
    assert len({transaction[QUERY_ID] for transaction in properties(table)}) == 1
    assert data_files(table) == named_files(table)
