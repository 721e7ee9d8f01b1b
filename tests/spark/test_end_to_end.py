"""Spark writes and reads tables; pylance reads what they contain."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as fn
from pyspark.sql.types import DoubleType, StructType

import lance_spark
from tests.support.spark.messages import refusal
from tests.support.spark.versions import HAS_TIME

Read = Callable[..., Any]
Write = Callable[..., None]


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def simple(spark: Any, rows: int = 1000) -> Any:
    return spark.range(rows).select(
        "id",
        fn.concat(fn.lit("name "), "id").alias("name"),
        fn.when(fn.col("id") % 3 > 0, fn.col("id") / 2).alias("half"),
        fn.array(*[(fn.col("id") * i).cast("float") for i in range(4)]).alias("vector"),
    )


def test_a_first_write_makes_a_table_that_pylance_reads(
    spark: Any, write: Write, read: Read, tmp_path: Path
) -> None:
    frame = simple(spark)
    write(frame, **{"Vector.Arrow.fixed-size-list.size": 4})
    theirs = lance.dataset(str(tmp_path / "t.lance"))
    theirs.validate()
    assert theirs.version == 1
    assert theirs.schema.field("vector").type == pa.list_(pa.float32(), 4)
    assert theirs.to_table(["id", "name"]).sort_by("id").to_pylist()[999] == {
        "id": 999,
        "name": "name 999",
    }
    assert rows_of(read()) == rows_of(frame)


def test_append_overwrite_and_read_of_an_old_version(
    spark: Any, write: Write, read: Read, tmp_path: Path
) -> None:
    write(spark.range(10), "overwrite")
    write(spark.range(10, 15))
    between = dt.datetime.now(dt.UTC)
    write(spark.range(3).select(fn.col("id").cast("string").alias("text")), "overwrite")
    table = lance.dataset(str(tmp_path / "t.lance"))
    table.validate()
    table.tags.create("first", 1)
    assert read().columns == ["text"]
    assert read().count() == 3
    assert read(version=1).count() == 10
    assert read(version=2).agg(fn.sum("id")).first()[0] == sum(range(15))
    assert read(tag="first").count() == 10
    assert read(timestamp=between.isoformat()).count() == 15


def test_every_type_round_trips(spark: Any, write: Write, read: Read, tmp_path: Path) -> None:
    row = {
        "b": True,
        "i8": -8,
        "i16": -16,
        "i32": -32,
        "i64": -64,
        "f32": 0.5,
        "f64": 0.25,
        "dec": Decimal("12.345"),
        "text": "ä",
        "raw": bytearray(b"\0\1"),
        "day": dt.date(1999, 12, 31),
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 6),
        "naive": dt.datetime(1900, 1, 2, 3, 4, 5, 6),
        "took": dt.timedelta(days=1, microseconds=1),
        "many": [1, None],
        "deep": [{"x": 1, "y": ["a", None]}, None],
    }
    ddl = (
        "b boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f32 float, f64 double, dec "
        "decimal(10,3), text string, "
        "raw binary, day date, at timestamp, naive timestamp_ntz, took interval day to second, "
        "many array<int>, "
        "deep array<struct<x:int,y:array<string>>>"
    )
    nothing = dict.fromkeys(row)
    frame = spark.createDataFrame([row, nothing], ddl)
    write(frame)
    assert read().schema == frame.schema
    assert rows_of(read()) == rows_of(frame)
    lance.dataset(str(tmp_path / "t.lance")).validate()


def test_times_of_day_round_trip(read: Read, write: Write, tmp_path: Path) -> None:
    values = [dt.time(23, 59, 59, 999_999), None, dt.time(0)]
    names = {"s": pa.time32("s"), "ns": pa.time64("ns")}
    whole = [value and value.replace(microsecond=0) for value in values]
    times = pa.table(
        {
            "s": pa.array(whole, names["s"]),
            "ns": pa.array(values, names["ns"]),
            "many": pa.array([values, None, []], pa.list_(names["ns"])),
        }
    )
    lance.write_dataset(times, str(tmp_path / "t.lance"))
    frame = read()
    shown = "time(6)" if HAS_TIME else "bigint"
    assert frame.dtypes == [("s", shown), ("ns", shown), ("many", f"array<{shown}>")]
    if HAS_TIME:
        assert [tuple(row) for row in frame.collect()] == list(
            zip(whole, values, [values, None, []], strict=True)
        )
    else:
        nanoseconds = 86_399_999_999_000
        assert [row.ns for row in frame.collect()] == [nanoseconds, None, 0]
    write(frame)
    theirs = lance.dataset(str(tmp_path / "t.lance")).to_table()
    assert theirs == pa.concat_tables([times, times])


def test_tables_of_pylance_are_read(read: Read, tmp_path: Path) -> None:
    table = pa.table(
        {
            "u8": pa.array([255, None], pa.uint8()),
            "u64": pa.array([2**63 - 1, None], pa.uint64()),
            "half": pa.array([1.5, None]).cast(pa.float16()),
            "ints": pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)),
            "big": pa.array(["x", None], pa.large_string()),
            "at": pa.array([1_000, None], pa.timestamp("ns", "UTC")),
            "nested": pa.array(
                [{"a": [np.float16(1)]}, None], pa.struct([("a", pa.list_(pa.float16()))])
            ),
        }
    )
    lance.write_dataset(table, str(tmp_path / "t.lance"))
    frame = read()
    assert [type_name for _, type_name in frame.dtypes] == [
        "smallint", "bigint", "float", "array<smallint>", "string", "timestamp",
        "struct<a:array<float>>",
    ]  # fmt: skip
    first, second = frame.select("u8", "u64", "half", "ints", "big", "nested").collect()
    assert tuple(first) == (255, 2**63 - 1, 1.5, [1, 2], "x", ([1.0],))
    assert tuple(second) == (None,) * 6


def test_appended_rows_take_the_types_of_the_table(
    spark: Any, write: Write, read: Read, tmp_path: Path
) -> None:
    uri = str(tmp_path / "t.lance")
    schema = pa.schema(
        [
            ("u8", pa.uint8()),
            ("half", pa.list_(pa.float16(), 2)),
            ("at", pa.timestamp("s")),
            ("big", pa.large_string()),
        ]
    )
    lance.write_dataset(schema.empty_table(), uri)
    ddl = "big string, at timestamp_ntz, half array<float>, U8 smallint"
    write(spark.createDataFrame([("x", dt.datetime(2026, 1, 1), [1.0, 2.0], 255)], ddl))
    theirs = lance.dataset(uri)
    theirs.validate()
    assert theirs.schema == schema
    assert theirs.count_rows() == 1
    bad = spark.createDataFrame([("x", dt.datetime(2026, 1, 1), [1.0, 2.0], 256)], ddl)
    with pytest.raises(Exception, match="column u8 holds a value outside the range"):
        write(bad)
    with pytest.raises(
        Exception, match="column half has vectors of 2 values, but a row has a vector of 1"
    ):
        write(spark.createDataFrame([("x", dt.datetime(2026, 1, 1), [1.0], 1)], ddl))
    assert read().count() == 1
    assert len(list((tmp_path / "t.lance" / "data").iterdir())) == 1


def test_a_copy_through_spark_keeps_vectors(read: Read, write: Write, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("ints", pa.list_(pa.int16(), 3)),
            ("halves", pa.list_(pa.float16(), 2)),
            ("raw", pa.binary(2)),
        ]
    )
    halves = list(np.array([[0.5, 1.0], [2.0, 4.0]], np.float16))
    data = pa.table([[[1, 2, 3], None], halves, [b"ab", b"cd"]], schema=schema)
    lance.write_dataset(data, str(tmp_path / "t.lance"))
    write(read(), path=str(tmp_path / "copy.lance"))
    copy = lance.dataset(str(tmp_path / "copy.lance"))
    assert copy.schema == schema
    assert copy.to_table().to_pylist() == data.to_pylist()


def test_a_user_schema_prunes_and_widens(
    spark: Any, write: Write, read: Read, tmp_path: Path
) -> None:
    write(
        simple(spark, 20).withColumn(
            "point", fn.struct(fn.lit(1).alias("x"), fn.lit("a").alias("y"))
        )
    )
    uri = str(tmp_path / "t.lance")
    reader = spark.read.format("lance").schema(
        "point struct<x:bigint>, ID bigint, vector array<float>"
    )
    frame = reader.load(uri)
    assert frame.columns == ["point", "ID", "vector"]
    assert tuple(frame.where("ID = 7").first()) == ((1,), 7, [0.0, 7.0, 14.0, 21.0])
    with pytest.raises(Exception, match="has no column names; did you mean name"):
        spark.read.format("lance").schema("names string").load(uri).collect()
    with pytest.raises(Exception, match="column name is string in the table"):
        spark.read.format("lance").schema("name int").load(uri).collect()
    strict = StructType().add("half", DoubleType(), False)
    with pytest.raises(Exception, match="column half holds a null"):
        spark.read.format("lance").schema(strict).load(uri).collect()


def test_the_option_columns_prunes(spark: Any, write: Write, read: Read) -> None:
    point = fn.struct(fn.col("id").alias("x"), fn.lit("a").alias("y"))
    write(simple(spark, 20).withColumn("point", point))
    frame = read(columns="point.x,id")
    assert frame.dtypes == [("point", "struct<x:bigint>"), ("id", "bigint")]
    assert tuple(frame.where("id = 3").first()) == ((3,), 3)
    with pytest.raises(Exception, match="has no column nam; did you mean name"):
        read(columns="nam")


def test_partitions_depend_on_rows_not_on_fragments(
    spark: Any, write: Write, read: Read, tmp_path: Path
) -> None:
    write(spark.range(0, 40_000, 1, 1))
    assert read(target_rows_per_partition=10_000).rdd.getNumPartitions() == 4
    write(spark.range(40_000, 40_100, 1, 20))
    assert len(lance.dataset(str(tmp_path / "t.lance")).get_fragments()) == 21
    packed = read(target_rows_per_partition=40_000)
    assert packed.rdd.getNumPartitions() <= 2
    assert packed.agg(fn.sum("id")).first()[0] == sum(range(40_100))


def test_options_bound_the_size_of_files(spark: Any, write: Write, tmp_path: Path) -> None:
    write(
        spark.range(0, 1000, 1, 1),
        max_row_per_file=300,
        file_format_version="2.1",
        enable_stable_row_ids="true",
    )
    theirs = lance.dataset(str(tmp_path / "t.lance"))
    assert [f.count_rows() for f in theirs.get_fragments()] == [300, 300, 300, 100]
    assert theirs.data_storage_version == "2.1"
    assert theirs.has_stable_row_ids


def test_empty_tables_are_tables(spark: Any, write: Write, read: Read) -> None:
    write(simple(spark).limit(0))
    assert read().count() == 0
    assert read().collect() == []
    assert read().columns == ["id", "name", "half", "vector"]
    write(simple(spark, 5))
    assert read().count() == 5


def test_deleted_rows_are_gone(spark: Any, write: Write, read: Read, tmp_path: Path) -> None:
    write(spark.range(100))
    lance.dataset(str(tmp_path / "t.lance")).delete("id % 2 = 0")
    assert read().agg(fn.count("*"), fn.sum("id")).first() == (50, sum(range(1, 100, 2)))


def test_a_view_is_read_and_inserted_into(
    spark: Any, write: Write, read: Read, tmp_path: Path
) -> None:
    write(spark.createDataFrame([(1, "a")], "id bigint, text string"))
    uri = tmp_path / "t.lance"
    make = f"CREATE OR REPLACE TEMPORARY VIEW lance_view USING lance OPTIONS (path '{uri}', batch_size '10')"
    spark.sql(make)
    spark.sql("INSERT INTO lance_view VALUES (2, 'b')")
    spark.sql("INSERT INTO lance_view (text, id) SELECT 'c', 3")
    assert rows_of(spark.sql("SELECT * FROM lance_view")) == [(1, "a"), (2, "b"), (3, "c")]
    spark.sql("INSERT OVERWRITE lance_view SELECT 9L, 'z'")
    spark.sql(make)
    assert rows_of(spark.table("lance_view")) == [(9, "z")]
    assert read(version=3).count() == 3


def test_a_table_of_the_catalog_is_read_and_not_written(
    spark: Any, write: Write, tmp_path: Path
) -> None:
    uri = tmp_path / "t.lance"
    spark = spark.newSession()
    spark.conf.set("spark.sql.catalog.spark_catalog", "builtin")
    write(spark.range(5))
    spark.sql(
        f"CREATE TABLE lance_cat USING lance LOCATION '{uri}' COMMENT 'x' TBLPROPERTIES ('a'='b')"
    )
    spark.sql(f"CREATE TABLE lance_old USING lance OPTIONS (path '{uri}', version '1')")
    try:
        write(spark.range(5, 8))
        assert spark.sql("SELECT count(*) FROM lance_cat").first()[0] == 8
        assert spark.sql("SELECT count(*) FROM lance_old").first()[0] == 5
        assert spark.sql("SELECT count(*) FROM lance_cat WITH (version = 1)").first()[0] == 5
        with pytest.raises(Exception, match="option path is missing"):
            spark.sql("INSERT INTO lance_cat VALUES (1)")
        # A DataFrame from a table of the catalog is written to its own target.
        write(spark.table("lance_cat"), path=str(tmp_path / "other.lance"))
        assert lance.dataset(str(tmp_path / "other.lance")).schema.field("id").metadata in (
            None,
            {},
        )
        assert lance.dataset(str(uri)).version == 2
    finally:
        spark.sql("DROP TABLE lance_cat")
        spark.sql("DROP TABLE lance_old")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"versoin": "1"}, "unknown option versoin; did you mean version"),
        ({"version": "99"}, "99"),
        ({"tag": "nope"}, "nope"),
        ({"batch_size": "NaN"}, "option batch_size"),
        ({"timestamp": "1999-01-01T00:00:00Z"}, "1999"),
    ],
)
def test_bad_reads_are_refused_in_one_line(
    spark: Any, write: Write, read: Read, options: dict[str, str], message: str
) -> None:
    write(spark.range(5))
    assert message in refusal(lambda: read(**options))


def test_the_error_names_a_path_without_a_table(read: Read, tmp_path: Path) -> None:
    assert f"{tmp_path} is not a Lance table" in refusal(lambda: read(str(tmp_path)))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["id"], "the DataFrame has no name"),
        (["id", "name", "id as more"], "the table has no more"),
        (
            ["cast(id as string) id", "name"],
            "column id is int64 in the table, and string cannot be written",
        ),
    ],
)
def test_a_refused_append_changes_nothing(
    spark: Any, write: Write, tmp_path: Path, columns: list[str], message: str
) -> None:
    frame = simple(spark, 10).select("id", "name")
    write(frame)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(Exception, match=message):
        write(frame.selectExpr(*columns))
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


def test_the_error_names_the_column_of_a_value_that_spark_cannot_hold(
    read: Read, tmp_path: Path
) -> None:
    lance.write_dataset(
        pa.table({"big": pa.array([2**63], pa.uint64())}), str(tmp_path / "t.lance")
    )
    with pytest.raises(Exception, match="column big holds a value past"):
        read().collect()


def test_commit_message(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    frame = spark.range(3)
    frame.write.format("lance").mode("append").option("commit_message", "the first").save(path)
    frame.write.format("lance").mode("append").save(path)
    messages = [item.message for item in lance_spark.open_dataset(path).versions()]
    assert messages == ["the first", None]
    transaction = lance.dataset(path).read_transaction(1)
    assert transaction.transaction_properties == {"__lance_commit_message": "the first"}
