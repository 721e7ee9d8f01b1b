"""Reads of rows of a MemWAL by the option `fresh`."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidOptionError
from lance_spark.spark.options.feed import FeedOptions
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.read.reader import unread_rows
from lance_spark.spark.table import LanceTable
from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.metrics import counted

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=KEY),
        pa.field("v", pa.float32()),
        pa.field("s", pa.string()),
    ]
)


def rows_of(ids: list[int], text: str) -> pa.Table:
    values = {"id": ids, "v": [float(number) for number in ids], "s": [text] * len(ids)}
    return pa.table(values, schema=SCHEMA)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 40 rows in 4 fragments, and a MemWAL with an SSTable and WAL entries."""
    path = str(tmp_path_factory.mktemp("fresh") / "t.lance")
    dataset = lance.write_dataset(rows_of(list(range(40)), "base"), path, max_rows_per_file=10)
    dataset.initialize_mem_wal(unsharded=True)
    shard = str(uuid.uuid4())
    with dataset.mem_wal_writer(shard, max_wal_flush_interval_ms=5) as writer:
        writer.put(rows_of([3, 5, 100], "sstable"))
        writer.delete(pa.table({"id": pa.array([7], pa.int64())}))
    writer = dataset.mem_wal_writer(shard, max_wal_flush_interval_ms=5)
    writer.put(rows_of([5, 101], "log"))
    writer.delete(pa.table({"id": pa.array([100], pa.int64())}))
    writer.put(rows_of([7], "log"))
    return path


EXPECTED = dict.fromkeys(range(40), "base") | {3: "sstable", 5: "log", 7: "log", 101: "log"}


def texts(frame: Any) -> dict[int, str]:
    rows = frame.select("id", "s").collect()
    assert len({row.id for row in rows}) == len(rows)
    return {row.id: row.s for row in rows}


@pytest.mark.parametrize("driver_read_bytes", [0, 1 << 27])
def test_a_fresh_read_has_the_newest_rows(spark: Any, path: str, driver_read_bytes: int) -> None:
    frame = (
        spark.read.format("lance")
        .option("fresh", "true")
        .option("driver_read_bytes", driver_read_bytes)
        .load(path)
    )
    assert texts(frame) == EXPECTED
    assert frame.count() == len(EXPECTED)
    assert texts(frame.where("s = 'base' AND v < 9")) == dict.fromkeys((0, 1, 2, 4, 6, 8), "base")
    # A row that does not meet the condition hides an older one that does.
    assert frame.where("s = 'sstable'").count() == 1
    assert frame.where("id IN (5, 7, 100, 101)").count() == 3
    counts = {row.s: row["count"] for row in frame.groupBy("s").count().collect()}
    assert counts == {"base": 37, "sstable": 1, "log": 3}
    assert frame.agg({"id": "max"}).first()[0] == 101
    assert [row.id for row in frame.orderBy(frame.id.desc()).limit(2).collect()] == [101, 39]
    assert len(frame.limit(41).collect()) == 41
    assert len(frame.limit(7).collect()) == 7
    assert frame.where("s <> 'base'").limit(3).count() == 3
    assert sorted(row.id for row in frame.offset(39).collect()) != []


def test_a_plain_read_has_the_rows_of_the_table(spark: Any, path: str) -> None:
    assert texts(spark.read.format("lance").load(path)) == dict.fromkeys(range(40), "base")


@pytest.mark.usefixtures("pushed")
def test_explain_shows_what_is_read(spark: Any, path: str) -> None:
    frame = spark.read.format("lance").option("fresh", "true").load(path)
    frame.collect()
    assert "fresh=[1 SSTables, 3 WAL entries]" in frame._jdf.queryExecution().toString()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("version", "1"),
        ("tag", "t"),
        ("timestamp", "2030-01-01T00:00:00Z"),
        ("fragment_ids", "0"),
        ("read_change_feed", "true"),
    ],
)
def test_options_that_a_fresh_read_excludes(spark: Any, path: str, option: str, value: str) -> None:
    with pytest.raises(Exception, match=f"options fresh and {option} exclude each other"):
        spark.read.format("lance").options(fresh="true", **{option: value}).load(path).collect()


def test_rows_of_a_mem_wal_have_no_addresses(spark: Any, path: str) -> None:
    frame = spark.read.format("lance").options(fresh="true", with_row_id="true").load(path)
    with pytest.raises(Exception, match="_rowid cannot be used in a fresh read"):
        frame.collect()


def test_sql_reads_fresh_rows(spark: Any, path: str, tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "fresh_rows", tmp_path)
    shutil.copytree(path, catalog.root / "t.lance")
    assert catalog.sql("SELECT count(*) FROM CAT.t WITH ('fresh' = 'true')") == [(len(EXPECTED),)]
    assert catalog.sql("SELECT s FROM CAT.t WITH ('fresh' = 'true') WHERE id = 101") == [("log",)]
    assert catalog.sql("SELECT count(*) FROM CAT.t") == [(40,)]
    view = f"CREATE TEMPORARY VIEW fresh_view USING lance OPTIONS (path '{path}', fresh 'true')"
    spark.sql(view)
    assert spark.sql("SELECT count(*), max(id) FROM fresh_view").collect() == [(len(EXPECTED), 101)]
    with pytest.raises(Exception, match="options fresh and version exclude each other"):
        catalog.sql("SELECT count(*) FROM CAT.t WITH ('fresh' = 'true', 'version' = '1')")
    joined = catalog.sql(
        "SELECT count(*) FROM CAT.t WITH ('fresh' = 'true') n JOIN CAT.t o ON n.id = o.id "
        "WHERE n.s <> o.s"
    )
    assert joined == [(3,)]


def test_a_plain_read_says_that_rows_are_not_read(path: str, tmp_path: Path) -> None:
    def warning(path: str, **options: Any) -> str | None:
        return unread_rows(lance_spark.open_dataset(path), ReadOptions(path, **options))

    text = warning(path)
    assert text is not None
    assert "the MemWAL of the table has rows that are not in the table yet" in text
    for options in ({"fresh": False}, {"fresh": True}, {"version": 1}, {"tag": "t"}):
        assert warning(path, **options) is None
    other = str(tmp_path / "o.lance")
    lance.write_dataset(rows_of([1], "base"), other)
    assert warning(other) is None
    lance.dataset(other).initialize_mem_wal(unsharded=True)
    assert warning(other) is None


@pytest.mark.usefixtures("pushed")
def test_metrics_of_a_fresh_read(spark: Any, path: str) -> None:
    frame = spark.read.format("lance").options(fresh="true", driver_read_bytes=0).load(path)
    assert len(frame.where("v < 1000").collect()) == len(EXPECTED)
    frame = frame.where("v < 1000")
    frame.collect()
    assert counted(frame, "numSsTablesRead") == [1]
    assert counted(frame, "numWalEntriesRead") == [3]


def test_streams_and_tables_do_not_take_the_option(path: str) -> None:
    options = ReadOptions.parse({"path": path, "fresh": "true"})
    with pytest.raises(InvalidOptionError, match="option fresh applies to reads of one version"):
        FeedOptions.parse(options).of_stream(options)
    with pytest.raises(InvalidOptionError, match="option fresh applies to reads, not to a table"):
        LanceTable.forPath(None, path, fresh="true")
