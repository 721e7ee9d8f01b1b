"""Streams that read a table: ends of batches, their rows, and removed versions."""

from __future__ import annotations

import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

import lance_spark
from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_spark.spark.options.feed import FeedOptions
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.streaming import plan as stream_plan
from lance_spark.spark.streaming import reader as stream_reader
from lance_spark.spark.streaming.plan import BEGINNING, Limit, StreamPlan, StreamPosition
from lance_spark.spark.streaming.reader import LanceStreamReader
from lance_spark.spark.types.mapping import to_spark_schema
from lance_spark.table.open import open_table
from tests.spark.table.tables import typed_rows

Stream = Callable[..., list[tuple[Any, ...]]]
#: Small batches, if this release of Spark requests them.
FEW: dict[str, Any] = {"maxFragmentsPerTrigger": 3} if stream_reader.HAS_LIMITS else {}


def rows_of(first: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, stop), pa.int64())})


def make(uri: str, *, stable: bool = True) -> None:
    """Write version 1, with four fragments of ten rows."""
    lance_spark.write_dataset(
        rows_of(0, 40), uri, max_rows_per_file=10, enable_stable_row_ids=stable
    )


def append(uri: str, first: int, stop: int) -> None:
    lance_spark.write_dataset(rows_of(first, stop), uri, mode="append", max_rows_per_file=10)


def plan_of(uri: str, **options: bool) -> StreamPlan:
    return StreamPlan(open_table(uri), **options)


def newest(uri: str) -> int:
    return lance_spark.open_dataset(uri).version


def read(plan: StreamPlan, start: StreamPosition, end: StreamPosition) -> list[tuple[int, int]]:
    """Return what a batch reads: versions and numbers of rows."""
    return [
        (part.manifest.version, sum(fragment.num_rows for fragment in part.fragments))
        if part.changes is None
        else (part.manifest.version, part.changes.num_rows)
        for part in plan.parts(start, end)
    ]


def walk(plan: StreamPlan, start: StreamPosition, last: int, limit: Limit) -> list[StreamPosition]:
    places = [start]
    while (end := plan.next(places[-1], last, limit)) != places[-1]:
        places.append(end)
        assert len(places) < 50
    return places


def test_positions_are_texts_that_spark_compares() -> None:
    place = StreamPosition(7, 2, True)
    assert list(place.to_json().items()) == [("version", 7), ("index", 2), ("snapshot", True)]
    assert StreamPosition.parse(place.to_json()) == place
    place_of_transaction = StreamPosition(7, 2, True, "1 x.txn")
    assert place_of_transaction.to_json() == {**place.to_json(), "seen": "1 x.txn"}
    assert StreamPosition.parse(place_of_transaction.to_json()).seen == "1 x.txn"
    assert (place_of_transaction.last, StreamPosition(7).last, StreamPosition(7, 1).last) == (
        7,
        6,
        7,
    )
    valid = {"version": 1, "index": 0, "snapshot": False}
    for wrong in (
        None,
        {},
        {"version": 1},
        {**valid, "version": "1"},
        {**valid, "seen": 1},
        {**valid, "other": ""},
    ):
        with pytest.raises(InvalidInputError, match="new checkpointLocation"):
            StreamPosition.parse(wrong)


@pytest.mark.parametrize("limit", [Limit(), Limit(fragments=3), Limit(bytes=1)])
@pytest.mark.parametrize("feed", [False, True])
def test_batches_of_any_limit_read_everything_once(
    tmp_path: Path, limit: Limit, feed: bool
) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    lance.dataset(uri).delete("id = 3")
    append(uri, 40, 65)
    lance_spark.open_dataset(uri).compact_files(target_rows_per_fragment=20)
    last = newest(uri)
    append(uri, 65, 66)
    plan = plan_of(uri, change_feed=feed)
    places = walk(plan, BEGINNING, last + 1, limit)
    assert places[-1] == StreamPosition(last + 2)
    parts = [part for pair in pairwise(places) for part in read(plan, *pair)]
    assert sum(rows for _, rows in parts) == 65
    if limit == Limit():
        assert places[1:] == [StreamPosition(last + 2)]
    # Batches are the same if they are planned again.
    second_plan = plan_of(uri, change_feed=feed)
    assert parts == [part for pair in pairwise(places) for part in read(second_plan, *pair)]
    # From the first version on, a batch has the rows of each version, not the files of the
    # compaction.
    places = walk(plan_of(uri, change_feed=feed), StreamPosition(1), last + 1, limit)
    parts = [part for pair in pairwise(places) for part in read(plan, *pair)]
    deleted = 1 if feed else 0
    assert sum(rows for _, rows in parts) == 66 + deleted
    if limit.fragments and not feed:
        sizes = [sum(rows for _, rows in read(plan, *pair)) for pair in pairwise(places)]
        assert sizes == [30, 30, 6]


def test_a_snapshot_ends_its_batch_and_names_its_version(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    plan = plan_of(uri)
    end = plan.next(BEGINNING, 1, Limit())
    assert end == StreamPosition(2)
    append(uri, 40, 50)
    # A batch that was lost is planned with the same rows, although a newer version exists.
    assert read(plan_of(uri), BEGINNING, end) == [(1, 40)]
    half = plan_of(uri).next(BEGINNING, 1, Limit(fragments=3))
    assert half == StreamPosition(1, 3, True)
    assert read(plan_of(uri), BEGINNING, half) == [(1, 30)]
    assert read(plan_of(uri), half, StreamPosition(3)) == [(1, 10), (2, 10)]
    # Before Spark 4.2 the reader does not know where a batch begins.
    assert read(plan_of(uri), BEGINNING, StreamPosition(3)) == [(2, 50)]


@pytest.mark.parametrize("feed", [False, True])
def test_a_stream_that_lags_far_behind(
    tmp_path: Path, feed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "MOST_VERSIONS", 10)
    monkeypatch.setattr(stream_reader, "_TOGETHER", 3)
    monkeypatch.setattr(stream_plan, "_KEPT_FRAGMENTS", 8)
    uri = str(tmp_path / "t")
    make(uri)
    for number in range(12):
        append(uri, 40 + number, 41 + number)
        if number % 3 == 0:
            lance.dataset(uri).delete(f"id = {number}")
    if feed:
        lance.write_dataset(rows_of(0, 2), uri, mode="overwrite")
    append(uri, 90, 93)
    settings = {"path": uri, "startingVersion": "1", "readChangeFeed": str(feed)}
    options = ReadOptions.parse(settings)
    schema = StructType([StructField("id", LongType())])
    reader = LanceStreamReader(options, FeedOptions.parse(options), schema)
    last = newest(uri)
    limit = reader.getDefaultReadLimit() if stream_reader.HAS_LIMITS else None
    places = [reader.initialOffset()]
    numbers: list[int] = []
    while (end := reader.latestOffset(places[-1], limit)) != places[-1]:
        # Another copy of the reader plans the batch for itself.
        for partition in pickle.loads(pickle.dumps(reader)).partitions(places[-1], end):
            for batch in reader.read(partition):
                numbers += batch.column(0).to_pylist()
        places.append(end)
    assert [place["version"] for place in places] == [1, *range(11, last + 1, 10), last + 1]
    wanted = [*range(52), 90, 91, 92]
    if feed:
        gone = [0, 3, 6, 9]
        wanted += [*gone, *(number for number in range(52) if number not in gone), 0, 1]
    assert sorted(numbers) == sorted(wanted)


def test_versions_that_changed_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    append(uri, 40, 41)
    lance.dataset(uri).update({"id": "id + 1000"}, where="id = 7")
    append(uri, 41, 42)
    # The versions before the update are read first.
    assert plan_of(uri).next(StreamPosition(2), 4, Limit()) == StreamPosition(3)
    with pytest.raises(UnsupportedError, match=r"version 3 \(update\) changed rows .* skipChange"):
        plan_of(uri).next(StreamPosition(3), 4, Limit())
    plan = plan_of(uri, skip_changes=True)
    assert plan.next(StreamPosition(2), 4, Limit()) == StreamPosition(5)
    assert read(plan, StreamPosition(2), StreamPosition(5)) == [(2, 1), (3, 0), (4, 1)]
    plan = plan_of(uri, change_feed=True)
    assert read(plan, StreamPosition(2), StreamPosition(5)) == [(2, 1), (3, 2), (4, 1)]
    # An upsert that only inserts rows changes no row that was read.
    lance.dataset(uri).merge_insert("id").when_not_matched_insert_all().execute(rows_of(41, 45))
    assert read(plan_of(uri), StreamPosition(5), StreamPosition(6)) == [(5, 3)]
    lance.write_dataset(rows_of(0, 1), uri, mode="overwrite")
    with pytest.raises(UnsupportedError, match=r"version 6 \(overwrite\)"):
        plan_of(uri).next(StreamPosition(6), 6, Limit())
    lance.dataset(uri).delete("true")
    lance.write_dataset(rows_of(0, 2), uri, mode="overwrite")
    assert read(plan_of(uri), StreamPosition(7), StreamPosition(9)) == [(7, 0), (8, 2)]


def test_an_update_that_names_no_fields(tmp_path: Path) -> None:
    """pylance lets a user leave out the fields that an update in place has changed."""
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1, 2], "n": [1, 2]}), uri)
    dataset = lance.dataset(uri)
    fragment = dataset.get_fragments()[0]
    updated, _ = fragment.update_columns(pa.table({"id": [1], "n": [5]}), "id", "id")
    lance.LanceDataset.commit(uri, lance.LanceOperation.Update(updated_fragments=[updated]), 1)
    assert lance.dataset(uri).to_table()["n"].to_pylist() == [5, 2]
    with pytest.raises(UnsupportedError, match=r"version 2 \(update\) changed rows"):
        plan_of(uri).next(StreamPosition(2), 2, Limit())
    # As does an update that deletes rows.
    lance.dataset(uri).merge_insert("id").when_matched_delete().execute(pa.table({"id": [2]}))
    assert plan_of(uri).next(StreamPosition(3), 3, Limit()) == StreamPosition(4)


def test_removed_versions_are_an_error(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    for number in range(3):
        append(uri, 40 + number, 41 + number)
    lance_spark.open_dataset(uri).cleanup_old_versions(retain_versions=2)
    with pytest.raises(
        VersionNotFoundError, match=r"version 2, .* versions 3 to 4.*new checkpoint"
    ):
        plan_of(uri).next(StreamPosition(2), 4, Limit())
    # The transaction of an append says which rows it added.
    assert read(plan_of(uri), StreamPosition(3), StreamPosition(5)) == [(3, 1), (4, 1)]
    with pytest.raises(VersionNotFoundError, match="the table was recreated"):
        plan_of(uri).next(StreamPosition(9), 4, Limit())


def remade(uri: str, versions: int) -> None:
    """Replace a table by another table: the first version has ten rows, each other version one
    row.
    """
    shutil.rmtree(uri)
    lance_spark.write_dataset(rows_of(500, 510), uri)
    for number in range(versions - 1):
        append(uri, 510 + number, 511 + number)


@pytest.mark.parametrize("feed", [False, True])
@pytest.mark.parametrize("limit", [Limit(), Limit(fragments=3)])
def test_a_recreated_table_is_refused(tmp_path: Path, limit: Limit, feed: bool) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    append(uri, 40, 75)
    plan = plan_of(uri, change_feed=feed)
    places = walk(plan, BEGINNING, 2, limit)
    assert len(places) > 1
    remade(uri, 4)
    for start, end in pairwise(places):
        if not start.is_beginning:
            with pytest.raises(VersionNotFoundError, match="the table was recreated"):
                plan_of(uri, change_feed=feed).next(start, 4, limit)
        # A batch is planned again after a restart.
        with pytest.raises(VersionNotFoundError, match="the table was recreated"):
            read(plan_of(uri, change_feed=feed), start, end)
    for known in (plan, plan_of(uri, change_feed=feed)):
        with pytest.raises(VersionNotFoundError, match="the table was recreated"):
            known.next(places[-1], 4, limit)
    # Earlier releases did not record which version they had seen.
    assert plan_of(uri, change_feed=feed).next(StreamPosition(3), 4, Limit()) == StreamPosition(5)


@pytest.mark.parametrize("feed", [False, True])
@pytest.mark.parametrize("branch", [None, "b"])
def test_a_clone_in_place_of_the_table_is_refused(
    tmp_path: Path, branch: str | None, feed: bool
) -> None:
    """Its first version can have the number that the stream reads next, and has older rows, too."""
    source, uri = str(tmp_path / "s"), str(tmp_path / ("s" if branch else "t"))

    def opened() -> StreamPlan:
        return StreamPlan(open_table(uri, branch=branch), change_feed=feed)

    make(source)
    if branch:
        lance.dataset(source).create_branch(branch)
    else:
        make(uri)
    start = opened().next(BEGINNING, 1, Limit())
    assert start == StreamPosition(2)
    append(source, 40, 50)
    if branch:
        lance_spark.open_dataset(source).branches.delete(branch)
        lance.dataset(source).create_branch(branch)
    else:
        shutil.rmtree(uri)
        lance.dataset(source).shallow_clone(uri, 2)
    assert newest(str(open_table(uri, branch=branch).store.uri)) == 2
    with pytest.raises(VersionNotFoundError, match="the table was recreated"):
        opened().next(start, 2, Limit())
    with pytest.raises(VersionNotFoundError, match="the table was recreated"):
        read(opened(), start, StreamPosition(3))
    # Streams that begin with it read it.
    assert read(opened(), BEGINNING, opened().next(BEGINNING, 2, Limit())) == [(2, 50)]
    rows = 0 if branch else 50
    assert read(opened(), StreamPosition(2), StreamPosition(3)) == [(2, rows)]


def test_a_long_stream_of_changes_keeps_little_in_memory(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    plan = plan_of(uri, change_feed=True)
    position = StreamPosition(1)
    for number in range(40, 45):
        append(uri, number, number + 1)
        end = plan.next(position, newest(uri), Limit())
        assert plan.same_ids(position.version, open_table(uri).manifest)
        plan.forget(end)
        position = end
    assert len(plan._kept_ids) <= 1
    assert len(plan._parts) <= 1


def test_names_of_another_case_in_older_versions(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    append(uri, 40, 41)
    lance.dataset(uri).alter_columns({"path": "id", "name": "number"})
    options = ReadOptions.parse({"path": uri, "startingVersion": "2"})
    for name in ("number", "NUMBER"):
        schema = StructType([StructField(name, LongType())])
        reader = LanceStreamReader(options, FeedOptions.parse(options), schema)
        (part,) = reader.partitions(reader.initialOffset(), StreamPosition(3).to_json())
        assert [batch.to_pydict() for batch in reader.read(part)] == [{name: [40]}]


def cast_to_long(uri: str) -> None:
    lance.dataset(uri).alter_columns({"path": "n", "data_type": pa.int64()})


def add_child(uri: str) -> None:
    field = pa.field("p", pa.struct([("y", pa.int32())]))
    lance_spark.open_dataset(uri).add_columns(pa.schema([field]))


def rename_child(uri: str) -> None:
    lance.dataset(uri).alter_columns({"path": "p.x", "name": "z"})


@pytest.mark.parametrize(
    ("change", "columns", "row"),
    [
        (cast_to_long, ["long", "x"], {"n": 1, "p": {"x": 1}}),
        (add_child, ["integer", "x", "y"], {"n": 1, "p": {"x": 1, "y": None}}),
        (rename_child, ["integer", "z"], {"n": 1, "p": {"z": 1}}),
        (rename_child, ["integer", "x"], {"n": 1, "p": {"x": 1}}),
    ],
    ids=["cast", "new child", "renamed child", "old name of a child"],
)
def test_columns_that_changed_before_a_version_was_read(
    tmp_path: Path, change: Callable[[str], None], columns: list[str], row: dict[str, Any]
) -> None:
    """A query that was started before, or after the change, reads the rows of versions before it."""
    uri = str(tmp_path / "t")
    fields = [("n", pa.int32()), ("p", pa.struct([("x", pa.int32())]))]
    rows = pa.table({"n": [1], "p": [{"x": 1}]}, schema=pa.schema(fields))
    lance.write_dataset(rows, uri)
    change(uri)
    options = ReadOptions.parse({"path": uri, "startingVersion": "1"})
    dtype, *children = columns
    nested = StructType([StructField(name, IntegerType()) for name in children])
    schema = StructType().add("n", dtype).add("p", nested)
    reader = LanceStreamReader(options, FeedOptions.parse(options), schema)
    (part,) = reader.partitions(reader.initialOffset(), StreamPosition(2).to_json())
    assert [batch.to_pylist() for batch in reader.read(part)] == [[row]]


def read_by_stream(uri: str, schema: StructType) -> list[dict[str, Any]]:
    """Return the rows of all versions, as a stream with the columns of `schema` reads them."""
    options = ReadOptions.parse({"path": uri, "startingVersion": "1"})
    reader = LanceStreamReader(options, FeedOptions.parse(options), schema)
    end = StreamPosition(newest(uri) + 1).to_json()
    parts = reader.partitions(reader.initialOffset(), end)
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("cloned", [False, True])
def test_a_time_before_the_first_version_of_a_branch_or_clone(tmp_path: Path, cloned: bool) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    append(uri, 40, 41)
    dataset = lance_spark.open_dataset(uri)
    if cloned:
        made = dataset.shallow_clone(str(tmp_path / "clone"), dataset.version)
    else:
        made = dataset.create_branch("side")
    append(made.uri, 50, 51)
    first = lance_spark.open_dataset(made.uri).versions()[0].version
    options = ReadOptions.parse({"path": made.uri, "startingTimestamp": "2020-01-01T00:00:00Z"})
    schema = StructType([StructField("id", LongType())])
    reader = LanceStreamReader(options, FeedOptions.parse(options), schema)
    assert StreamPosition.parse(reader.initialOffset()) == StreamPosition(first)
    lance_spark.open_dataset(made.uri).cleanup_old_versions(retain_versions=1)
    reader = LanceStreamReader(options, FeedOptions.parse(options), schema)
    if first > 1:
        with pytest.raises(VersionNotFoundError, match="earlier versions have been cleaned up"):
            reader.initialOffset()


def test_a_time_in_the_future_is_no_start(tmp_path: Path) -> None:
    """The stream would read versions before that time, and other ones after a restart."""
    uri = str(tmp_path / "t")
    make(uri)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for moment in (tomorrow.isoformat(), "9999-12-31T00:00:00Z"):
        options = ReadOptions.parse({"path": uri, "startingTimestamp": moment})
        reader = LanceStreamReader(options, FeedOptions.parse(options), StructType())
        with pytest.raises(InvalidOptionError, match=r"startingTimestamp: .* is in the future"):
            reader.initialOffset()
    # All versions are older.
    options = ReadOptions.parse({"path": uri, "startingTimestamp": datetime.now(UTC).isoformat()})
    reader = LanceStreamReader(options, FeedOptions.parse(options), StructType())
    assert StreamPosition.parse(reader.initialOffset()) == StreamPosition(2)


def test_the_first_time_of_all(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    options = ReadOptions.parse({"path": uri, "startingTimestamp": "0001-01-01T00:00:00Z"})
    reader = LanceStreamReader(options, FeedOptions.parse(options), StructType())
    assert StreamPosition.parse(reader.initialOffset()) == StreamPosition(1)


def test_fields_of_lists_that_changed_their_names(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    point = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    rows = pa.table({"p": pa.array([[{"x": 1, "y": 2}]], pa.list_(point))})
    lance.write_dataset(rows, uri)
    lance_spark.open_dataset(uri).drop_columns(["p.item.y"]).alter_columns(
        {"path": "p.item.x", "name": "y"}
    )
    schema = to_spark_schema(lance_spark.open_dataset(uri).schema)
    assert read_by_stream(uri, schema) == [{"p": [{"y": 1}]}]


def test_a_new_column_is_null_before_it_was_added(tmp_path: Path) -> None:
    """Its id, or its name, was that of another column when the rows were appended."""
    uri = str(tmp_path / "t")
    make(uri)
    lance.dataset(uri).add_columns({"dropped": "id + 1"})
    rows = pa.table({"id": [40], "dropped": [41]}, schema=lance.dataset(uri).schema)
    lance.write_dataset(rows, uri, mode="append")
    lance.dataset(uri).delete("id = 40")
    lance.dataset(uri).drop_columns(["dropped"])
    lance.dataset(uri).add_columns({"added": "id * 2"})
    lance.dataset(uri).alter_columns({"path": "id", "name": "old"})
    lance.dataset(uri).add_columns({"id": "old"})
    schema = StructType([StructField("added", LongType()), StructField("id", LongType())])
    assert read_by_stream(uri, schema)[-1] == {"added": None, "id": None}
    assert read_by_stream(uri, StructType([StructField("id", LongType())]))[-1] == {"id": None}


def test_a_query_stops_at_a_version_without_its_columns(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    append(uri, 40, 41)
    lance.dataset(uri).alter_columns({"path": "id", "name": "number"})
    lance.write_dataset(pa.table({"number": [41]}), uri, mode="append")
    ends = [StreamPosition(version).to_json() for version in (2, 3, 4, 5)]

    def reader(name: str, **settings: str) -> LanceStreamReader:
        options = ReadOptions.parse({"path": uri, **settings})
        schema = StructType([StructField(name, LongType())])
        return LanceStreamReader(options, FeedOptions.parse(options), schema)

    running = reader("id")
    (part,) = running.partitions(ends[0], ends[1])
    assert [batch.to_pydict() for batch in running.read(part)] == [{"id": [40]}]
    with pytest.raises(SchemaMismatchError, match="no column id"):
        running.partitions(ends[1], ends[3])
    started = reader("number")
    (part,) = started.partitions(ends[0], ends[3])
    assert [batch.to_pydict()["number"] for batch in started.read(part)] == [[40], [41]]
    with pytest.raises(SchemaMismatchError, match="remove the option filter"):
        reader("number", filter="number > 0").partitions(ends[0], ends[3])


def replace_column(uri: str) -> None:
    lance.dataset(uri).alter_columns({"path": "n", "name": "old"})
    lance.dataset(uri).add_columns({"n": "old + 1"})


def replace_child(uri: str) -> None:
    lance.dataset(uri).alter_columns({"path": "p.x", "name": "old"})
    new = pa.schema([pa.field("p", pa.struct([pa.field("x", pa.int32())]))])
    lance.dataset(uri).add_columns(new)


def exchange_names(uri: str) -> None:
    for old, new in (("n", "other"), ("m", "n"), ("other", "m")):
        lance.dataset(uri).alter_columns({"path": old, "name": new})


@pytest.mark.parametrize("change", [replace_column, replace_child, exchange_names])
@pytest.mark.parametrize("settings", [{}, {"readChangeFeed": "true"}])
def test_a_query_stops_if_another_column_gets_the_name_of_its_column(
    tmp_path: Path, change: Callable[[str], None], settings: dict[str, str]
) -> None:
    """It would read other values, or nulls, in versions from before the change."""
    uri = str(tmp_path / "t")
    fields = {"n": pa.int32(), "m": pa.int32(), "p": pa.struct([("x", pa.int32())])}
    rows = pa.table({"n": [1], "m": [2], "p": [{"x": 3}]}, schema=pa.schema(fields.items()))
    lance.write_dataset(rows, uri)
    options = ReadOptions.parse({"path": uri, "startingVersion": "1", **settings})
    schema = to_spark_schema(pa.schema(fields.items()))
    readers = [LanceStreamReader(options, FeedOptions.parse(options), schema) for _ in range(2)]
    ends = [StreamPosition(version).to_json() for version in (1, 2, 3)]
    (part,) = readers[0].partitions(ends[0], ends[1])
    assert [batch.to_pylist() for batch in readers[0].read(part)] == [rows.to_pylist()]
    lance.write_dataset(rows, uri, mode="append")
    change(uri)
    with pytest.raises(SchemaMismatchError, match=r"was renamed to .* start the query again"):
        readers[0].partitions(ends[1], ends[2])
    # The query is started again.
    assert len(readers[1].partitions(ends[1], ends[2])) == 1


def test_a_filter_by_a_column_whose_name_another_one_had(tmp_path: Path) -> None:
    """The other column would filter the rows of older versions."""
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1], "n": [9], "m": [0]}), uri)
    exchange_names(uri)
    schema = StructType([StructField("id", LongType())])
    text = {"filter": "n > 5", "columns": "id", "startingVersion": "1"}
    options = ReadOptions.parse({"path": uri, **text})
    reader = LanceStreamReader(options, FeedOptions.parse(options), schema)
    with pytest.raises(SchemaMismatchError, match=r"version 1 lacks .* remove the option filter"):
        reader.partitions(reader.initialOffset(), StreamPosition(2).to_json())
    # Versions from after the change are read.
    lance.write_dataset(pa.table({"id": [2, 3], "m": [9, 0], "n": [0, 9]}), uri, mode="append")
    (part,) = reader.partitions(StreamPosition(2).to_json(), StreamPosition(6).to_json())
    assert [batch.to_pydict() for batch in reader.read(part)] == [{"id": [3]}]


def test_a_dropped_column_and_a_new_one_of_its_name(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    rows = pa.table({"id": [1], "n": [2]})
    lance.write_dataset(rows, uri)
    options = ReadOptions.parse({"path": uri, "startingVersion": "1"})
    schema = to_spark_schema(rows.schema)
    reader = LanceStreamReader(options, FeedOptions.parse(options), schema)
    reader.latestOffset(reader.initialOffset())
    lance.dataset(uri).drop_columns(["n"])
    lance.dataset(uri).add_columns({"other": "id", "n": "id + 10"})
    (part,) = reader.partitions(reader.initialOffset(), StreamPosition(2).to_json())
    assert [batch.to_pylist() for batch in reader.read(part)] == [rows.to_pylist()]


def test_a_query_stops_at_a_version_with_a_wider_type(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    rows = pa.table({"n": pa.array([1], pa.int32())})
    lance.write_dataset(rows, uri)
    cast_to_long(uri)
    lance.write_dataset(rows.cast(pa.schema([("n", pa.int64())])), uri, mode="append")
    options = ReadOptions.parse({"path": uri})
    schema = StructType([StructField("n", IntegerType())])
    reader = LanceStreamReader(options, FeedOptions.parse(options), schema)
    with pytest.raises(SchemaMismatchError, match="int64 in the table and cannot be read as int32"):
        reader.partitions(StreamPosition(2).to_json(), StreamPosition(4).to_json())


def test_spark_that_calls_latest_offset_only(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    options = ReadOptions.parse({"path": uri})
    columns = StructType([StructField("id", LongType())])
    reader = LanceStreamReader(options, FeedOptions.parse(options), columns)
    end = reader.latestOffset()
    assert StreamPosition.parse(end) == StreamPosition(2)
    assert reader.latestOffset() == end
    assert LanceStreamReader(options, FeedOptions.parse(options), columns).latestOffset() == end
    append(uri, 40, 41)
    later = reader.latestOffset()
    assert sum(len(part.tasks) for part in reader.partitions(end, later)) == 1
    for versions in (3, 2, 1):
        remade(uri, versions)
        new_reader = LanceStreamReader(options, FeedOptions.parse(options), columns)
        assert new_reader.latestOffset() != later
        for known in (reader, new_reader):
            with pytest.raises(VersionNotFoundError, match="the table was recreated"):
                known.partitions(later, new_reader.latestOffset())


def test_an_error_of_a_query_begins_with_its_message(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    lance_spark.write_dataset(pa.table({"id": [1]}), path)
    cases = [
        ({"endingVersion": "1"}, {}, "a stream has no end"),
        ({"filter": "x > 1"}, {}, "filter 'x > 1'"),
        ({}, {"commit_massage": "a"}, "unknown option commit_massage; did you mean commit_message"),
    ]
    for number, (reading, writing, message) in enumerate(cases):
        stream = spark.readStream.format("lance").options(**reading).load(path)
        writer = stream.writeStream.format("lance").options(**writing)
        writer = writer.option("checkpointLocation", str(tmp_path / f"c{number}"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "o"))
        with pytest.raises(Exception, match=message) as raised:
            query.awaitTermination(120)
        text = str(raised.value)
        assert "Traceback" not in text
        assert re.search(r"lance_spark\.errors\.\w+: " + re.escape(str(tmp_path)), text)


def test_options_of_streams() -> None:
    def parse(**options: str) -> FeedOptions:
        parsed = ReadOptions.parse({"path": "/t", **options})
        return FeedOptions.parse(parsed).of_stream(parsed)

    assert (
        parse(maxFragmentsPerTrigger="3", max_bytes_per_trigger="9").max_fragments_per_trigger == 3
    )
    with pytest.raises(InvalidOptionError, match="a stream has no end"):
        parse(endingVersion="3")
    with pytest.raises(InvalidOptionError, match="option timestamp selects one version"):
        parse(timestamp="2026-01-01T00:00:00Z")
    with pytest.raises(InvalidOptionError, match="option fragment_ids applies to reads of one"):
        parse(fragment_ids="0")


@pytest.mark.skipif(stream_reader.HAS_LIMITS, reason="this Spark asks where batches end")
@pytest.mark.parametrize("option", ["maxFragmentsPerTrigger", "maxBytesPerTrigger"])
def test_small_batches_before_spark_4_2(option: str) -> None:
    options = ReadOptions.parse({"path": "/t", option: "3"})
    with pytest.raises(UnsupportedError, match=r"need Spark 4\.2"):
        LanceStreamReader(options, FeedOptions.parse(options), StructType())


@pytest.fixture
def columnar(request: pytest.FixtureRequest, spark: Any) -> Iterator[bool]:
    """Whether streams return columns; by default they do."""
    lance_spark.enable(spark)
    wanted = bool(getattr(request, "param", True))
    values = {"spark.lance.columnar.enabled": wanted, "spark.lance.pushdown.enabled": True}
    before = {name: spark.conf.get(name, "true") for name in values}
    for name, value in values.items():
        spark.conf.set(name, str(value).lower())
    yield wanted
    for name, text in before.items():
        spark.conf.set(name, text)


both_ways = pytest.mark.parametrize(
    "columnar", [True, False], ids=["columns", "rows"], indirect=True
)


def plan_text(query: Any) -> str:
    """Return the physical plan of the last batch of a query."""
    return str(query._jsq.streamingQuery().lastExecution().executedPlan().toString())


@pytest.fixture
def stream(spark: Any, tmp_path: Path, columnar: bool) -> Stream:
    """Run a query until no rows are left; return the rows that its sink got in this run."""

    def run(uri: str, checkpoint: str = "c", **options: object) -> list[tuple[Any, ...]]:
        collected: list[tuple[Any, ...]] = []

        def take(frame: Any, batch: int) -> None:
            collected.extend((batch, *row) for row in frame.collect())

        frame = spark.readStream.format("lance").options(**options).load(uri)
        writer = frame.writeStream.foreachBatch(take).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()
        try:
            assert query.awaitTermination(300)
            if collected:
                has_columns = columnar and "readChangeFeed" not in options
                assert ("ColumnarToRow" in plan_text(query)) == has_columns
        finally:
            query.stop()
        return collected

    return run


def ids(rows: list[tuple[Any, ...]]) -> list[int]:
    return sorted(row[1] for row in rows)


def test_a_query_goes_on_over_restarts_compaction_and_vacuum(
    stream: Stream, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    lance.dataset(uri).delete("id = 3")
    first = stream(uri, **FEW)
    assert ids(first) == [number for number in range(40) if number != 3]
    assert sorted({row[0] for row in first}) == ([0, 1] if FEW else [0])
    assert stream(uri, **FEW) == []
    append(uri, 40, 75)
    lance_spark.open_dataset(uri).compact_files(target_rows_per_fragment=100)
    lance.dataset(uri).delete("id = 41")
    second = stream(uri, **FEW)
    assert ids(second) == list(range(40, 75))
    assert len({row[0] for row in second if row[1] is not None}) == (2 if FEW else 1)
    append(uri, 75, 76)
    lance_spark.open_dataset(uri).cleanup_old_versions(retain_versions=1)
    assert ids(stream(uri)) == [75]
    append(uri, 76, 77)
    append(uri, 77, 78)
    lance_spark.open_dataset(uri).cleanup_old_versions(retain_versions=1)
    with pytest.raises(Exception, match="was cleaned up before the stream read it"):
        stream(uri)


@pytest.mark.sample(3)
@pytest.mark.parametrize("versions", [1, 2, 3])
def test_a_query_does_not_go_on_in_another_table(
    stream: Stream, tmp_path: Path, versions: int
) -> None:
    """Without an error, the stream would leave out the first rows of the table."""
    uri = str(tmp_path / "t")
    make(uri)
    assert len(stream(uri)) == 40
    assert stream(uri) == []
    remade(uri, versions)
    if versions == 1:
        if stream_reader.HAS_LIMITS:
            # Without new rows, the stream does not check the table.
            assert stream(uri) == []
        else:
            with pytest.raises(Exception, match="the table was recreated"):
                stream(uri)
        append(uri, 511, 512)
    with pytest.raises(Exception, match="the table was recreated"):
        stream(uri)
    assert len(stream(uri, "another")) == 9 + max(versions, 2)


def test_a_query_over_changes(stream: Stream, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    feed = {"readChangeFeed": True, **FEW}
    first = stream(uri, **feed)
    assert ids(first) == list(range(40))
    assert {row[2:4] for row in first} == {("insert", 1)}
    lance.dataset(uri).update({"id": "id + 1000"}, where="id = 7")
    lance.dataset(uri).delete("id = 8")
    append(uri, 40, 41)
    changed = [row[1:4] for row in stream(uri, **feed)]
    assert sorted(changed) == [
        (7, "update_preimage", 2),
        (8, "delete", 3),
        (40, "insert", 4),
        (1007, "update_postimage", 2),
    ]
    with pytest.raises(Exception, match=r"version 2 \(update\) changed rows"):
        stream(uri, "plain", startingVersion=1)
    skipped = stream(uri, "skip", startingVersion=1, skipChangeCommits=True)
    assert ids(skipped) == list(range(41))
    since = lance_spark.open_dataset(uri).versions()[2].timestamp
    assert ids(stream(uri, "since", startingTimestamp=since.isoformat(), filter="id > 3")) == [40]


@both_ways
def test_columns_added_or_renamed_later(stream: Stream, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    make(uri)
    assert len(stream(uri)) == 40
    append(uri, 40, 41)
    lance.dataset(uri).add_columns({"twice": "id * 2"})
    lance.dataset(uri).alter_columns({"path": "id", "name": "number"})
    lance.write_dataset(
        pa.table({"number": [50], "twice": pa.array([100], pa.int64())}), uri, mode="append"
    )
    assert sorted(row[1:] for row in stream(uri)) == [(40, None), (50, 100)]
    changes = stream(uri, "feed", readChangeFeed=True, startingVersion=2)
    assert sorted(row[1:4] for row in changes) == [(40, None, "insert"), (50, 100, "insert")]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("columnar", "by_name"),
    [(True, False), (True, True), (False, False)],
    ids=["columns by path", "columns by name", "rows"],
    indirect=["columnar"],
)
def test_rows_of_all_types(spark: Any, tmp_path: Path, columnar: bool, by_name: bool) -> None:
    rows = typed_rows(2_000)
    pq.write_table(rows, tmp_path / "t.parquet")
    lance.write_dataset(rows, str(tmp_path / "t.lance"), max_rows_per_file=700)
    if by_name:
        catalog = f"stream_{columnar}".lower()
        lance_spark.enable(spark, catalog, root=str(tmp_path))
        frame = spark.readStream.table(f"{catalog}.t")
    else:
        frame = spark.readStream.format("lance").load(str(tmp_path / "t.lance"))
    collected: list[str] = []

    def take(batch: Any, _: int) -> None:
        collected.extend(repr(tuple(row)) for row in batch.collect())

    expected = spark.read.parquet(str(tmp_path / "t.parquet"))
    assert frame.schema.simpleString() == expected.schema.simpleString()
    for name, change in (
        ("whole", lambda table: table),
        ("groups", lambda table: table.where("id % 5 > 0").groupBy("word", "small").count()),
    ):
        collected.clear()
        writer = change(frame).writeStream.foreachBatch(take).trigger(availableNow=True)
        writer = writer.outputMode("append" if name == "whole" else "complete")
        query = writer.option("checkpointLocation", str(tmp_path / name)).start()
        assert query.awaitTermination(60)
        assert ("ColumnarToRow" in plan_text(query)) == columnar
        assert query.lastProgress["numInputRows"] == rows.num_rows
        assert sorted(collected) == sorted(
            repr(tuple(row)) for row in change(expected).collect()
        ), name


@pytest.mark.parametrize(("by_name", "feed"), [(False, True), (True, False)])
def test_streams_share_no_environment(
    spark: Any, tmp_path: Path, by_name: bool, feed: bool, pushed: None
) -> None:
    """Streams of Spark's own sources add variables to one map, which has no lock, when they start."""
    make(str(tmp_path / "t.lance"))
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    shared = manager.lookupDataSource("lance").dataSourceCls().envVars()
    added = ["SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"]
    for name in added:
        shared.remove(name)
    reader = spark.readStream.format("lance").option("readChangeFeed", str(feed).lower())
    if by_name:
        lance_spark.enable(spark, "separate_streams", root=str(tmp_path))
        frame = reader.table("separate_streams.t")
    else:
        frame = reader.load(str(tmp_path / "t.lance"))
    writer = frame.writeStream.format("lance").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "c"))
    assert writer.start(str(tmp_path / "copy.lance")).awaitTermination(60)
    assert lance.dataset(str(tmp_path / "copy.lance")).count_rows() == 40
    assert not any(shared.containsKey(name) for name in added)


def test_streams_of_one_frame_share_no_environment(
    spark: Any, tmp_path: Path, pushed: None
) -> None:
    make(str(tmp_path / "t.lance"))
    frame = spark.readStream.format("lance").load(str(tmp_path / "t.lance"))
    table = frame._jdf.queryExecution().analyzed().collectLeaves().head().table()
    field = table.getClass().getDeclaredField("source")
    field.setAccessible(True)
    source = field.get(table)
    # Each stream asks the source of the frame for the function that it runs.
    first, second = (source.source().dataSourceCls().envVars() for _ in range(2))
    first["ADDED"] = "1"
    assert "ADDED" not in second
