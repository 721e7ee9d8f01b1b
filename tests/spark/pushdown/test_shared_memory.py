"""Batches in memory that a worker shares with its JVM."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from lance_spark.spark.jvm import classes
from lance_spark.spark.pushdown import columnar as module
from lance_spark.spark.pushdown.columnar import (
    PLACE_BYTES,
    PLACES,
    SHARED_BYTES,
    SharedMemory,
    shared_memory,
    streams,
)

SETTING = "spark.lance.columnar.sharedMemory"
#: Where the memory has the flag of the JVM, and the number of the last batch that it has read.
MAPPED, READ = 1, 2
ROWS, BATCH = 120_000, 8_000


def header_of(memory: SharedMemory) -> np.ndarray[Any, Any]:
    """Return the header as another process sees it."""
    return np.memmap(memory.name, np.int64, "r+", shape=(3,))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> SharedMemory:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    return SharedMemory()


def test_a_place_is_written_again_when_its_batch_was_read(memory: SharedMemory) -> None:
    header = header_of(memory)
    places = [memory.next_place() for _ in range(PLACES)]
    offsets = [place[0] for place in places if place is not None]
    assert len(set(offsets)) == PLACES
    assert memory.next_place() is None
    assert memory.number == PLACES
    header[READ] = 1
    again = memory.next_place()
    assert again is not None
    assert again[0] == offsets[0]
    assert memory.next_place() is None


def test_bytes_are_where_the_place_says(memory: SharedMemory) -> None:
    for text in (b"first", b"second"):
        place = memory.next_place()
        assert place is not None
        offset, buffer = place
        assert len(buffer) == PLACE_BYTES
        pa.FixedSizeBufferWriter(buffer).write(text)
        file = np.memmap(memory.name, np.uint8, "r")
        assert file[offset : offset + len(text)].tobytes() == text


def test_no_process_can_change_the_size(memory: SharedMemory) -> None:
    with open(memory.name, "r+b") as file:
        for size in (0, 100, 1 << 30):
            with pytest.raises(OSError, match="not permitted"):
                os.truncate(file.fileno(), size)


def test_a_forked_process_has_memory_of_its_own() -> None:
    memory = shared_memory()
    assert memory is shared_memory()
    assert memory is not None
    received, sent = os.pipe()
    child = os.fork()
    if not child:
        other = shared_memory()
        os.write(sent, str(other and other.id).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(received, 100)) != memory.id


@pytest.mark.parametrize("problem", [OSError, AttributeError])
def test_a_system_without_such_files(
    monkeypatch: pytest.MonkeyPatch, problem: type[Exception]
) -> None:
    def fail(*_: object) -> int:
        raise problem

    monkeypatch.setattr(os, "memfd_create", fail)
    monkeypatch.setattr(module, "_memories", {})
    batch = pa.record_batch({"n": np.arange(SHARED_BYTES)})
    for row in streams(iter([batch]), True):
        (values,) = row.to_pylist()
        assert values["memory"] is None
        assert values["length"] == 0


def test_a_batch_is_offered_then_shared_then_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM maps the memory after the first batch, and reads no batch for too long."""
    monkeypatch.setattr(module, "_memories", {})
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    numbers = np.arange(SHARED_BYTES // 4)
    batches = [pa.record_batch({"n": numbers + part}) for part in range(PLACES + 3)]
    lengths, parts = [], []
    memory = shared_memory()
    assert memory is not None
    for part, row in enumerate(streams(iter(batches), True)):
        (values,) = row.to_pylist()
        assert values["memory"] == memory.name
        assert values["id"] == memory.id
        lengths.append(values["length"])
        stream = values["batch"]
        if values["length"]:
            file = np.memmap(memory.name, np.uint8, "r", values["offset"], values["length"])
            assert len(stream) >= 65536
            stream = file.tobytes()
            assert values["number"] == part
        parts.append(pa.ipc.open_stream(stream).read_all().column(0)[0].as_py())
        header_of(memory)[MAPPED] = 1
    assert [length > 0 for length in lengths] == [False, *[True] * PLACES, False, False]
    assert parts == list(range(PLACES + 3))


@pytest.fixture(scope="module")
def path(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of a few fragments, whose tasks send several batches each."""
    folder = str(tmp_path_factory.mktemp("shared") / "t.lance")
    rng = np.random.default_rng(7)
    for part in range(3):
        ids = np.arange(part * ROWS, (part + 1) * ROWS)
        words = pa.array([f"word {number}" * (number % 4) for number in ids], mask=ids % 11 == 3)
        vectors = pa.FixedSizeListArray.from_arrays(rng.random(ROWS * 16, np.float32), 16)
        lists = pa.ListArray.from_arrays(
            pa.array(np.arange(ROWS + 1) // 2, pa.int32()), pa.array(ids[: ROWS // 2])
        )
        child = pa.StructArray.from_arrays([words, pa.array(ids * 2.5)], ["w", "x"])
        rows = {"id": ids, "word": words, "v": vectors, "l": lists, "s": child}
        lance.write_dataset(pa.table(rows), folder, mode="append")
    return folder


@pytest.fixture
def frame(spark: Any, pushdown: Callable[..., None], path: str) -> Iterator[Any]:
    pushdown(True, False)
    yield spark.read.format("lance").option("batch_size", BATCH).load(path)
    spark.conf.unset(SETTING)


def memories(spark: Any) -> dict[str, int]:
    """Return the memories that the JVM has mapped, and the numbers of the last batches read."""
    loader = classes.loaded_extension(spark).getClassLoader()
    field = loader.loadClass(f"{classes.PACKAGE}.SharedMemory").getDeclaredField("OPEN")
    field.setAccessible(True)
    names = [str(name) for name in field.get(None)]
    return {
        name: int(np.fromfile(name, np.int64, 3)[READ]) for name in names if Path(name).exists()
    }


def expected(path: str, **chosen: Any) -> pa.Table:
    return lance.dataset(path).to_table(**chosen).sort_by("id")


def table_of(frame: Any, schema: pa.Schema) -> pa.Table:
    return frame.toArrow().sort_by("id").cast(schema)


def test_rows_equal_those_of_pylance(spark: Any, frame: Any, path: str) -> None:
    rows = expected(path)
    for _ in range(2):
        before = sum(memories(spark).values())
        assert table_of(frame, rows.schema) == rows
    # No worker has waited in vain for a place.
    assert sum(memories(spark).values()) >= before + len(rows) // BATCH
    # Values that are kept until all batches of a task were read.
    sorted_rows = frame.orderBy(sf.col("word").desc_nulls_last(), "id").toArrow()
    order = [("word", "descending"), ("id", "ascending")]
    assert sorted_rows.cast(rows.schema) == rows.sort_by(order)
    longest = frame.selectExpr("max_by(word, id)", "max(word)", "first(s)", "count(distinct word)")
    words = [word for word in rows["word"].to_pylist() if word is not None]
    (row,) = longest.collect()
    assert list(row)[:2] == [words[-1], max(words)]
    assert row[2].asDict() in rows["s"].to_pylist()
    assert row[3] == len(set(words))


def test_the_setting_keeps_all_batches_on_the_socket(spark: Any, frame: Any, path: str) -> None:
    spark.conf.set(SETTING, "false")
    rows = expected(path, columns=["id", "word"])
    before = memories(spark)
    assert table_of(frame.select("id", "word"), rows.schema) == rows
    after = memories(spark)
    assert {name: before.get(name) for name in after} == after


def test_a_query_that_is_slower_than_the_patience_of_workers(frame: Any, path: str) -> None:
    @sf.udf("long")
    def slow(number: int) -> int:
        if number % 20_000 == 0:
            time.sleep(0.4)
        return number

    rows = expected(path, columns=["id", "v"])
    answer = frame.select("id", "v", slow("id").alias("same")).where("same = id").drop("same")
    assert table_of(answer, rows.schema) == rows


def test_queries_that_stop_early(frame: Any, path: str) -> None:
    @sf.udf("long")
    def fail(number: int) -> int:
        if number % ROWS == ROWS // 2:
            raise ValueError("no more")
        return number

    rows = expected(path, columns=["id", "word"])
    for _ in range(3):
        assert len(frame.where("id % 7 = 2").select("word", "v").limit(9).collect()) == 9
        with pytest.raises(Exception, match="no more"):
            frame.select(fail("id"), "v").collect()
        assert table_of(frame.select("id", "word"), rows.schema) == rows


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table whose even batches have vectors and whose odd batches have none."""
    folder = str(tmp_path_factory.mktemp("halves") / "t.lance")
    rng, count = np.random.default_rng(3), 30 * BATCH
    missing = pa.array(np.arange(count) // BATCH % 2 == 1)
    vectors = pa.FixedSizeListArray.from_arrays(
        rng.random(count * 16, np.float32), 16, mask=missing
    )
    words = pa.array([f"{row}:{'ab' * (80 + row % 150)}" for row in range(count)])
    lance.write_dataset(pa.table({"v": vectors, "w": words}), folder, max_rows_per_file=count)
    return folder


@pytest.mark.skipif(os.name != "posix", reason="a script of a shell")
def test_a_script_that_reads_after_its_task_has_ended(
    spark: Any, pushdown: Callable[..., None], halves: str, tmp_path: Path
) -> None:
    """Spark's thread that feeds a script goes on with the batch of a task that is over."""
    pushdown(True, False)
    frame = spark.read.format("lance").option("batch_size", BATCH).load(halves)
    frame.createOrReplaceTempView("halves")
    script = f"head -c 24600000 > /dev/null; sleep 0.25; echo 1; echo 2; cat > {tmp_path}/out.$$"
    for _ in range(4):
        query = f"SELECT TRANSFORM(size(v), w) USING '{script}' AS (x) FROM halves LIMIT 1"
        assert len(spark.sql(query).collect()) == 1
    time.sleep(1)
    lines = [
        line for file in tmp_path.glob("out.*") for line in file.read_bytes().split(b"\n")[1:-1]
    ]
    assert lines
    wrong = [line for line in lines if not re.fullmatch(rb"(16|-1|\\N)[\t\x01]\d+:(ab)+", line)]
    assert not wrong, wrong[:3]
