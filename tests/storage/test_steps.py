"""The steps of reads from a store: the longest chain of requests that wait for each other. The
table in docs/reference/requests.md has the most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.scan.indexes.cache import CACHE
from lance_spark.storage.kept_ranges import KEPT
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.proxy import FaultProxy, spoiling

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "requests.md"
#: Seconds that each request takes at least. Requests of one step begin within it.
DELAY = 0.1
FRAGMENTS = 6
#: Rows of a fragment. Small fragments are decoded together; each is longer than its end that is
#: read when it is opened.
SIZES = ROWS, SMALL_ROWS = 20_000, 5_000
_ROW = re.compile(r"\| (?P<what>[^|]+) \| (?P<steps>\d+) \| (?P<again>\d+) \| (?P<more>\d+) \|")


def budget() -> dict[str, tuple[int, int, int]]:
    """Most steps in a process that has read nothing, of another dataset after that, and how many
    more than pylance's, by read.
    """
    result = (_ROW.fullmatch(line.strip()) for line in DOCS.read_text().splitlines())
    return {
        row["what"].strip(): (int(row["steps"]), int(row["again"]), int(row["more"]))
        for row in result
        if row is not None
    }


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


@pytest.fixture(scope="module")
def tables(aws: Aws, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The URIs of two tables, by the rows of a fragment."""
    return {rows: uploaded(aws, tmp_path_factory.mktemp("steps"), rows) for rows in SIZES}


def uploaded(aws: Aws, folder: Path, rows: int) -> str:
    """Write a table by pylance, and upload it; return its URI."""
    path = folder / f"rows{rows}"
    count = FRAGMENTS * rows
    rng = np.random.default_rng(0)
    data = {
        "x": np.arange(count),
        "r": rng.integers(0, 1000, count),
        "s": [f"a row with the number {n * 7919 % 1000003:09d}" for n in range(count)],
        "g": [f"g{n}" for n in rng.integers(0, 100, count)],
    }
    dataset = lance.write_dataset(pa.table(data), str(path), max_rows_per_file=rows)
    if rows == ROWS:
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
    for _ in range(3):
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


def measured(slow: FaultProxy, read: Callable[[Any], object], opened: Callable[[], object]) -> int:
    """Return the steps of a read."""
    slow.clear()
    slow.delay(DELAY)
    read(opened())
    count = steps(slow.spans)
    slow.clear()
    return count


def test_the_documentation_names_what_is_measured() -> None:
    assert set(budget()) == set(READS)
