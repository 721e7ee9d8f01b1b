"""New columns computed by Spark: values, files that are read and written, conflicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from lance_spark.mutations.columns import fill as columns_module
from lance_spark.spark.job import Job
from lance_spark.spark.table import LanceTable
from lance_spark.spark.table.jobs import columns as add_columns
from tests.spark.table.tables import checked

Large = Callable[[str], tuple[Path, pa.Table]]


def files(path: Path) -> dict[str, int]:
    """Return the names of the data files, with their times of modification."""
    return {file.name: file.stat().st_mtime_ns for file in (path / "data").iterdir()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write five fragments with stable row ids. One of them has only two rows that are not
    deleted.
    """
    path = tmp_path / "t.lance"
    ids = pa.array(range(1_000))
    data = pa.table(
        {
            "id": ids,
            "g": pc.bit_wise_and(ids, 7),
            "text": pc.binary_join_element_wise("t", ids.cast(pa.string()), ""),
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array([float(i) for i in range(4_000)], pa.float32()), 4
            ),
        }
    )
    dataset = lance.write_dataset(
        data, str(path), max_rows_per_file=200, enable_stable_row_ids=True
    )
    dataset.delete("id % 10 = 0 OR (id > 400 AND id < 599)")
    return path


def rows(path: Path, *names: str) -> list[dict[str, Any]]:
    return checked(path).to_table(columns=["id", *names]).sort_by("id").to_pylist()


def test_expressions(spark: Any, path: Path) -> None:
    """New columns are computed by SQL and by Columns, also by constants. Existing files do not
    change.
    """
    before = files(path)
    table = LanceTable.forPath(spark, str(path))
    result = table.add_columns(
        {
            "twice": "id * 2",
            "upper": F.upper("text"),
            "same": "vector",
            "one": F.lit(1),
            "small": F.expr("array(id, g)").cast("array<float>"),
        },
        options={"small.arrow.fixed-size-list.size": 2},
        commit_message="more",
    )
    assert result.version == 3
    dataset = checked(path)
    assert dataset.schema.field("same").type == pa.list_(pa.float32(), 4)
    assert dataset.schema.field("small").type == pa.list_(pa.float32(), 2)
    assert all(dataset.schema.field(name).nullable for name in ("twice", "one"))
    new_rows = rows(path, "g", "twice", "upper", "one", "vector", "same", "small")
    assert len(new_rows) == dataset.count_rows() == 721
    for row in new_rows:
        number = row["id"]
        assert (row["twice"], row["upper"], row["one"]) == (2 * number, f"T{number}", 1)
        assert row["same"] == row["vector"]
        assert row["small"] == [float(number), float(row["g"])]
    files_after = files(path)
    assert {name: files_after[name] for name in before} == before
    assert len(files_after) - len(before) == 5
    properties = dataset.read_transaction(3).transaction_properties
    assert properties == {"__lance_commit_message": "more"}


def test_only_named_columns_are_read(spark: Any, path: Path) -> None:
    """A new column that is computed from `n` needs only the files with `n`."""
    table = LanceTable.forPath(spark, str(path))
    table.add_columns({"n": "id + 1"})
    first = set(files(path))
    hidden = path / "hidden"
    hidden.mkdir()
    # The files with `n` stay in place. All other files are moved away during the call.
    keep = {
        Path(fragment.metadata.files[1].path).name for fragment in checked(path).get_fragments()
    }
    for name in first - keep:
        (path / "data" / name).rename(hidden / name)
    try:
        table.add_columns({"m": "n * 2"})
    finally:
        for name in first - keep:
            (hidden / name).rename(path / "data" / name)
    hidden.rmdir()
    assert [row["m"] for row in rows(path, "m")] == [2 * (row["id"] + 1) for row in rows(path)]


def test_expressions_that_need_other_rows(
    spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of other fragments compute the rows, in another order. The rows are sorted by
    address.
    """
    steps: list[str] = []
    run = Job.run_frame

    def noted(self: Any, frame: Any, work: Any, step: str, **options: Any) -> Any:
        steps.append(step)
        return run(self, frame, work, step, **options)

    monkeypatch.setattr(Job, "run_frame", noted)
    window = Window.partitionBy("g").orderBy(F.desc("id"))
    LanceTable.forPath(spark, str(path)).add_columns(
        {"rank": F.row_number().over(window), "best": "max(id) over (partition by g)"}
    )
    ranked_rows = rows(path, "g", "rank", "best")
    for group in range(8):
        group_rows = sorted(
            (row for row in ranked_rows if row["g"] == group), key=lambda row: -row["id"]
        )
        assert [row["rank"] for row in group_rows] == list(range(1, 1 + len(group_rows)))
        assert {row["best"] for row in group_rows} == {group_rows[0]["id"]}
    assert len(files(path)) == 10
    assert steps == ["write columns"]
    # The shuffle is not known before the first attempt. No file of this attempt is left.
    monkeypatch.setattr(add_columns, "has_windows", lambda *_: False)
    LanceTable.forPath(spark, str(path)).add_columns({"again": F.row_number().over(window)})
    assert all(row["again"] == row["rank"] for row in rows(path, "rank", "again"))
    assert len(files(path)) == 15
    assert steps[1:] == ["compute columns", "write columns"]


def test_values_of_other_rows_are_computed_again_after_a_conflict(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    lance.write_dataset(pa.table({"id": range(4)}), path)
    finish = columns_module.Computation.finish

    def overtaken(computation: Any, table: Any, *arguments: Any, **options: Any) -> Any:
        if table.version == 1:
            lance.write_dataset(pa.table({"id": [4, 5]}), path, mode="append")
        return finish(computation, table, *arguments, **options)

    monkeypatch.setattr(columns_module.Computation, "finish", overtaken)
    LanceTable.forPath(spark, str(path)).add_columns({"n": "count(*) over ()"})
    assert open_dataset(path).version == 3
    assert lance.dataset(path).to_table()["n"].to_pylist() == [6] * 6


def test_columns_of_a_frame(spark: Any, path: Path) -> None:
    """Rows are matched by a key. Rows without a match are null, or an error. A key that occurs
    twice in the DataFrame is an error.
    """
    table = LanceTable.forPath(spark, str(path))
    source = spark.range(0, 1_000, 2).select(
        F.col("id").alias("ID"), (F.col("id") * 10).alias("ten"), F.lit("x").alias("mark")
    )
    source = source.withColumnRenamed("ID", "id")
    before = files(path)
    for wrong, missing, message in (
        (source, "error", "is not in the DataFrame"),
        (source.union(source.where("id = 22")), "null", "twice"),
        (source.drop("id"), "null", "the DataFrame has no column 'id'"),
        (source.withColumnRenamed("ten", "text"), "null", "'text' exists already"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            table.add_columns_from(wrong, "id", missing=missing)
        assert files(path) == before
    assert table.add_columns_from(source, "id").version == 3
    for row in rows(path, "ten", "mark"):
        even = row["id"] % 2 == 0
        assert (row["ten"], row["mark"]) == ((row["id"] * 10, "x") if even else (None, None))
    # The table itself is the source, its row ids are the key.
    lengths = table.toDF(with_row_id=True).select("_rowid", F.length("text").alias("length"))
    table.add_columns_from(lengths, ["_rowid"], missing="error")
    assert all(row["length"] == len(row["text"]) for row in rows(path, "text", "length"))


def test_values_of_a_frame(spark: Any, path: Path) -> None:
    """Rows with the same key get new values in new files. All other rows keep their values."""
    before = files(path)
    table = LanceTable.forPath(spark, str(path))
    source = spark.range(0, 390, 3).select(
        "id", (F.col("id") + 0.4).alias("G"), F.lit(None).cast("string").alias("text")
    )
    expected = rows(path, "g", "text", "vector")
    result = table.update_columns_from(source, "id")
    changed = [row for row in expected if row["id"] < 390 and row["id"] % 3 == 0]
    assert (result.version, result.num_updated_rows) == (3, len(changed))
    for row in changed:
        row |= {"g": row["id"], "text": None}
    assert rows(path, "g", "text", "vector") == expected
    files_after = files(path)
    assert {name: files_after[name] for name in before} == before
    assert len(files_after) - len(before) == 2
    versions = checked(path).to_table(columns=["id", "_row_last_updated_at_version"]).to_pylist()
    newer = {row["id"] for row in versions if row["_row_last_updated_at_version"] == 3}
    assert newer == {row["id"] for row in changed}
    with pytest.raises(InvalidInputError, match="twice"):
        table.update_columns_from(source.union(source), "id")
    with pytest.raises(SchemaMismatchError, match="no column 'other'"):
        table.update_columns_from(source.withColumnRenamed("text", "other"), "id")
    assert files(path) == files_after


def test_concurrent_commits_are_computed_too(
    spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job computes updated and appended rows too. Files of the other fragments are used
    again.
    """
    written: list[int] = []
    original = columns_module.Computation.finish

    def finish(self: Any, table: Any, *args: Any, **options: Any) -> Any:
        written.append(len(files(path)))
        if len(written) == 1:
            dataset = open_dataset(str(path))
            dataset = dataset.update({"g": 100}, [("id", "==", 3)], mode="columns")
            appended = dataset.to_table(filters=[("id", "==", 801)])
            lance.write_dataset(appended, str(path), mode="append")
            lance.dataset(str(path)).delete("id = 205")
        return original(self, table, *args, **options)

    monkeypatch.setattr(columns_module.Computation, "finish", finish)
    LanceTable.forPath(spark, str(path)).add_columns({"more": "g + 1"})
    new_rows = rows(path, "g", "more")
    assert [row["more"] for row in new_rows] == [row["g"] + 1 for row in new_rows]
    ids = [row["id"] for row in new_rows]
    assert (3 in ids, 205 in ids, ids.count(801)) == (True, False, 2)
    # Five files have the new column. Then come a file of the update and a file of the append, and
    # two new files in place of one.
    assert written[0] == 10
    assert written[1] == 10 + 2 + 2 - 1


def test_failures_leave_the_table_unchanged(
    spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(path)
    table = LanceTable.forPath(spark, str(path))
    for columns, message in (
        ({"text": "1"}, "'text' exists already"),
        ({"TEXT": "1"}, "'text' exists already"),
        ({"a.b": "1"}, "is not a valid name of a column"),
        ({"_rowid": "1"}, "_rowid"),
        ({"m": "1", "n": "nothing + 1"}, "new column 'n': .*nothing"),
        ({"n": "id +"}, "Syntax error"),
        ({}, "nothing to add"),
        ({"n": 7}, "F.lit"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            table.add_columns(columns)
    with pytest.raises(InvalidInputError, match="null"):
        table.add_columns({"n": "nullif(id, 999)"}, nullable=False)
    with pytest.raises(Exception, match=r"DIVIDE_BY_ZERO|CAST_INVALID_INPUT"):
        table.add_columns({"n": "if(id = 999, cast('x' as int), 1)"})

    def refused(*_: Any, **__: Any) -> Any:
        raise CommitConflictError("no", retryable=False)

    monkeypatch.setattr(columns_module, "commit_columns", refused)
    with pytest.raises(CommitConflictError):
        table.add_columns({"n": "id"})
    assert files(path) == before
    assert lance.dataset(str(path)).version == 2
    pinned = LanceTable.forPath(spark, str(path), version=2)
    with pytest.raises(InvalidInputError, match="version 2"):
        pinned.add_columns({"n": "id"})


def test_alter_rename_reorder_and_drop_columns(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    expected = rows(path, "g", "text")
    table.rename_column("text", "word")
    table.alter_column("g", data_type="int")
    table.alter_column("word", data_type=pa.large_string())
    table.alter_column("id", nullable=False)
    table.reorder_columns("word", "vector")
    dataset = checked(path)
    assert dataset.schema.names == ["word", "vector", "id", "g"]
    assert dataset.schema.field("g").type == pa.int32()
    assert dataset.schema.field("word").type == pa.large_string()
    assert not dataset.schema.field("id").nullable
    table_rows = dataset.to_table(columns=["id", "g", "word"]).sort_by("id").to_pylist()
    assert [(row["id"], row["g"], row["word"]) for row in table_rows] == [
        (row["id"], row["g"], row["text"]) for row in expected
    ]
    assert table.drop_columns("vector", "g").version == lance.dataset(str(path)).version
    assert checked(path).schema.names == ["word", "id"]
    assert table.toDF().columns == ["word", "id"]
    for change, message in (
        (lambda: table.drop_columns("nothing"), "nothing"),
        (lambda: table.reorder_columns("id", "id"), "once"),
        (lambda: table.reorder_columns("nothing"), "nothing"),
        (lambda: table.alter_column("id", data_type="no type"), "is not a type"),
        (lambda: table.alter_column("word", data_type="int"), "word"),
        (lambda: table.alter_column("word"), "changes nothing"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            change()


def test_tables_with_a_mem_wal_are_refused(spark: Any, path: Path) -> None:
    lance.dataset(str(path)).initialize_mem_wal(identity_column="id")
    before = files(path)
    table = LanceTable.forPath(spark, str(path))
    source = spark.createDataFrame([(1, 2)], "id long, n long")
    for change in (
        lambda: table.add_columns({"n": "id + 1"}),
        lambda: table.add_columns_from(source, "id"),
        lambda: table.alter_column("g", data_type="int"),
        lambda: table.alter_column("g", nullable=False),
        lambda: table.drop_columns("id"),
    ):
        with pytest.raises(UnsupportedFeatureError, match="__lance_mem_wal"):
            change()
    assert files(path) == before
    assert lance.dataset(str(path)).version == 3


def test_large_table(spark: Any, large: Large) -> None:
    path, expected = large("t.lance")
    lance.dataset(path).delete("id % 1000 = 5")
    before = files(path)
    LanceTable.forPath(spark, str(path)).add_columns(
        {"sum": "id + coalesce(g, 0)", "word": "concat(text, '!')"}
    )
    table_rows = checked(path).to_table(columns=["id", "sum", "word"]).sort_by("id")
    kept = expected.filter(
        pc.not_equal(
            pc.subtract(expected["id"], pc.multiply(pc.divide(expected["id"], 1000), 1000)), 5
        )
    )
    assert table_rows["id"].equals(kept["id"])
    g = kept["g"].cast(pa.int64()).fill_null(0)
    assert table_rows["sum"].equals(pc.add(kept["id"], g))
    assert table_rows["word"].equals(pc.binary_join_element_wise(kept["text"], "!", ""))
    files_after = files(path)
    assert {name: files_after[name] for name in before} == before
    assert len(files_after) - len(before) == 50
