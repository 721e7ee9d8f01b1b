"""`LanceTable.replace_where` and the options of partial overwrites: rows of a DataFrame replace rows
that meet a condition.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from lance_spark import LanceTable
from lance_spark.errors import CommitConflictError, InvalidInputError, SchemaMismatchError
from lance_spark.mutations.rows import partial_overwrite
from tests.spark.table.tables import PART, checked

Large = Callable[..., tuple[Path, pa.Table]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write four fragments of 50 rows, of which some are deleted."""
    ids = np.arange(200)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(400, dtype="f4")), 2)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("day", pa.int32()),
            ("word", pa.large_string()),
            ("small", pa.uint8()),
            ("vector", pa.list_(pa.float32(), 2)),
        ]
    )
    columns = [ids, (ids // 10).astype("i4"), ["old"] * 200, ids.astype("u1"), vectors]
    path = tmp_path / "t"
    dataset = lance.write_dataset(
        pa.table(columns, schema=schema), path, max_rows_per_file=50, enable_stable_row_ids=True
    )
    dataset.delete("id % 20 = 3")
    return path


def content(path: Path) -> dict[int, tuple[Any, ...]]:
    rows = checked(path).to_table().to_pydict()
    names = ("day", "word", "small", "vector")
    return dict(zip(rows["id"], zip(*(rows[name] for name in names), strict=True), strict=True))


def frame(spark: Any, start: int, stop: int) -> Any:
    return spark.range(start, stop, 1, 2).select(
        F.lit("new").alias("WORD"),
        (F.col("id") / 10).cast("int").alias("day"),
        "id",
        (F.col("id") % 50).alias("small"),
        F.array(F.lit(1.5), F.lit(2.5)).cast("array<float>").alias("vector"),
    )


def test_rows_are_replaced(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    expected = content(path)
    ids = checked(path).to_table(["id", "_rowid"]).to_pydict()
    result = table.replace_where(
        frame(spark, 40, 45), "day = 4", commit_message="again", transaction_properties={"a": "b"}
    )
    assert (result.version, result.num_inserted_rows, result.num_deleted_rows) == (3, 5, 9)
    expected = {k: v for k, v in expected.items() if not 40 <= k < 50}
    expected |= {k: (4, "new", k, [1.5, 2.5]) for k in range(40, 45)}
    assert content(path) == expected
    properties = checked(path).read_transaction(3).transaction_properties
    assert properties == {"__lance_commit_message": "again", "a": "b"}
    # Rows that are not replaced keep their ids. New rows have new ids.
    after = checked(path).to_table(["id", "_rowid"]).to_pydict()
    old = dict(zip(ids["id"], ids["_rowid"], strict=True))
    for number, row_id in zip(after["id"], after["_rowid"], strict=True):
        assert (row_id == old.get(number)) == (not 40 <= number < 45)

    # The condition has a subquery and an alias. A column is missing. All rows of two fragments are
    # replaced.
    spark.createDataFrame([(n,) for n in range(10, 20)], "d int").createOrReplaceTempView("days")
    new_rows = frame(spark, 150, 152).drop("word").withColumn("id", F.col("id").cast("int"))
    result = table.alias("t").replace_where(new_rows, "t.day IN (SELECT d FROM days)")
    assert (result.num_inserted_rows, result.num_deleted_rows) == (2, 95)
    expected = {k: v for k, v in expected.items() if k < 100}
    expected |= {k: (15, None, k % 50, [1.5, 2.5]) for k in (150, 151)}
    assert content(path) == expected
    # The condition is made of Columns, the source is the table itself, or no row is inserted.
    own_rows = table.toDF().where("day = 0").withColumn("word", F.lit("self"))
    table.replace_where(own_rows, F.col("day").isNull() | (F.col("day") < 1))
    expected |= {k: (0, "self", *v[2:]) for k, v in expected.items() if v[0] == 0}
    assert content(path) == expected
    table.replace_where(table.toDF().limit(0), "word = 'new'")
    assert content(path) == {k: v for k, v in expected.items() if v[1] != "new"}
    # A column that the DataFrame lacks is null, also for the condition.
    table.replace_where(frame(spark, 160, 161).drop("word"), "word IS NULL")
    assert [k for k, v in content(path).items() if v[1] is None] == [160]


def test_rows_that_do_not_fit_change_nothing(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    good = frame(spark, 40, 60)
    with pytest.raises(InvalidInputError, match="does not meet 'day = 4': day is 5"):
        table.replace_where(good, "day = 4")
    with pytest.raises(InvalidInputError, match="day is None"):
        table.replace_where(good.withColumn("day", F.lit(None).cast("int")), "day = 4")
    with pytest.raises(InvalidInputError, match="small"):
        table.replace_where(good.withColumn("small", F.col("id") + 200), "day > 0")
    with pytest.raises(InvalidInputError, match="id"):
        table.replace_where(good.withColumn("id", F.expr("nullif(id, 55)")), "day > 0")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        table.replace_where(
            good.withColumn("day", F.expr("100 div (id - 59)").cast("int")), "day > -1000"
        )
    for condition, message in (
        ("nothing = 1", "nothing"),
        ("day =", "Syntax error"),
        ("day + 1", "must be boolean"),
        (None, "NoneType"),
        ("_rowid = 1", "_rowid"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            table.replace_where(good, condition)  # type: ignore[arg-type]
    for wrong_rows, message in (
        (good.drop("id"), "has no id"),
        (good.withColumn("other", F.lit(1)), "no other"),
        (good.withColumn("vector", F.lit("x")), "vector"),
    ):
        with pytest.raises(SchemaMismatchError, match=message):
            table.replace_where(wrong_rows, "day = 4")
    assert checked(path).version == 2


def test_concurrent_commits(spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = partial_overwrite.commit_rows
    concurrent_changes: list[Callable[[lance.LanceDataset], object]] = []
    planned: list[int] = []

    def slow(table: Any, *arguments: Any, **options: Any) -> Any:
        planned.append(table.version)
        if concurrent_changes:
            concurrent_changes.pop()(lance.dataset(path))
        return commit(table, *arguments, **options)

    monkeypatch.setattr(partial_overwrite, "commit_rows", slow)
    table = LanceTable.forPath(spark, str(path))
    expected = {k: v[1] for k, v in content(path).items()}
    # Another client deletes another row of the same fragment: both changes hold.
    concurrent_changes.append(lambda d: d.delete("id = 30"))
    table.replace_where(frame(spark, 40, 41), "day = 4")
    expected = {k: v for k, v in expected.items() if k != 30 and not 41 <= k < 50}
    expected[40] = "new"
    assert {k: v[1] for k, v in content(path).items()} == expected
    assert planned == [2]
    # Another client moves a row that is to be replaced: it is replaced nevertheless.
    concurrent_changes.append(lambda d: d.update({"word": "'moved'"}, "id = 60"))
    table.replace_where(frame(spark, 61, 62), "day = 6")
    expected = {k: v for k, v in expected.items() if not 60 <= k < 70} | {61: "new"}
    assert {k: v[1] for k, v in content(path).items()} == expected
    assert planned == [2, 4, 5]
    concurrent_changes.append(lambda d: d.delete("id = 80"))
    with pytest.raises(CommitConflictError):
        table.replace_where(frame(spark, 81, 82), "day = 8", conflict_retries=0)
    del expected[80]
    assert {k: v[1] for k, v in content(path).items()} == expected


def test_large_table(spark: Any, large: Large) -> None:
    path, expected = large()
    table = LanceTable.forPath(spark, str(path))
    # Spark has no nanoseconds.
    new = table.toDF(["id", "g", "text", "vector"]).where("g = 17 AND id % 2 = 0")
    new = new.withColumn("text", F.lit("new"))
    result = table.replace_where(new, f"g = 17 OR pmod(id, {PART}) < 3")
    ids = expected["id"].to_numpy()
    hit = pc.fill_null(pc.equal(expected["g"], 17), False).to_numpy()
    gone = hit | (ids % PART < 3)
    replaced = hit & (ids % 2 == 0)
    assert result.num_deleted_rows == gone.sum()
    assert result.num_inserted_rows == replaced.sum()
    table_rows = checked(path).to_table().sort_by("id")
    kept = expected.filter(pa.array(~gone | replaced))
    texts = pc.if_else(pa.array(replaced[~gone | replaced]), "new", kept["text"])
    assert table_rows["text"].equals(texts)
    for name in ("id", "g", "vector"):
        assert table_rows[name].combine_chunks().equals(kept[name].combine_chunks()), name


def words_of(path: str) -> dict[int, str]:
    dataset = lance.dataset(path)
    dataset.validate()
    columns = dataset.to_table(columns=["id", "word"]).to_pydict()
    return dict(zip(columns["id"], columns["word"], strict=True))


def test_options_of_writes(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")

    def frame(first: int, last: int, word: str) -> Any:
        return spark.range(first, last, 1, 2).select(
            "id",
            (F.col("id") % 4).cast("int").alias("g"),
            F.date_add(F.lit("2026-01-01").cast("date"), (F.col("id") / 10).cast("int")).alias(
                "day"
            ),
            F.when(F.col("id") >= 0, F.lit(word)).alias("word"),
        )

    def write(rows: Any, mode: str = "overwrite", **options: Any) -> None:
        rows.write.format("lance").mode(mode).options(**options).save(path)

    write(frame(0, 100, "old"), max_rows_per_file=20)
    expected = dict.fromkeys(range(100), "old")
    assert words_of(path) == expected
    write(frame(20, 25, "new"), replaceWhere="day = DATE '2026-01-03'")
    expected = {k: v for k, v in expected.items() if not 20 <= k < 30}
    expected |= dict.fromkeys(range(20, 25), "new")
    assert words_of(path) == expected
    with pytest.raises(Exception, match=r"\S*t\.lance: option replaceWhere: a row"):
        write(frame(20, 31, "bad"), replaceWhere="day = DATE '2026-01-03'")
    write(
        frame(40, 42, "dynamic").unionByName(frame(91, 92, "dynamic")),
        partitionOverwriteMode="dynamic",
        partitionBy="day,g",
        txnAppId="job",
        txnVersion=1,
    )
    gone = [k for k in expected if (k // 10, k % 4) in {(4, 0), (4, 1), (9, 3)}]
    for number in gone:
        del expected[number]
    expected |= dict.fromkeys((40, 41, 91), "dynamic")
    assert words_of(path) == expected
    write(frame(0, 10, "again"), "append", txnAppId="job", txnVersion=1)
    assert words_of(path) == expected
    assert lance.dataset(path).version == 3
    new_rows = frame(100, 110, "more").withColumn("score", F.col("id") / 2).drop("g")
    write(new_rows, "append", mergeSchema=True, txnAppId="job", txnVersion=2)
    expected |= dict.fromkeys(range(100, 110), "more")
    assert words_of(path) == expected
    scores = lance.dataset(path).to_table(filter="score is not null", columns=["id", "score", "g"])
    assert sorted(scores["score"].to_pylist()) == [k / 2 for k in range(100, 110)]
    assert scores["g"].null_count == 10
    assert spark.read.format("lance").load(path).where("score > 54").count() == 1
