"""ORDER BY a distance with LIMIT: tasks return the rows of the nearest vectors, and the same query
over Parquet decides, whose distances the JVM computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from tests.support.spark.metrics import counted
from tests.support.tables.beside_parquet import write_beside_parquet

ROWS = 1_000
PARTS = 4
ITEMS = 6
FUNCTIONS = ("l2_distance", "cosine_distance", "dot_product")
VECTOR = [0.25, -1.0, 3.1, 0.0, 1e-3, 2.0]
#: With items that 32-bit floats do not hold.
OTHERS = [VECTOR, [1e-30] * 5 + [0.3], [1e30, 1.0, -1e30, 0.1, 0.2, 0.7], [0.0] * 6]
VECTOR_COLUMNS = ("near", "wide", "half", "rough")


def part_of(number: int) -> pa.Table:
    """Return the rows of a fragment: equal vectors, vectors of zeros, nulls, and items of all kinds."""
    rng = np.random.default_rng(number)
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    near = rng.integers(-2, 3, (ROWS, ITEMS)).astype(np.float64)
    near[: ROWS // 2] += rng.normal(size=(ROWS // 2, ITEMS)) * 1e-6
    rough = near * 10.0 ** rng.integers(-25, 25, (ROWS, 1))
    choices = np.array([np.nan, np.inf, -np.inf, 1e38, -1e-40])
    rough = np.where(rng.random((ROWS, ITEMS)) < 0.02, rng.choice(choices, (ROWS, ITEMS)), rough)

    def vectors(values: Any, dtype: Any, missing: float, missing_items: float = 0) -> pa.Array:
        mask = rng.random(ROWS * ITEMS) < missing_items
        items = pa.array(values.astype(dtype).ravel(), mask=mask)
        is_null = pa.array(rng.random(ROWS) < missing)
        return pa.FixedSizeListArray.from_arrays(items, ITEMS, mask=is_null)

    columns = {
        "id": pa.array(ids),
        "near": vectors(near, np.float32, 0),
        "wide": vectors(near * 1e3, np.float64, 0.1, 0.01),
        "half": vectors(near, np.float16, 0.02),
        "rough": vectors(rough, np.float32, 0.05, 0.01),
        "group": pa.array(rng.integers(0, 5, ROWS)),
        "text": pa.array([rng.bytes(600).hex() for _ in ids]),
        "inner": pa.StructArray.from_arrays([vectors(near, np.float32, 0)], ["v"]),
        "lists": pa.array(near.astype(np.float32).tolist(), pa.list_(pa.float32())),
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same rows as a Lance table, from which rows were deleted, and as Parquet."""
    folder = tmp_path_factory.mktemp("nearest_rows")
    tables = [part_of(number) for number in range(PARTS)]
    return write_beside_parquet(folder, tables, {"half": pa.list_(pa.float32(), ITEMS)})


@pytest.fixture
def frames(spark: Any, pushdown: Callable[..., None], paths: tuple[str, str]) -> tuple[Any, Any]:
    pushdown(True, False)
    table = spark.read.format("lance").option("target_rows_per_partition", ROWS).load(paths[0])
    return table, spark.read.schema(table.schema).parquet(paths[1])


def distance(function: str, column: str, vector: list[float]) -> Any:
    return sf.call_function(function, sf.col(column), sf.lit(vector))


def equal(frames: tuple[Any, Any], query: Callable[[Any], Any]) -> Any:
    """Run a query over both, compare the rows, and return the query over the Lance table."""
    nearest, other = (query(frame) for frame in frames)
    assert list(map(repr, nearest.collect())) == list(map(repr, other.collect()))
    return nearest


@pytest.mark.sample(5)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("column", VECTOR_COLUMNS)
def test_orders_of_all_types(frames: tuple[Any, Any], column: str, function: str) -> None:
    for number, vector in enumerate(OTHERS):
        key = distance(function, column, vector)
        directions = (key.asc_nulls_first(), key.desc_nulls_last(), key.asc_nulls_last())
        order = directions[number % 3]
        equal(frames, lambda f, o=order, k=key: f.select("id", k).orderBy(o, "id").limit(60))


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("query", "is_asked"),
    [
        (lambda f, d: f.orderBy(d).limit(1).select(d), True),
        (lambda f, d: f.select("id", d.alias("d")).orderBy("d", "id").limit(20), True),
        (lambda f, d: f.where("group = 3").orderBy(sf.desc(d), "id").limit(9), True),
        (lambda f, d: f.orderBy(d, sf.desc("text")).limit(9).offset(4), True),
        (lambda f, d: f.orderBy(d, "id").limit(30).groupBy("group").count().orderBy("group"), True),
        (lambda f, d: f.orderBy("group", d, "id").limit(9), False),
        (lambda f, d: f.orderBy(d + 1, "id").limit(9), False),
        (lambda f, d: f.where("id % 7 = 1").orderBy(d, "id").limit(9), False),
        (lambda f, d: f.where(d < 2).select("id").orderBy("id"), False),
        (lambda f, d: f.select("id", d).orderBy(d, "id").limit(200_000), False),
    ],
)
def test_queries_with_a_distance(
    frames: tuple[Any, Any], query: Callable[[Any, Any], Any], is_asked: bool
) -> None:
    nearest = equal(frames, lambda f: query(f, distance("l2_distance", "near", VECTOR)))
    assert (max(counted(nearest)) < ROWS * PARTS / 2) == is_asked


@pytest.mark.parametrize("column", ["inner.v", "lists"])
def test_other_columns_are_left_to_spark(frames: tuple[Any, Any], column: str) -> None:
    key = distance("l2_distance", column, VECTOR)
    nearest = equal(frames, lambda f: f.orderBy(key, "id").limit(5).select("id"))
    assert counted(nearest) == [ROWS * PARTS * 4 // 5]


def test_a_vector_with_other_items(frames: tuple[Any, Any]) -> None:
    for vector in ([1.0], [float("nan"), *VECTOR[1:]], [float("inf"), *VECTOR[1:]]):
        order = distance("l2_distance", "near", vector)
        query = frames[0].orderBy(order, "id").limit(5).select("id")
        if len(vector) == 1:
            with pytest.raises(Exception, match="l2_distance: the vectors have 6 and 1 items"):
                query.collect()
        else:
            equal(frames, lambda f, o=order: f.orderBy(o, "id").limit(5).select("id"))


def test_only_vectors_are_read_of_all_rows(frames: tuple[Any, Any]) -> None:
    table = frames[0].select("near", "text")
    nearest = table.orderBy(distance("dot_product", "near", VECTOR)).limit(10)
    assert len(nearest.collect()) == 10
    (few,) = counted(nearest, "numBytesRead")
    assert len(table.collect()) == ROWS * PARTS * 4 // 5
    (all_bytes,) = counted(table, "numBytesRead")
    assert few < all_bytes / 2
    assert '"function":"dot_product","vector":[...]' in (
        nearest._jdf.queryExecution().executedPlan().toString()
    )


def test_nearest_rows_are_read_on_the_driver(
    frames: tuple[Any, Any], pushdown: Callable[..., None]
) -> None:
    pushdown(True, True)
    key = distance("cosine_distance", "near", VECTOR)
    nearest = equal(frames, lambda f: f.orderBy(key, "id").limit(12).select("id", key))
    assert "LocalTableScan" in nearest._jdf.queryExecution().executedPlan().toString()
