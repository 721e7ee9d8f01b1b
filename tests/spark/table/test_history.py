"""Versions, tags, branches and clones through Spark, and what a table reports of itself."""

from __future__ import annotations

import datetime
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptTableError, InvalidInputError, VersionNotFoundError
from lance_spark.spark.table import LanceTable
from tests.inspect.test_inspect import Page
from tests.support.tables.damaged import rewrite_manifest
from tests.support.tables.pylance_written import new_table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write four versions: creation, append, deletion, configuration."""
    path = tmp_path / "t"
    data = lance.write_dataset(
        pa.table({"id": range(100), "text": ["x"] * 100}), path, max_rows_per_file=25
    )
    data = lance.write_dataset(
        pa.table({"id": range(100, 120), "text": ["y"] * 20}), path, mode="append"
    )
    data.delete("id % 10 = 0")
    lance_spark.open_dataset(str(path)).update_config({"k": "v"}, commit_message="set k")
    return path


def ids(path: Any, **options: Any) -> list[int]:
    return sorted(lance.dataset(path, **options).to_table()["id"].to_pylist())


def test_history(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    rows = table.history().collect()
    assert [row.version for row in rows] == [4, 3, 2, 1]
    names = ["update_config", "delete", "append", "overwrite"]
    assert [row.transaction for row in rows] == names
    names = ["SET TBLPROPERTIES", "DELETE", "WRITE", "WRITE"]
    assert [row.operation for row in rows] == names
    assert rows[1].operationParameters == {"predicate": '["id % 10 = 0"]'}
    assert [row.num_rows for row in rows] == [108, 108, 120, 100]
    assert [row.num_deleted_rows for row in rows] == [12, 12, 0, 0]
    assert [row.num_fragments for row in rows] == [5, 5, 5, 4]
    assert [row.read_version for row in rows][:3] == [3, 2, 1]
    assert rows[0].message == "set k"
    assert rows[1].message is None
    known = {version["version"]: version["timestamp"] for version in lance.dataset(path).versions()}
    # Both are local times without a zone. The times of pylance are converted by a float.
    assert {row.version for row in rows} == set(known)
    for row in rows:
        apart = abs(row.timestamp - known[row.version].replace(tzinfo=None))
        assert apart <= datetime.timedelta(microseconds=1)
    assert rows[3].size_bytes < rows[2].size_bytes
    assert [row.version for row in table.history(2).collect()] == [4, 3]
    assert table.history(0).collect() == []
    with pytest.raises(InvalidInputError, match="negative"):
        table.history(-1)


def test_detail(spark: Any, path: Path) -> None:
    data = lance.dataset(path)
    data.create_scalar_index("id", "BTREE")
    data.tags.create("first", 1)
    (row,) = LanceTable.forPath(spark, str(path)).detail().collect()
    assert (row.format, row.uri, row.branch, row.version) == ("lance", str(path), None, 5)
    assert (row.num_rows, row.num_deleted_rows) == (108, 12)
    assert (row.num_fragments, row.num_data_files) == (5, 5)
    assert row.size_bytes == sum(file.stat().st_size for file in (path / "data").iterdir())
    assert (row.indexes, row.tags, row.config["k"]) == (["id_idx"], ["first"], "v")
    assert not row.stable_row_ids
    assert row.data_storage_version == data.data_storage_version
    assert "deletion files" in row.reader_features
    assert "configuration" in row.writer_features
    assert row.created_at < row.last_modified
    data.tags.delete("first")
    lance.dataset(path).cleanup_old_versions(datetime.timedelta())
    (row,) = LanceTable.forPath(spark, str(path)).detail().collect()
    assert row.created_at is None


def test_validate(spark: Any, tmp_path: Path) -> None:
    new_table(tmp_path)
    table = LanceTable.forPath(spark, str(tmp_path))
    table.validate()
    rewrite_manifest(tmp_path, lambda manifest: setattr(manifest.fragments[1], "id", 0))
    with pytest.raises(CorruptTableError, match="fragment id 0 occurs twice") as caught:
        table.validate()
    assert str(tmp_path) in str(caught.value)


def test_restore(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    lance.dataset(path).tags.create("whole", 2)
    assert table.restoreToVersion(1, commit_message="back").version == 5
    assert ids(path) == list(range(100))
    assert table.history(1).collect()[0].message == "back"
    assert table.restore_to_tag("whole").version == 6
    assert ids(path) == list(range(120))
    (deleted,) = [
        version
        for version in lance_spark.open_dataset(str(path)).versions()
        if version.version == 3
    ]
    assert table.restoreToTimestamp(deleted.timestamp).version == 7
    assert len(ids(path)) == 108
    with pytest.raises(VersionNotFoundError):
        table.restoreToVersion(99)
    with pytest.raises(VersionNotFoundError):
        table.restoreToTimestamp("1999-01-01 00:00:00")
    with pytest.raises(InvalidInputError, match="version 2"):
        table.checkout(version=2).restoreToVersion(1)
    assert lance.dataset(path).version == 7
    lance.dataset(path).validate()


def test_times_without_an_offset_are_in_the_zone_of_the_session(spark: Any, tmp_path: Path) -> None:
    lance_spark.enable(spark)
    path = str(tmp_path / "t.lance")
    for rows in (3, 5):
        spark.range(rows).write.format("lance").mode("overwrite").save(path)
    # Times of the session are late, so that a time in UTC would name the newest version.
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        table = LanceTable.forPath(spark, path)
        shown = "cast(timestamp + interval 1 millisecond as string)"
        text = table.history().where("version = 1").selectExpr(shown).head()[0]
        for option in ("timestamp", "timestampAsOf", "asof"):
            rows = spark.read.format("lance").option(option, text).load(path)
            assert rows.count() == 3
        assert LanceTable.forPath(spark, path, timestamp=text).toDF().count() == 3
        feed = {"readChangeFeed": "true", "startingVersion": "1", "endingTimestamp": text}
        rows = spark.read.format("lance").options(**feed).load(path)
        assert {row._commit_version for row in rows.collect()} == {1}
        changes = spark.sql(f"SELECT * FROM lance_changes('{path}', 1, '{text}')").collect()
        assert {row._commit_version for row in changes} == {1}
        assert table.restoreToTimestamp(text).version == 3
        assert spark.read.format("lance").load(path).count() == 3
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_tags_and_branches(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    table.create_tag("first", 1)
    table.create_tag("now")
    table.update_tag("first", 2)
    rows = table.tags().collect()
    assert [(row.name, row.branch, row.version) for row in rows] == [
        ("first", None, 2),
        ("now", None, 4),
    ]
    assert all(row.manifest_size > 0 for row in rows)
    assert {name: tag["version"] for name, tag in lance.dataset(path).tags.list().items()} == {
        "first": 2,
        "now": 4,
    }
    assert table.checkout(tag="first").toDF().count() == 120

    branch = table.create_branch("dev/x", "first")
    appended = spark.createDataFrame([(500, "z")], "id long, text string")
    appended.write.format("lance").mode("append").option("branch", "dev/x").save(str(path))
    assert branch.toDF().count() == 121
    assert table.toDF().count() == 108
    assert branch.history(1).collect()[0].version == 3
    assert branch.detail().collect()[0].branch == "dev/x"
    branch.create_tag("on-dev")
    (row,) = table.branches().collect()
    assert (row.name, row.parent_branch, row.parent_version) == ("dev/x", None, 2)
    assert abs(row.created_at.timestamp() - time.time()) < 600

    with pytest.raises(InvalidInputError, match="dev/x"):
        table.restore_to_tag("on-dev")
    assert branch.restoreToVersion(2).version == 4
    assert branch.toDF().count() == 120
    assert branch.restore_to_tag("on-dev").version == 5
    assert branch.checkout(branch="main").toDF().count() == 108
    assert lance.dataset(path).version == 4

    with pytest.raises(InvalidInputError, match="on-dev"):
        table.delete_branch("dev/x")
    for name in ("on-dev", "first", "now"):
        table.delete_tag(name)
    table.delete_branch("dev/x")
    assert table.branches().collect() == []
    assert table.tags().collect() == []
    with pytest.raises(VersionNotFoundError):
        table.checkout(branch="dev/x")


def test_clone(spark: Any, path: Path, tmp_path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    shallow = table.clone(tmp_path / "shallow", isShallow=True, version=2)
    deep = table.clone(str(tmp_path / "deep"))
    assert shallow.toDF().count() == 120
    assert deep.toDF().count() == 108
    assert ids(tmp_path / "shallow") == list(range(120))
    assert not (tmp_path / "shallow" / "data").exists()
    assert len(list((tmp_path / "deep" / "data").iterdir())) == 5
    lance.dataset(tmp_path / "deep").validate()


class Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def test_a_notebook_shows_the_table(spark: Any, path: Path, tmp_path: Path) -> None:
    name = "<b>&'</b>"
    lance.dataset(path).alter_columns({"path": "text", "name": name})
    table = LanceTable.forPath(spark, str(path))
    shown = table._repr_html_()
    Page.check(shown)
    assert "108 rows in 5 fragments; 12 more are deleted" in shown
    assert shown.count("<title>") == 5
    text = Text()
    text.feed(shown)
    assert name in text.parts
    (path / "_versions").rename(tmp_path / "gone")
    assert "not a Lance table" in table._repr_html_()
