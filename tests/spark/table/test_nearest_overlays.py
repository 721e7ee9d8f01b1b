"""Joins with nearest rows, and ORDER BY of a distance, beside overlays: equal to exact answers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.indexes.vectors.query import parse_nearest
from lance_spark.spark.table import LanceTable
from lance_spark.spark.table.jobs.nearest_join import Slots
from tests.spark.table.test_nearest import DIMENSION, column, plan_of, vectors

pytestmark = pytest.mark.usefixtures("pushed")

VECTOR = pa.list_(pa.float32(), DIMENSION)
Q = vectors(72, 5)


@pytest.fixture(scope="module", params=[False, True], ids=["addresses", "stable"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with overlaid rows, all of a fragment too, some near and one without a vector."""
    path = str(tmp_path_factory.mktemp("overlaid") / "t.lance")
    data = pa.table({"id": range(400), "v": column(vectors(71, 400))})
    dataset = lance_spark.write_dataset(
        data, path, max_rows_per_file=100, enable_stable_row_ids=request.param
    )
    dataset = dataset.create_index("v", "IVF_FLAT", num_partitions=4)
    near = {number: Q[0] + 0.01 * place for place, number in enumerate((3, 7, 150, 151))}
    other = dict(enumerate(vectors(73, 100), 300))
    for values in (near, {160: None}, other):

        def new(batch: pa.RecordBatch, values: Any = values) -> pa.Array:
            rows = [values[number] for number in batch.column("id").to_pylist()]
            return pa.array([None if row is None else row.tolist() for row in rows], VECTOR)

        where = f"id IN ({', '.join(map(str, values))})"
        dataset = dataset.update({"v": new}, where, mode="overlay")
    dataset.delete("id IN (7, 20)")
    return path


def test_slots_have_overlaid_rows_alone(path: str) -> None:
    dataset = lance_spark.open_dataset(path)
    query = parse_nearest({"column": "v", "q": Q[:1].tolist(), "k": 3})
    for fast_search in (False, True):
        search = dataset._reader.plan_nearest(query, fast_search=fast_search)
        slots = Slots.of(search, dataset.fragments, 1, None)
        rows = [number for ranges in slots.of_rows for number, _, _ in ranges]
        assert rows == ([] if fast_search else [3])
        assert slots.of_overlaid == (() if fast_search else ((0, 1),))


@pytest.mark.parametrize("condition", [None, "id < 155", "id IN (4, 5, 20, 200)"])
def test_join(spark: Any, path: str, condition: str | None) -> None:
    table = LanceTable.forPath(spark, path)
    rows = [(number, q.tolist()) for number, q in enumerate(Q)]
    queries = spark.createDataFrame(rows, "number long, v array<float>")

    def found(**options: Any) -> list[tuple[int, int, float]]:
        joined = table.nearest_join(
            queries, "v", 6, columns=["id"], filter=condition, **options
        ).collect()
        return sorted((row.number, row.id, round(row._distance, 4)) for row in joined)

    exact = found(use_index=False)
    assert found(nprobes=4) == exact
    if condition is None:
        assert {3, 150, 151} < {number for query, number, _ in exact if query == 0}
        fast = found(nprobes=4, fast_search=True)
        assert not {3, 150, 151, 160}.intersection(number for _, number, _ in fast)


def test_order_by_a_distance(spark: Any, path: str) -> None:
    from pyspark.sql import functions as f

    distance = f"l2_distance(v, array({', '.join(f'{item}f' for item in Q[0].tolist())}))"

    def first(order: str, k: int, where: str) -> tuple[list[int], bool]:
        frame = spark.read.format("lance").load(path).where(where)
        key = getattr(f.expr(distance), f"asc_nulls_{order}")()
        rows = frame.select("id", "v").orderBy(key, "id").limit(k)
        return [row.id for row in rows.collect()], "indexes=[v_idx" in plan_of(rows)

    cases = [
        # order of nulls, rows, filter, whether the index answers
        ("last", 8, "true", True),
        ("last", 40, "v IS NOT NULL AND id < 170", True),
        ("last", 8, "id BETWEEN 145 AND 165 AND v IS NOT NULL", True),
        # With the overlaid rows left out, the index has fewer rows.
        ("last", 296, "true", False),
        ("first", 8, "true", False),
    ]
    spark.conf.set("spark.lance.pushdown.local", "false")
    exact = [first(*case[:3]) for case in cases]
    assert not any(uses_index for _, uses_index in exact)
    assert exact[0][0][:3] == [3, 150, 151]
    assert exact[4][0][0] == 160
    spark.conf.set("spark.lance.nearest.approximate", "true")
    spark.conf.set("spark.lance.nearest.nprobes", "4")
    try:
        for case, (ids, _) in zip(cases, exact, strict=True):
            assert first(*case[:3]) == (ids, case[3]), case
    finally:
        for name in ("nearest.approximate", "nearest.nprobes", "pushdown.local"):
            spark.conf.unset(f"spark.lance.{name}")
