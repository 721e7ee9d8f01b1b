"""The change feed as a DataFrame, with and without the push-down rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidOptionError
from lance_spark.spark.options.feed import FeedOptions
from lance_spark.spark.options.read import ReadOptions

Feed = Callable[..., Any]


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Write six versions: creation, append, update, delete, compaction, append."""
    uri = str(tmp_path / "t.lance")
    rows = pa.table(
        {
            "id": pa.array(range(100), pa.int64()),
            "text": [f"row {number}" for number in range(100)],
            "v": pa.array([[number, 0.5] for number in range(100)], pa.list_(pa.float32(), 2)),
        }
    )
    lance_spark.write_dataset(rows, uri, max_rows_per_file=30, enable_stable_row_ids=True)
    appended = rows.set_column(0, "id", pa.array(range(100, 200), pa.int64()))
    lance.write_dataset(appended, uri, mode="append")
    lance.dataset(uri).update({"text": "'new'"}, where="id in (5, 150)")
    lance.dataset(uri).delete("id in (6, 150)")
    lance_spark.open_dataset(uri).compact_files()
    newest = lance_spark.open_dataset(uri).version
    lance.write_dataset(appended.slice(0, 1), uri, mode="append")
    assert lance_spark.open_dataset(uri).version == newest + 1
    return uri


@pytest.fixture
def feed(spark: Any, table: str) -> Feed:
    def load(**options: object) -> Any:
        reader = spark.read.format("lance").option("readChangeFeed", True)
        return reader.options(**options).load(table)

    return load


CHANGED = {
    ("update_preimage", 5, "row 5", 3),
    ("update_postimage", 5, "new", 3),
    ("update_preimage", 150, "row 50", 3),
    ("update_postimage", 150, "new", 3),
    ("delete", 6, "row 6", 4),
    ("delete", 150, "new", 4),
}


def test_all_changes_with_and_without_the_rule(
    spark: Any, table: str, feed: Feed, pushdown: Callable[..., None]
) -> None:
    last = lance_spark.open_dataset(table).version
    for with_rule in (True, False):
        pushdown(with_rule, local=True)
        frame = feed(startingVersion=1)
        assert frame.columns == [
            *("id", "text", "v"),
            *("_change_type", "_commit_version", "_commit_timestamp"),
        ]
        rows = frame.select("_change_type", "id", "text", "_commit_version").collect()
        counts = Counter(map(tuple, rows))
        inserted = [
            (f"{change[0]}", change[1], change[3])
            for change in counts.elements()
            if change[0] == "insert"
        ]
        expected = [("insert", number, 1) for number in range(100)]
        expected += [("insert", number, 2) for number in range(100, 200)] + [("insert", 100, last)]
        assert Counter(inserted) == Counter(expected)
        assert {change for change in counts if change[0] != "insert"} == CHANGED
        assert max(counts.values()) == 1
        # Spark answers the filters that the rule would push.
        changed = feed(startingVersion=3, endingVersion=4)
        assert changed.where("_change_type = 'delete'").count() == 2
        assert changed.where("id = 150").agg({"_commit_version": "min"}).collect()[0][0] == 3
        assert len(changed.where("id > 5").limit(3).collect()) == 3
        assert changed.limit(4).count() == 4
        assert changed.groupBy("_commit_version").count().orderBy("_commit_version").collect() == [
            (3, 4),
            (4, 2),
        ]
        vectors = changed.where("id = 6").select("v").collect()
        assert [list(row.v) for row in vectors] == [[6.0, 0.5]]


def test_times_columns_and_rows(table: str, feed: Feed, spark: Any) -> None:
    versions = {
        version.version: version.timestamp for version in lance_spark.open_dataset(table).versions()
    }
    bounds = {
        "startingTimestamp": versions[3].isoformat(),
        "endingTimestamp": (versions[4] + timedelta(microseconds=1)).isoformat(),
    }
    frame = feed(**bounds, columns="text,id", with_row_id=True)
    assert frame.columns[:3] == ["text", "id", "_rowid"]
    assert {(r._change_type, r.id, r.text, r._commit_version) for r in frame.collect()} == CHANGED
    moments = {row._commit_version: row._commit_timestamp for row in frame.collect()}
    for version, moment in moments.items():
        assert moment.astimezone(UTC) == versions[version]
    ids = {row.id: row._rowid for row in frame.collect()}
    assert ids == {5: 5, 6: 6, 150: 150}
    # The schema of the user has fewer columns, in another order.
    reader = spark.read.format("lance").schema("_commit_version long, ID bigint")
    rows = reader.option("readChangeFeed", True).option("startingVersion", 4).load(table).collect()
    assert {(row.ID, row._commit_version) for row in rows if row._commit_version == 4} == {
        (6, 4),
        (150, 4),
    }
    # Use a time between two versions, and a time after all versions.
    between = (versions[3] + timedelta(microseconds=1)).isoformat()
    assert feed(startingTimestamp=between, endingTimestamp=between).count() == 0
    newest = lance_spark.open_dataset(table).version
    assert feed(startingVersion=newest + 1).count() == 0
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert feed(startingTimestamp=tomorrow).count() == 0


def test_unknown_changes_are_an_error(table: str, feed: Feed, spark: Any) -> None:
    newest = lance_spark.open_dataset(table).version
    with pytest.raises(Exception, match=f"startingVersion is {newest + 2}, but the newest"):
        feed(startingVersion=newest + 2).count()
    with pytest.raises(Exception, match="set an end that is not before the start"):
        feed(startingVersion=4, endingVersion=2).count()
    with pytest.raises(Exception, match="startingVersion or startingTimestamp"):
        feed().count()
    with pytest.raises(Exception, match="set readChangeFeed, or use"):
        spark.read.format("lance").option("startingVersion", 1).load(table).count()
    lance_spark.open_dataset(table).cleanup_old_versions(retain_versions=2)
    with pytest.raises(Exception, match=f"the first version whose changes .* is {newest}"):
        feed(startingVersion=3).count()
    assert feed(startingVersion=newest).count() == 1
    with pytest.raises(Exception, match="does not apply to tables of Spark's catalog"):
        spark.sql(
            f"CREATE TABLE feed_of_catalog USING lance OPTIONS (readChangeFeed true) LOCATION '{table}'"
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingVersion": "1", "startingTimestamp": "2026-01-01"}, "exclude each other"),
        ({"starting_version": "0"}, "startingVersion must be a whole number from 1"),
        ({"endingTimestamp": "noon"}, "option endingTimestamp must be a time"),
        ({"startingVersion": "1", "version": "3"}, "option version selects one version"),
        ({"startingVersion": "1", "fragment_ids": "3"}, "option fragment_ids applies to reads of"),
        ({"startingVersion": "1", "whole_fragments": "true"}, "option whole_fragments applies to"),
        (
            {"startingVersion": "1", "skipChangeCommits": "true"},
            "a change feed contains all changes",
        ),
        ({"startingVersion": "1", "filter": "id = 1"}, "use .where"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, str], message: str) -> None:
    parsed = ReadOptions.parse({"path": "/t", "readChangeFeed": "true", **options})
    with pytest.raises(InvalidOptionError, match=message):
        FeedOptions.parse(parsed).of_batch(parsed)
