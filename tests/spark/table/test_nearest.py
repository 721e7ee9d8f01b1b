"""`LanceTable.nearest`, the option nearest and the optimizer rule: rows and distances of pylance."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.spark.table import LanceTable
from tests.support.spark.messages import refusal

DIMENSION = 8
#: Tasks search, not the driver, and there are several of them.
IN_TASKS = {"driver_read_bytes": 0, "target_rows_per_partition": 200}

pytestmark = pytest.mark.usefixtures("pushed")


def vectors(seed: int, rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((rows, DIMENSION)).astype(np.float32)


def column(values: np.ndarray[Any, Any]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


def write(path: Path, rows: int = 2000, **options: Any) -> np.ndarray[Any, Any]:
    """Write a table with null vectors, deleted rows and several fragments."""
    values = vectors(1, rows)
    data = column(values).to_pylist()
    data[5] = None
    table = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "g": pa.array([i % 4 for i in range(rows)], pa.int64()),
            "v": pa.array(data, pa.list_(pa.float32(), DIMENSION)),
        }
    )
    lance.write_dataset(table, str(path), max_rows_per_file=rows // 4, **options)
    lance.dataset(str(path)).delete("id % 50 = 7")
    return values


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nearest") / "plain.lance"
    write(path)
    return path


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with an index that does not cover the last fragment."""
    path = tmp_path_factory.mktemp("nearest") / "indexed.lance"
    write(path, enable_stable_row_ids=True)
    dataset = lance.dataset(str(path))
    dataset.create_index("v", "IVF_PQ", num_partitions=8, num_sub_vectors=4)
    values = vectors(2, 300)
    more = pa.table({"id": pa.array(range(2000, 2300)), "g": [1] * 300, "v": column(values)})
    lance.write_dataset(more, str(path), mode="append")
    return path


def expected(path: Path, q: Any, k: int, filter: str | None = None, **nearest: Any) -> pa.Table:
    return lance.dataset(str(path)).to_table(
        columns=["id", "_distance"],
        nearest={"column": "v", "q": q, "k": k, **nearest},
        filter=filter,
        prefilter=True,
    )


def agree(rows: list[Any], table: pa.Table) -> None:
    assert [row.id for row in rows] == table["id"].to_pylist()
    distances = table["_distance"].to_pylist()
    assert [row._distance for row in rows] == pytest.approx(distances, rel=1e-4, abs=1e-5)


def plan_of(frame: Any) -> str:
    text: str = frame._jdf.queryExecution().toString()
    return text


@pytest.mark.parametrize("where", [{}, IN_TASKS])
def test_exact_search(spark: Any, plain: Path, where: dict[str, Any]) -> None:
    lance_spark.enable(spark)
    table = LanceTable.forPath(spark, str(plain))
    q = vectors(9, 3)
    for metric in ("l2", "cosine", "dot"):
        rows = table.nearest("v", q[0], 7, metric=metric, columns=["id"], **where).collect()
        agree(rows, expected(plain, q[0], 7, metric=metric))
    few = table.nearest("v", q[1].tolist(), 5, columns=["id"], filter="g = 2", **where)
    agree(few.collect(), expected(plain, q[1], 5, "g = 2"))
    near = table.nearest("v", q[2], 50, columns=["id"], distance_range=(2.0, 6.0), **where)
    agree(near.collect(), expected(plain, q[2], 50, distance_range=(2.0, 6.0)))
    after = table.nearest("v", q[1], 9, columns=["id", "g"], **where)
    ids = [row.id for row in after.collect() if row.g == 2]
    assert [row.id for row in after.where("g = 2").collect()] == ids
    late = table.nearest(
        "v", q[1], 9, columns=["id", "g"], filter="g = 2", prefilter=False, **where
    )
    assert [row.id for row in late.collect()] == ids
    assert after.count() == 9


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_several_queries(spark: Any, plain: Path, enabled: str) -> None:
    lance_spark.enable(spark)
    table = LanceTable.forPath(spark, str(plain))
    q = vectors(10, 4)
    spark.conf.set("spark.lance.pushdown.enabled", enabled)
    try:
        frame = table.nearest("v", q, 3, columns=["id"], **IN_TASKS)
        assert frame.columns == ["query_index", "id", "_distance"]
        rows = frame.collect()
    finally:
        spark.conf.set("spark.lance.pushdown.enabled", "false")
    assert [row.query_index for row in rows] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    for number in range(4):
        agree([row for row in rows if row.query_index == number], expected(plain, q[number], 3))


@pytest.mark.parametrize("where", [{}, IN_TASKS])
def test_index_search(spark: Any, indexed: Path, where: dict[str, Any]) -> None:
    lance_spark.enable(spark)
    table = LanceTable.forPath(spark, str(indexed))
    for number, q in enumerate(vectors(11, 4)):
        exact = expected(indexed, q, 6, use_index=False)
        if number % 2:
            refined = table.nearest("v", q, 6, columns=["id"], nprobes=8, refine_factor=20, **where)
            agree(refined.collect(), exact)
            without = table.nearest("v", q, 6, columns=["id"], use_index=False, **where)
            agree(without.collect(), exact)
            continue
        rows = table.nearest("v", q, 6, columns=["id"], nprobes=8, **where).collect()
        # Several tasks find more candidates than one search does.
        others = expected(indexed, q, 6, nprobes=8)["_distance"].to_pylist()
        assert len(rows) == 6
        assert all(row._distance < other + 1e-4 for row, other in zip(rows, others, strict=True))
    fast = table.nearest("v", q, 300, columns=["id"], fast_search=True, nprobes=8, **where)
    assert max(row.id for row in fast.collect()) < 2000


def test_reads_with_the_option(spark: Any, plain: Path, read: Callable[..., Any]) -> None:
    from pyspark.sql import functions as f

    lance_spark.enable(spark)
    (q,) = vectors(12, 1)
    text = f'{{"column": "v", "q": {q.tolist()}, "k": 6}}'
    exact = expected(plain, q, 6)
    for where in ({}, IN_TASKS):
        frame = read(str(plain), nearest=text, **where)
        assert frame.columns == ["id", "g", "v", "_distance"]
        agree(frame.orderBy("_distance").collect(), exact)
        # Conditions choose among the rows of the search.
        ids = [row.id for row in frame.where("g = 1").collect()]
        assert set(ids) == {number for number in exact["id"].to_pylist() if number % 4 == 1}
        assert frame.count() == 6
        assert frame.agg(f.max("_distance")).head()[0] == pytest.approx(
            exact["_distance"][5].as_py(), rel=1e-4
        )
        assert len(frame.limit(2).collect()) == 2
        two = frame.orderBy(f.desc("_distance")).limit(2).collect()
        assert [row.id for row in two] == exact["id"].to_pylist()[:-3:-1]
        first = read(str(plain), nearest=text, columns="id", **where).orderBy("_distance").limit(3)
        agree(first.collect(), exact.slice(0, 3))
        few = read(str(plain), nearest=text, filter="g = 3", **where).orderBy("_distance")
        agree(few.collect(), expected(plain, q, 6, "g = 3"))
        late = read(str(plain), nearest=text, filter="g = 1", prefilter="false", **where)
        assert {row.id for row in late.collect()} == set(ids)
    spark.sql(f"CREATE TEMPORARY VIEW near USING lance OPTIONS (path '{plain}', nearest '{text}')")
    try:
        assert spark.table("near").count() == 6
    finally:
        spark.catalog.dropTempView("near")


def test_plans_show_the_search_and_the_tasks(spark: Any, indexed: Path) -> None:
    lance_spark.enable(spark)
    table = LanceTable.forPath(spark, str(indexed))
    (q,) = vectors(13, 1)
    frame = table.nearest("v", q, 5, columns=["id"], **IN_TASKS)
    frame.collect()
    plan = plan_of(frame)
    assert 'nearest={"column": "v", "q": [...], "k": 5' in plan
    assert "indexes=[v_idx (VECTOR): " in plan
    assert "LocalTableScan" not in plan
    assert re.search(r"IVF_PQ l2, \d of \d partitions, [\d,]+ rows measured", plan)
    # What the driver reads is shown, too.
    for nprobes in (2, 5):
        frame = table.nearest("v", q, 5, columns=["id"], nprobes=nprobes)
        (scan,) = re.findall("LocalTableScan.*", frame._jdf.queryExecution().simpleString())
        assert f'"k": 5, "nprobes": {nprobes}' in scan
        assert f"IVF_PQ l2, {nprobes} of " in scan
    assert "300 rows without an index" in scan
    assert [row.id for row in frame.collect()] == [row.id for row in frame.persist().collect()]
    frame.unpersist()


def test_versions_and_row_columns(spark: Any, indexed: Path) -> None:
    lance_spark.enable(spark)
    table = LanceTable.forPath(spark, str(indexed))
    (q,) = vectors(2, 1)
    assert table.nearest("v", q, 1).collect()[0].id == 2000
    assert table.nearest("v", q, 1, version=1).collect()[0].id < 2000
    frame = table.nearest("v", q, 2, columns=["id"], with_row_id=True, with_row_address=True)
    assert frame.columns == ["id", "_distance", "_rowid", "_rowaddr"]
    whole = lance.dataset(str(indexed)).to_table(
        columns=["id"], filter="id = 2000", with_row_id=True
    )
    assert frame.collect()[0]._rowid == whole["_rowid"][0].as_py()
    named = table.nearest("v", q, 1, columns=["_distance", "id"])
    assert named.columns == ["_distance", "id"]
    assert table.alias("x").nearest("v", q, 1).select("x.id").collect()[0].id == 2000


def test_ties_by_row_id(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    values = np.zeros((100, 2), np.float32)
    lance.write_dataset(
        pa.table({"id": range(100), "v": column(values)}), path, max_rows_per_file=9
    )
    table = LanceTable.forPath(spark, path)
    for where in ({}, IN_TASKS):
        rows = table.nearest("v", [1.0, 0.0], 12, **where).collect()
        assert [row.id for row in rows] == list(range(12))
        rows = table.nearest("v", [[1.0, 0.0], [0.0, 2.0]], 4, **where).collect()
        assert [row.id for row in rows] == [0, 1, 2, 3] * 2


def test_order_by_a_distance(spark: Any, indexed: Path) -> None:
    """An index answers it only if the session allows that, and if the distance is that of it."""
    from pyspark.sql import functions as f

    lance_spark.enable(spark)
    frame = spark.read.format("lance").load(str(indexed))
    (q,) = vectors(14, 1)

    def first(function: str, *, descending: bool = False, where: str = "true") -> tuple[Any, str]:
        distance = f.call_function(function, "v", f.lit([float(item) for item in q]))
        key = distance.desc() if descending else distance.asc_nulls_last()
        rows = frame.where(where).select("id", distance.alias("d")).orderBy(key).limit(8)
        ids = [row.id for row in rows.collect()]
        return ids, plan_of(rows)

    exact = expected(indexed, q, 8, use_index=False)["id"].to_pylist()
    settings = {
        "spark.lance.pushdown.local": "false",
        "spark.lance.nearest.approximate": "true",
        "spark.lance.nearest.nprobes": "1",
    }
    assert first("l2_distance")[0] == exact
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        ids, plan = first("l2_distance")
        assert "indexes=[v_idx (VECTOR)" in plan
        assert '"approximate":{"nprobes":"1"}' in plan
        assert 0 < len(set(ids) & set(exact)) <= 8
        some, plan = first("l2_distance", where="g = 1 AND v IS NOT NULL")
        assert "indexes=[v_idx (VECTOR)" in plan
        assert all(number % 4 == 1 or number >= 2000 for number in some)
        # Spark evaluates this condition.
        assert "indexes=" not in first("l2_distance", where="id * 2 > 5")[1]
        for other in ("cosine_distance", "dot_product"):
            assert "indexes=" not in first(other)[1]
        assert "indexes=" not in first("l2_distance", descending=True)[1]
        spark.conf.set("spark.lance.nearest.nprobes", "8")
        spark.conf.set("spark.lance.nearest.refineFactor", "20")
        assert first("l2_distance")[0] == exact
        spark.conf.set("spark.lance.nearest.nprobes", "x")
        assert "spark.lance.nearest.nprobes must be a whole number" in refusal(
            lambda: first("l2_distance")
        )
        for name in (*settings, "spark.lance.nearest.refineFactor"):
            if name != "spark.lance.pushdown.local":
                spark.conf.unset(name)
        assert "indexes=" not in first("l2_distance")[1]
        frame = spark.read.format("lance").option("approximate_nearest", "true").load(str(indexed))
        assert "indexes=" in first("l2_distance")[1]
    finally:
        for name in (*settings, "spark.lance.nearest.refineFactor"):
            spark.conf.unset(name)


@pytest.mark.parametrize("stable", [False, True])
def test_order_by_a_distance_keeps_rows_without_a_vector(
    spark: Any, tmp_path: Path, stable: bool
) -> None:
    """An index, which has no such rows, answers only if they cannot be among the first rows."""
    lance_spark.enable(spark)
    values = vectors(21, 400)
    data = column(values).to_pylist()
    (q,) = vectors(22, 1)
    distance = f"l2_distance(v, array({', '.join(f'{item}f' for item in q.tolist())}))"

    def table_of(name: str, missing: list[int], *, deleted: str = "") -> str:
        path = str(tmp_path / name)
        rows = [None if number in missing else item for number, item in enumerate(data)]
        table = pa.table({"id": range(400), "v": pa.array(rows, pa.list_(pa.float32(), DIMENSION))})
        lance.write_dataset(table, path, max_rows_per_file=100, enable_stable_row_ids=stable)
        if deleted:
            lance.dataset(path).delete(deleted)
        lance.dataset(path).create_index("v", "IVF_FLAT", num_partitions=4)
        return path

    def first(path: str, order: str, k: int, where: str = "true") -> tuple[list[int], bool]:
        frame = spark.read.format("lance").load(path).where(where)
        rows = frame.orderBy(
            f.expr(distance).asc_nulls_first()
            if order == "first"
            else f.expr(distance).asc_nulls_last(),
            "id",
        ).limit(k)
        return [row.id for row in rows.collect()], "indexes=[v_idx" in plan_of(rows)

    from pyspark.sql import functions as f

    whole, some = table_of("whole", []), table_of("some", [5, 250])
    early = table_of("early", [], deleted="id % 10 = 3")
    both = table_of("both", [5], deleted="id % 10 = 3")
    cases = [
        # table, order of nulls, rows, filter, whether the index answers
        (whole, "first", 5, "true", True),
        (whole, "first", 5, "id < 50", True),
        (whole, "last", 500, "true", True),
        (early, "first", 5, "true", True),
        (some, "first", 5, "true", False),
        (some, "last", 5, "true", True),
        (some, "last", 399, "true", False),
        (some, "last", 8, "id < 8", False),
        (some, "first", 8, "id < 8 AND v IS NOT NULL", True),
        (both, "first", 3, "true", False),
    ]
    spark.conf.set("spark.lance.pushdown.local", "false")
    exact = [first(*case[:4]) for case in cases]
    assert not any(uses_index for _, uses_index in exact)
    assert exact[4][0][:2] == [5, 250]
    # Vectors that come later are compared exactly, those that are missing too.
    spark.conf.set("spark.lance.nearest.approximate", "true")
    spark.conf.set("spark.lance.nearest.nprobes", "4")
    try:
        for case, (ids, _) in zip(cases, exact, strict=True):
            assert first(*case[:4]) == (ids, case[4]), case
        lance.dataset(whole).delete("id % 7 = 2")
        more = pa.table({"id": [400], "v": pa.array([None], pa.list_(pa.float32(), DIMENSION))})
        lance.write_dataset(more, whole, mode="append")
        ids, uses_index = first(whole, "first", 5)
        assert (ids[0], uses_index) == (400, True)
        spark.conf.set("spark.lance.nearest.approximate", "false")
        assert first(whole, "first", 5) == (ids, False)
    finally:
        for name in ("nearest.approximate", "nearest.nprobes", "pushdown.local"):
            spark.conf.unset(f"spark.lance.{name}")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: t.nearest("v", [1.0], k=0), "k must be at least 1"),
        (lambda t: t.nearest("v", []), "q must be a vector"),
        (lambda t: t.nearest("v", ["x"]), "q must be a vector"),
        (lambda t: t.nearest("v", "x"), "q must be a vector"),
        (lambda t: t.nearest("v", [1.0], metric="far"), "metric must be one of"),
        (lambda t: t.nearest("v", [1.0], nprobes=0), "nprobes must be at least 1"),
        (lambda t: t.nearest("v", [1.0], columns="id"), "columns"),
    ],
)
def test_wrong_arguments(spark: Any, plain: Path, call: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        call(LanceTable.forPath(spark, str(plain)))


def test_refusals(spark: Any, plain: Path, tmp_path: Path, read: Callable[..., Any]) -> None:
    table = LanceTable.forPath(spark, str(plain))
    q = [0.0] * DIMENSION
    assert "'nope'" in refusal(lambda: table.nearest("nope", q).collect())
    assert "has no vectors" in refusal(lambda: table.nearest("id", q).collect())
    assert "q must have 8 items" in refusal(lambda: table.nearest("v", [1.0, 2.0]).collect())
    text = f'{{"column": "v", "q": {q}}}'
    assert "option nearest must be a JSON object" in refusal(
        lambda: read(str(plain), nearest="[1]").collect()
    )
    assert "unknown key 'x'" in refusal(
        lambda: read(str(plain), nearest='{"column": "v", "q": [1], "x": 1}').collect()
    )
    for name, value in (
        ("fragment_ids", "0"),
        ("whole_fragments", "true"),
        ("full_text_query", "x"),
    ):
        options = {name: value, "nearest": text}
        assert name in refusal(lambda o=options: read(str(plain), **o).collect())
    assert "nearest" in refusal(
        lambda: read(str(plain), nearest=text, readChangeFeed="true", startingVersion=1).collect()
    )
    with pytest.raises(InvalidOptionError, match=r"LanceTable\.nearest"):
        LanceTable.forPath(spark, str(plain), nearest=text)
    path = str(tmp_path / "distances")
    lance.write_dataset(pa.table({"_distance": [1.0], "v": column(vectors(1, 1))}), path)
    assert "'_distance'" in refusal(
        lambda: LanceTable.forPath(spark, path).nearest("v", q).collect()
    )
