"""Arrays of numbers that are sent as bytes equal the arrays that pylance reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from pyspark.sql import types as st

import lance_spark.spark.pushdown.columnar
import lance_spark.spark.types.convert
from lance_spark.errors import UnsupportedError
from lance_spark.spark.pushdown.columnar import pack, packed
from tests.support.spark.requests import ask

ARRAYS = "spark.lance.pushdown.arrays"
COLUMNAR = "spark.lance.columnar.enabled"
ROWS = 1_000
NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]
WIDER = [pa.uint8(), pa.uint32(), pa.float16()]


def lists(rng: np.random.Generator, item: pa.DataType, rows: int) -> pa.Array:
    """Return lists of up to six numbers, some of them null, some with edge values."""
    ends = np.cumsum(np.r_[0, rng.integers(0, 7, rows)])
    item_dtype = item.to_pandas_dtype()
    values = rng.integers(0, 100, ends[-1]).astype(item_dtype)
    if pa.types.is_floating(item):
        values[:3] = [np.nan, -0.0, np.inf]
    else:
        values[:2] = [np.iinfo(item_dtype).min, np.iinfo(item_dtype).max]
    offsets = pa.array(ends, pa.int32(), mask=rng.random(rows + 1) < 0.1 * (ends < ends[-1]))
    return pa.ListArray.from_arrays(offsets, pa.array(values, item))


def vectors(rng: np.random.Generator, item: pa.DataType, rows: int, nulls: float = 0.1) -> pa.Array:
    values = pa.array(rng.integers(0, 100, rows * 5).astype(item.to_pandas_dtype()), item)
    mask = pa.array(rng.random(rows) < nulls)
    return pa.FixedSizeListArray.from_arrays(values, 5, mask=mask)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a table of three fragments with arrays of all types. Only the second fragment has null
    items.
    """
    folder = str(tmp_path_factory.mktemp("packing") / "t.lance")
    rng = np.random.default_rng(11)
    for part in range(3):
        columns: dict[str, pa.Array] = {
            "id": pa.array(np.arange(part * ROWS, (part + 1) * ROWS)),
            "text": pa.array([f"text {row % 13}" for row in range(ROWS)]),
        }
        for item in [*NUMBERS, *WIDER]:
            columns[f"l_{item}"] = lists(rng, item, ROWS)
            columns[f"v_{item}"] = vectors(rng, item, ROWS)
        columns["full"] = vectors(rng, pa.float32(), ROWS, 0.0)
        holes = [[1.5, None if part == 1 and row == 700 else 2.5] for row in range(ROWS)]
        columns["holes"] = pa.array(holes, pa.list_(pa.float64()))
        columns["none"] = pa.nulls(ROWS, pa.list_(pa.int32()))
        columns["flags"] = pa.array([[True, False]] * ROWS, pa.list_(pa.bool_()))
        columns["s"] = pa.StructArray.from_arrays([columns["v_int64"]], ["v"])
        columns["deep"] = pa.array([[[1, 2], []]] * ROWS, pa.list_(pa.list_(pa.int32())))
        lance.write_dataset(pa.table(columns), folder, mode="append")
    lance.dataset(folder).delete("id % 7 = 3")
    return folder


@pytest.fixture
def frame(spark: Any, pushdown: Callable[..., None], path: str) -> Iterator[Any]:
    pushdown(True, False)
    yield spark.read.format("lance").load(path)
    for setting in (ARRAYS, COLUMNAR):
        spark.conf.unset(setting)


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def packed_columns(frame: Any) -> int:
    """Return the number of packed columns: batches of columns are unpacked by another function."""
    plan = plan_of(frame)
    return plan.count("PackedArray" if "columnar=yes" in plan else "fromPrimitiveArray")


def is_packed(frame: Any) -> bool:
    return packed_columns(frame) > 0


def rows_of(frame: Any) -> list[str]:
    return sorted(repr(tuple(row)) for row in frame.collect())


def expected(path: str, columns: list[str], **chosen: Any) -> list[str]:
    result = lance.dataset(path).to_table(columns=columns, **chosen)
    return sorted(
        repr(row) for row in zip(*(result[name].to_pylist() for name in columns), strict=True)
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize("item", [str(item) for item in [*NUMBERS, *WIDER]])
def test_items_equal_the_items_that_pylance_reads(
    spark: Any, frame: Any, path: str, item: str
) -> None:
    columns = ["id", f"l_{item}", f"v_{item}"]
    for columnar in ("true", "false"):
        spark.conf.set(COLUMNAR, columnar)
        query = frame.select(*columns)
        assert packed_columns(query) == 2
        assert rows_of(query) == expected(path, columns)


@pytest.mark.parametrize(
    "columns", [["full"], ["holes", "id"], ["none", "full"], ["full", "holes"]]
)
def test_nulls(frame: Any, path: str, columns: list[str]) -> None:
    query = frame.select(*columns)
    assert is_packed(query)
    assert rows_of(query) == expected(path, columns)


def test_columns_that_must_not_be_null(
    spark: Any, pushdown: Callable[..., None], tmp_path: Path
) -> None:
    pushdown(True, False)
    array = vectors(np.random.default_rng(5), pa.float32(), 100, 0.0)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("v", array.type, nullable=False),
            pa.field("n", array.type),
        ]
    )
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table([range(100), array, array], schema=schema), path)
    frame = spark.read.format("lance").load(path)
    for columns in (["id", "n"], ["id", "v"], ["id", "v", "n"], ["v"]):
        chosen = frame.select(columns)
        assert is_packed(chosen)
        assert rows_of(chosen) == expected(path, columns)


def test_other_arrays_are_not_packed(frame: Any, path: str) -> None:
    query = frame.select("flags", "deep", "id")
    assert not is_packed(query)
    assert rows_of(query) == expected(path, ["flags", "deep", "id"])
    assert not is_packed(frame.select("s.v"))


def test_without_generated_code(spark: Any, frame: Any, path: str) -> None:
    names = ["spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode"]
    before = [spark.conf.get(name) for name in names]
    try:
        for name, value in zip(names, ["false", "NO_CODEGEN"], strict=True):
            spark.conf.set(name, value)
        query = frame.select("l_float", "v_int64", "holes")
        assert is_packed(query)
        assert rows_of(query) == expected(path, ["l_float", "v_int64", "holes"])
    finally:
        for name, value in zip(names, before, strict=True):
            spark.conf.set(name, value)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "query",
    [
        lambda f: f.where("size(l_int64) > 3 and id % 2 = 0").select("l_int64", "text"),
        lambda f: f.where("v_float[2] > 50").selectExpr("v_float[0] + v_float[1] as x", "v_float"),
        lambda f: f.where("text rlike '[27]'").select(sf.explode("l_double").alias("x"), "id"),
        lambda f: f.groupBy("v_int32").count(),
        lambda f: f.select("id", "full").orderBy(sf.col("full").desc(), "id").limit(40),
        lambda f: f.alias("a").join(f.select("id", "full").alias("b"), "id").selectExpr("a.full", "b.full as other", "a.v_float"),
        lambda f: f.select("full").union(f.select("full")).distinct(),
        lambda f: f.select("full", "full", sf.col("full").alias("again")),
        lambda f: f.where("exists (select 1 from packed p where p.id = packed.id + 1 and p.full[1] > 30)"),
        lambda f: f.where("l_int64 is null").select("id", "l_int64"),
        lambda f: f.select(sf.transform("l_int32", lambda x: x % 5).alias("l"), "id"),
        lambda f: f.repartition(3, "full").select("full", sf.spark_partition_id().isNotNull()),
        lambda f: f.limit(2500).select("v_double").where("v_double[0] > 20").groupBy().count(),
    ],
)  # fmt: skip
def test_queries_return_the_same_rows_without_packing(
    spark: Any, frame: Any, query: Callable[[Any], Any]
) -> None:
    frame.createOrReplaceTempView("packed")
    table = spark.table("packed")
    assert is_packed(query(table))
    rows = rows_of(query(table))
    spark.conf.set(ARRAYS, "false")
    assert not is_packed(query(table))
    assert rows_of(query(table)) == rows
    assert rows


def test_caches_and_writes(frame: Any, path: str, tmp_path: Path) -> None:
    query = frame.select("id", "v_float", "holes").where("id > 100")
    cached = query.cache()
    try:
        assert rows_of(cached) == expected(path, ["id", "v_float", "holes"], filter="id > 100")
    finally:
        cached.unpersist()
    out = str(tmp_path / "out.lance")
    query.write.format("lance").mode("append").save(out)
    assert lance.dataset(out).schema.field("v_float").type == pa.list_(pa.float32(), 5)
    assert expected(out, ["id", "v_float"]) == expected(path, ["id", "v_float"], filter="id > 100")


def test_equal_scans_are_read_once(spark: Any, frame: Any) -> None:
    counts = frame.groupBy("v_int32").count()
    frame.createOrReplaceTempView("packed")
    joined_counts = counts.alias("a").join(counts.alias("b"), "v_int32")
    joined_counts.collect()
    assert "ReusedExchange" in plan_of(joined_counts)


def test_a_table_column_with_the_name_of_an_added_column(
    spark: Any, pushdown: Callable[..., None], tmp_path: Path
) -> None:
    path = str(tmp_path / "t.lance")
    rows = pa.table({"v": [[1, 2], None], "__lance_items_0": [[3], [4]]})
    lance.write_dataset(rows, path)
    frame = spark.read.format("lance").load(path)
    assert not is_packed(frame)
    assert rows_of(frame) == expected(path, ["v", "__lance_items_0"])
    assert is_packed(frame.select("v"))


def test_a_plan_by_other_strategies_returns_arrays(spark: Any, frame: Any, path: str) -> None:
    """A plan that does not ask for arrays of bytes gets arrays."""
    jvm = spark._jvm
    optimized = frame.select("full", "id")._jdf.queryExecution().optimizedPlan()
    session = spark._jsparkSession
    (read,) = jvm.scala.jdk.javaapi.CollectionConverters.asJava(
        jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy(session).apply(
            optimized
        )
    )
    assert "PackedArray" not in read.toString()
    execution = jvm.org.apache.spark.sql.execution.QueryExecution
    result = execution.prepareExecutedPlan(session, read).executeCollect()
    rows = [(list(row.getArray(0).toFloatArray()), row.getLong(1)) for row in result]
    assert sorted(repr(row) for row in rows) == expected(path, ["full", "id"])


def test_batches_too_large_for_32_bit_offsets_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    array = lists(rng, pa.int32(), 1000)
    monkeypatch.setattr(lance_spark.spark.pushdown.columnar, "_INT32_MAX", 600)
    batch = pa.record_batch({"l": array, "row": pa.array(range(1000))})
    pieces = list(packed(iter([batch]), ["l"]))
    assert max(piece["l"].nbytes for piece in pieces) < 2000
    assert pa.concat_arrays([piece["row"] for piece in pieces]).equals(batch["row"])
    values: list[Any] = []
    for piece in pieces:
        assert piece.schema.names == ["l", "row", "__lance_items_0"]
        for data, packed_items in zip(piece["l"], piece["__lance_items_0"], strict=True):
            numbers = np.frombuffer(data.as_py(), np.int32).tolist() if data.is_valid else None
            values.append(packed_items.as_py() if packed_items.is_valid else numbers)
    assert values == array.to_pylist()


def test_a_single_row_that_is_too_long_stays_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_spark.spark.pushdown.columnar, "_INT32_MAX", 10)
    batch = pa.record_batch({"l": pa.array([[1, 2, 3]], pa.list_(pa.int64()))})
    (piece,) = packed(iter([batch]), ["l"])
    assert piece.to_pydict() == {"l": [None], "__lance_items_0": [[1, 2, 3]]}


@pytest.mark.parametrize("names", [["id"], ["missing"], ["flags"], ["deep"]])
def test_only_arrays_of_numbers_can_be_requested(names: list[str]) -> None:
    schema = st.StructType(
        [
            st.StructField("id", st.LongType()),
            st.StructField("flags", st.ArrayType(st.BooleanType())),
            st.StructField("deep", st.ArrayType(st.ArrayType(st.LongType()))),
        ]
    )
    with pytest.raises(UnsupportedError, match=names[0]):
        pack(schema, names)


def test_packed_in_requests(path: str) -> None:
    for bad in (
        {"packed": "full"},
        {"packed": [1]},
        {"packed": ["full"], "aggregates": [{"op": "count_star"}]},
    ):
        with pytest.raises(UnsupportedError, match="pack"):
            ask(path, ["full"], bad)
