"""The steps of reads and changes on a store: the longest chain of requests that wait for each other.
The table in docs/reference/requests.md has the most.
"""

from __future__ import annotations

import json
import pickle
import re
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, NullType, StructField, StructType

import lance_spark
from lance_spark.indexes.cache import CACHE
from lance_spark.spark.datasource import LanceDataSource
from lance_spark.storage.kept_ranges import KEPT
from tests.support.spark.requests import col, lit, op, parsed
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.proxy import FaultProxy, spoiling

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "requests.md"
#: Seconds that each request takes at least. Requests of one step begin within it.
DELAY = 0.1
FRAGMENTS = 6
#: Rows of a fragment. Small fragments are decoded together; each is longer than its end that is
#: read when it is opened.
SIZES = ROWS, SMALL_ROWS = 20_000, 5_000
_ROW = re.compile(r"\| (?P<what>[^|]+) \| (?P<steps>\d+) \| (?P<again>\d+|-) \| (?P<more>-?\d+) \|")
_SPARK_ROW = re.compile(r"\| (?P<what>[^|]+) \| (?P<steps>\d+) \|")


def budget() -> dict[str, tuple[int, int, int]]:
    """Most steps in a process that has read nothing, of another dataset after that, and how many
    more than pylance's, by read or change.
    """
    result = (_ROW.fullmatch(line.strip()) for line in DOCS.read_text().splitlines())
    return {
        row["what"].strip(): (
            int(row["steps"]),
            0 if row["again"] == "-" else int(row["again"]),
            int(row["more"]),
        )
        for row in result
        if row is not None
    }


def spark_budget() -> dict[str, int]:
    """Most steps of a query of Spark that the driver reads, with the load of the DataFrame."""
    found = (_SPARK_ROW.fullmatch(line.strip()) for line in DOCS.read_text().splitlines())
    return {row["what"].strip(): int(row["steps"]) for row in found if row is not None}


#: The reads of the table with small fragments, and those of the other one.
SMALL: dict[str, Callable[[Any], object]] = {
    "scan all columns of small fragments": lambda d: d.to_table(),
    "scan small fragments by a filter": lambda d: d.to_table(["s"], filter="r = 7"),
}
READS: dict[str, Callable[[Any], object]] = {
    **SMALL,
    "scan all columns": lambda d: d.to_table(),
    "scan by a filter": lambda d: d.to_table(["s"], filter="r = 7"),
    "take rows of all fragments": lambda d: d.take([*range(5, FRAGMENTS * ROWS - 60, ROWS)]),
    "look up a value in a B-tree": lambda d: d.to_table(["r"], filter="x = 70001"),
    "look up a value in a bitmap": lambda d: d.to_table(["x"], filter="g = 'g7'"),
}


#: Requests of Spark's optimizer. Spark adds the test for null to each comparison.
QUERIES: dict[str, dict[str, Any]] = {
    "count all rows": {"aggregates": [{"op": "count_star"}]},
    **{
        name: {"filters": [op("is_not_null", col(column)), op("=", col(column), lit(*value))]}
        for name, column, value in (
            ("filter rows", "r", (7, "bigint")),
            ("filter a column with a B-tree", "x", (70001, "bigint")),
            ("filter a column with a bitmap", "g", ("g7", "string")),
        )
    },
}


def query(table: str, options: dict[str, Any], request: dict[str, Any]) -> bool:
    """Load a DataFrame, and plan a query as Spark does; return whether the driver reads it."""
    stored = {f"storage_options.{name}": value for name, value in options.items()}
    source = LanceDataSource(CaseInsensitiveDict({"path": table, **stored}))
    schema = source.schema()
    wanted = StructType([schema["x"]])
    if "aggregates" in request:
        wanted = StructType([StructField("agg0", LongType())])
    wanted.add(StructField("__lance_request", NullType(), True, {"request": json.dumps(request)}))
    reply, *_ = source.reader(wanted).partitions()
    header, _ = parsed(pickle.dumps(reply))
    return header["data"] == "rows"


class Client(NamedTuple):
    """A package with the URI of a table."""

    package: Any
    uri: str
    options: dict[str, Any]

    def open(self) -> Any:
        if self.package is lance:
            return lance.dataset(self.uri, storage_options=self.options)
        return lance_spark.open_dataset(self.uri, storage_options=self.options)

    def append(self, new: pa.Table) -> None:
        options = self.options
        self.package.write_dataset(new, self.uri, mode="append", storage_options=options)

    def update(self) -> None:
        value = "'new'" if self.package is lance else "new"
        self.open().update({"s": value}, "x = 7")

    def merge(self, new: pa.Table) -> None:
        merge = self.open().merge_insert("x").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(new)

    def compact(self) -> None:
        dataset = self.open()
        (dataset.optimize if self.package is lance else dataset).compact_files()


#: The changes of a table of small fragments.
CHANGES: dict[str, Callable[[Client], object]] = {
    "append a file": lambda c: c.append(rows(1)),
    "delete a row": lambda c: c.open().delete("x = 7"),
    "update a row": Client.update,
    "merge rows": lambda c: c.merge(rows(2, FRAGMENTS * SMALL_ROWS - 1)),
    "create a B-tree index": lambda c: c.open().create_scalar_index("r", "BTREE"),
    "compact": Client.compact,
    "make a tag": lambda c: c.open().tags.create("t", 1),
    "make a branch": lambda c: c.open().create_branch("b"),
}


def rows(count: int, start: int = 0) -> pa.Table:
    """Return rows of the tables."""
    rng = np.random.default_rng(0)
    numbers = range(start, start + count)
    return pa.table(
        {
            "x": np.arange(start, start + count),
            "r": rng.integers(0, 1000, count),
            "s": [f"a row with the number {n * 7919 % 1000003:09d}" for n in numbers],
            "g": [f"g{n}" for n in rng.integers(0, 100, count)],
        }
    )


@pytest.fixture(scope="module")
def tables(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The URIs of two tables, by the rows of a fragment."""
    return {size: uploaded(aws, tmp_path_factory.mktemp("steps"), size) for size in SIZES}


def uploaded(aws: Aws, folder: Path, size: int) -> str:
    """Write a table by pylance, and upload it; return its URI."""
    path = folder / f"rows{size}"
    data = rows(FRAGMENTS * size)
    dataset = lance.write_dataset(data, str(path), max_rows_per_file=size)
    if size == ROWS:
        dataset.create_scalar_index("x", "BTREE")
        dataset.create_scalar_index("g", "BITMAP")
    dataset.delete("x % 5000 = 3")
    for file in path.rglob("*"):
        if file.is_file():
            key = f"steps/{file.relative_to(folder).as_posix()}"
            aws.s3.put_object(Bucket=BUCKET, Key=key, Body=file.read_bytes())
    return f"s3://{BUCKET}/steps/{path.name}"


@pytest.fixture(scope="module")
def slow(aws: Aws) -> Iterator[FaultProxy]:
    with spoiling(aws.endpoint) as proxy:
        yield proxy


def steps(spans: list[tuple[float, float]]) -> int:
    """Return the length of the longest chain of requests, each sent after the answer to another."""
    count, end = 0, 0.0
    for answered, sent in sorted((stop, start) for start, stop in spans):
        if sent >= end:
            count, end = count + 1, answered
    return count


@pytest.mark.parametrize("name", READS)
def test_reads(aws: Aws, tables: dict[int, str], slow: FaultProxy, name: str) -> None:
    ours = {**aws.ours, "endpoint_url": slow.endpoint}
    theirs = {**aws.theirs, "aws_endpoint": slow.endpoint}
    table = tables[SMALL_ROWS if name in SMALL else ROWS]
    most, most_again, more = budget()[name]
    # On a busy machine, requests of one step can arrive late.
    for _ in range(5):
        KEPT.clear()
        CACHE.clear()
        first, again, pylance = (
            measured(slow, READS[name], opened)
            for opened in (
                lambda: lance_spark.open_dataset(table, storage_options=ours),
                lambda: lance_spark.open_dataset(table, storage_options=ours),
                lambda: lance.dataset(table, storage_options=theirs),
            )
        )
        if first <= min(most, pylance + more) and again <= most_again:
            return
    pytest.fail(f"{first} steps, {again} the second time, {pylance} of pylance")


@pytest.mark.parametrize("name", QUERIES)
def test_queries_of_spark(aws: Aws, tables: dict[int, str], slow: FaultProxy, name: str) -> None:
    options = {**aws.theirs, "aws_endpoint": slow.endpoint}
    counts = []

    def read(_: object) -> None:
        assert query(tables[ROWS], options, QUERIES[name])

    for _ in range(5):
        KEPT.clear()
        CACHE.clear()
        counts.append(measured(slow, read, lambda: None))
        if counts[-1] <= spark_budget()[name]:
            return
    pytest.fail(f"{counts} steps")


def test_a_filter_of_nulls_is_left_to_tasks(aws: Aws, tables: dict[int, str]) -> None:
    """Spark adds such filters to joins. The driver does not read a part of the rows in vain."""
    KEPT.clear()
    with aws.counted() as requests:
        filters = [op("is_not_null", col("r"))]
        assert not query(tables[SMALL_ROWS], aws.theirs, {"filters": filters})
    assert len(requests) == 3


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CHANGES)
def test_changes(aws: Aws, tables: dict[int, str], slow: FaultProxy, name: str) -> None:
    ours = {**aws.ours, "endpoint_url": slow.endpoint}
    theirs = {**aws.theirs, "aws_endpoint": slow.endpoint}
    most, _, more = budget()[name]
    change = CHANGES[name]
    # The test whether a server honours conditions is not measured.
    lance_spark.write_dataset(
        rows(1), copied(aws, tables[SMALL_ROWS]) + "new", storage_options=ours
    )
    for _ in range(5):
        count, of_pylance = (
            measured(
                slow, change, partial(Client, package, copied(aws, tables[SMALL_ROWS]), options)
            )
            for package, options in ((lance_spark, ours), (lance, theirs))
        )
        if count <= min(most, of_pylance + more):
            return
    pytest.fail(f"{count} steps, {of_pylance} of pylance")


def copied(aws: Aws, table: str) -> str:
    """Return the URI of a new copy of a table."""
    prefix = table.removeprefix(f"s3://{BUCKET}/")
    name = f"steps/{uuid.uuid4().hex}"
    listed = aws.s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/")
    for item in listed["Contents"]:
        key = item["Key"].replace(prefix, name, 1)
        aws.s3.copy_object(
            Bucket=BUCKET, Key=key, CopySource={"Bucket": BUCKET, "Key": item["Key"]}
        )
    return f"s3://{BUCKET}/{name}"


def measured(slow: FaultProxy, read: Callable[[Any], object], opened: Callable[[], object]) -> int:
    """Return the steps of a read."""
    slow.clear()
    slow.delay(DELAY)
    read(opened())
    count = steps(slow.spans)
    slow.clear()
    return count


def test_the_documentation_names_what_is_measured() -> None:
    assert set(budget()) == {*READS, *CHANGES}
    assert set(spark_budget()) == set(QUERIES)
