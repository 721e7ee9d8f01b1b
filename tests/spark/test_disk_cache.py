"""Spark's workers share what describes the files of a table: a second query reads none of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.spark import python_process
from lance_spark.spark.jvm.enable import CONF
from lance_spark.storage import disk_ranges
from tests.support.spark.settings import restored
from tests.support.stores.aws import BUCKET, KEY, REGION, SECRET, Aws, serving

ROWS, FRAGMENTS = 120_000, 12
QUERY = "g = 'word 1' and y > 0.5"


class Table(NamedTuple):
    """A table of the server, and its options of Spark."""

    aws: Aws
    uri: str
    options: dict[str, str]

    def query(self, spark: Any, tasks: int, **options: str) -> int:
        """Count rows by some tasks at the same time."""
        more = {"filter": QUERY, "target_rows_per_partition": str(ROWS // tasks)}
        frame = spark.read.format("lance").options(**{**self.options, **more, **options})
        frame = frame.load(self.uri)
        return len(frame.select("x").collect())

    def repeated(self, spark: Any, tasks: int, **options: str) -> list[tuple[str, str]]:
        """Return requests of a query that are not for manifests or values."""
        start = len(self.aws.ranges)
        self.query(spark, tasks, **options)
        found = []
        for text, byte_range in self.aws.ranges[start:]:
            path = text.split()[1].partition("?")[0].removeprefix(f"/{BUCKET}/")
            if byte_range is not None and "/data/" in path:
                last = int(byte_range.rpartition("-")[2])
                size = self.aws.s3.head_object(Bucket=BUCKET, Key=path)["ContentLength"]
                if last + 1 == size:
                    found.append((path, byte_range))
            elif "/data/" in path or "/_deletions/" in path or "/_indices/" in path:
                found.append((path, str(byte_range)))
        return found


@pytest.fixture(scope="module")
def table(spark: Any) -> Iterator[Table]:
    # Other tests may have turned push-down on, by which the driver answers such queries.
    with restored(spark, CONF), serving() as aws:
        spark.conf.set(CONF, "false")
        uri = f"s3://{BUCKET}/shared"
        rng = np.random.default_rng(1)
        words = [f"word {number}" for number in range(3)]
        rows = pa.table(
            {
                "x": range(ROWS),
                "g": pa.array(words).take(rng.integers(0, 3, ROWS)),
                "y": rng.random(ROWS),
            }
        )
        dataset = lance.write_dataset(
            rows, uri, max_rows_per_file=ROWS // FRAGMENTS, storage_options=aws.theirs
        )
        # Each of its pages, and the sets of rows, are longer than ranges that a process keeps.
        dataset.create_scalar_index("g", "BITMAP")
        dataset.delete("x % 1000 = 7")
        options = {
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_region": REGION,
            "aws_endpoint": aws.endpoint,
        }
        yield Table(aws, uri, {f"storage_options.{name}": text for name, text in options.items()})


def folder_of(spark: Any) -> Path:
    """Return the folder that Spark removes with the executor."""
    (folder,) = Path(spark.sparkContext.getConf().get("spark.local.dir")).glob("blockmgr-*")
    return folder


def settled(folder: Path) -> int:
    """Wait until workers have written all entries; return how many there are."""
    count = -1
    while count != (now := len(list(folder.glob("lance_spark-*/??/[!.]*")))):
        count = now
        time.sleep(0.3)
    return count


def test_a_second_query_reads_no_footer_and_no_index_page(spark: Any, table: Table) -> None:
    first = table.repeated(spark, 1)
    assert {path.split("/")[1] for path, _ in first} == {"data", "_deletions", "_indices"}
    assert len(first) > 2 * FRAGMENTS
    count = settled(folder_of(spark))
    # Two workers run the tasks, of which one has read nothing.
    for _ in range(2):
        assert table.repeated(spark, FRAGMENTS) == []
    # Footers and deletion files at least.
    assert count >= 2 * FRAGMENTS


def test_counts_list_the_versions_once_for_a_frame(spark: Any, table: Table) -> None:
    """Without push-down, a frame keeps the version of its first query: the second lists nothing."""

    def listings(frame: Any) -> int:
        with table.aws.counted() as requests:
            assert frame.count() == ROWS - ROWS // 1000
            return len([request for request in requests if "list-type" in request])

    for _ in range(2):
        frame = spark.read.format("lance").options(**table.options).load(table.uri)
        assert [listings(frame), listings(frame)] == [1, 0]


def test_nothing_is_kept_if_it_is_off(spark: Any, table: Table) -> None:
    before = settled(folder_of(spark))
    # For processes it is another store, of which they know nothing.
    options = {"storage_options.aws_region": "eu-central-1"}
    assert table.repeated(spark, 1, **options, **{"storage_options.disk_cache": "off"})
    assert settled(folder_of(spark)) == before


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"spark.app.id": "a"}, "/local/first"),
        ({"spark.app.id": "a", "spark.io.encryption.enabled": "false"}, "/local/first"),
        ({"spark.app.id": "a", "spark.io.encryption.enabled": "TRUE"}, None),
        # Of a job that is no query, the settings are unknown.
        ({}, None),
        (None, None),
    ],
)
def test_where_workers_keep_ranges(
    properties: dict[str, str] | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark import TaskContext

    # pyspark keeps the first one that is made, as that of a task.
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    context = None
    if properties is not None:
        context = TaskContext()
        context._localProperties = properties
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    monkeypatch.setattr(python_process, "_is_shared", {"known": False})
    monkeypatch.setattr(disk_ranges._Process, "default", None)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/local/first,/local/second")
    python_process._share_ranges()
    assert disk_ranges._Process.default == expected
