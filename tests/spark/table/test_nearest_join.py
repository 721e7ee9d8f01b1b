"""`LanceTable.nearest_join`: the nearest rows of many queries, beside numpy and pylance."""

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
from lance_spark.errors import InvalidInputError
from lance_spark.indexes.vectors.neighbors import Neighbors
from lance_spark.spark.table import LanceTable
from lance_spark.spark.table.jobs import nearest_join
from lance_spark.spark.table.jobs.partition_keys import partition_keys
from tests.spark.table.test_nearest import DIMENSION, column, vectors
from tests.support.spark.messages import refusal

ROWS, QUERIES, K = 2400, 60, 5

pytestmark = pytest.mark.usefixtures("pushed")


@pytest.fixture(scope="module")
def values() -> np.ndarray[Any, Any]:
    return vectors(21, ROWS)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, values: np.ndarray[Any, Any]) -> Path:
    """A table with an index of two segments that does not cover the last fragment."""
    path = tmp_path_factory.mktemp("join") / "t.lance"
    for first in range(0, ROWS, 800):
        rows = range(first, first + 800)
        part = pa.table(
            {
                "id": pa.array(rows, pa.int64()),
                "g": pa.array([i % 3 for i in rows], pa.int64()),
                "st": pa.array([{"a": i, "b": str(i)} for i in rows]),
                "v": column(values[first : first + 800]),
            }
        )
        lance.write_dataset(part, str(path), mode="append" if first else "create")
        dataset = lance.dataset(str(path))
        if first == 0:
            dataset.create_index("v", "IVF_PQ", num_partitions=6, num_sub_vectors=4)
        elif first == 800:
            dataset.optimize.optimize_indices(num_indices_to_merge=0)
    lance.dataset(str(path)).delete("id % 40 = 3")
    return path


@pytest.fixture(scope="module")
def queries(spark: Any) -> Any:
    """Queries, of which the first two have equal vectors, and the last two have none."""
    q = given_queries()
    rows = [(number, f"q{number}", row.tolist()) for number, row in enumerate(q)]
    rows[1] = (1, "q1", rows[0][2])
    rows += [(QUERIES, "null", None), (QUERIES + 1, "nan", [float("nan")] * DIMENSION)]
    return spark.createDataFrame(rows, "number long, name string, v array<float>").repartition(3)


def given_queries() -> np.ndarray[Any, Any]:
    return vectors(22, QUERIES)


def nearest_ids(
    values: np.ndarray[Any, Any], keep: Callable[[int], bool] = lambda _: True
) -> list[list[int]]:
    """Return the ids of the nearest rows of each query."""
    q = given_queries()
    q[1] = q[0]
    distances = ((q[:, None, :].astype(np.float64) - values[None]) ** 2).sum(axis=2)
    for number in range(ROWS):
        if number % 40 == 3 or not keep(number):
            distances[:, number] = np.inf
    return [row.tolist() for row in np.argsort(distances, axis=1, kind="stable")[:, :K]]


def ids_by_query(joined: Any) -> dict[int, list[int]]:
    """Return the ids of the rows of each query, the nearest first."""
    result: dict[int, list[tuple[float, int]]] = {}
    for row in joined if isinstance(joined, list) else joined.collect():
        result.setdefault(row.number, []).append((row._distance, row.id))
    return {number: [i for _, i in sorted(rows)] for number, rows in result.items()}


def test_exact_join(spark: Any, path: Path, queries: Any, values: Any) -> None:
    lance_spark.enable(spark)
    table = LanceTable.forPath(spark, str(path))
    joined = table.nearest_join(queries, "v", K, use_index=False)
    assert joined.columns == ["number", "name", "v", "id", "g", "st", "_distance"]
    rows = joined.collect()
    assert ids_by_query(rows) == dict(enumerate(nearest_ids(values)))
    for row in rows:
        assert row.name == f"q{row.number}"
        assert (row.st.a, row.st.b, row.g) == (row.id, str(row.id), row.id % 3)
        q = np.array(row.v, np.float32)
        assert row._distance == pytest.approx(((q - values[row.id]) ** 2).sum(), rel=1e-4)


@pytest.fixture
def small_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks search a segment, and the rows that no segment has."""
    monkeypatch.setattr(nearest_join, "_LEAST_SLOT_ROWS", 200)
    monkeypatch.setattr(nearest_join, "_SLOT_ROWS", 400)
    monkeypatch.setattr(nearest_join, "_LEAST_COMPARED_ROWS", 200)


@pytest.mark.usefixtures("small_slots")
def test_join_by_the_index(spark: Any, path: Path, queries: Any, values: Any) -> None:
    lance_spark.enable(spark)
    table = LanceTable.forPath(spark, str(path))
    exact = dict(enumerate(nearest_ids(values)))
    refined = table.nearest_join(queries, "v", K, columns=["id"], nprobes=6, refine_factor=30)
    assert ids_by_query(refined) == exact
    result = ids_by_query(table.nearest_join(queries, "v", K, columns=["id"], nprobes=2))
    dataset = lance.dataset(str(path))
    hits = others = 0
    for number, q in enumerate(given_queries()):
        if number == 1:
            continue
        nearest = {"column": "v", "q": q, "k": K, "nprobes": 2}
        of_pylance = dataset.to_table(columns=["id"], nearest=nearest)["id"].to_pylist()
        hits += len(set(result[number]) & set(exact[number]))
        others += len(set(of_pylance) & set(exact[number]))
    assert hits >= 0.97 * others
    fast = table.nearest_join(queries, "v", K, columns=["id"], fast_search=True)
    assert max(max(ids) for ids in ids_by_query(fast).values()) < 1600


@pytest.mark.usefixtures("small_slots")
def test_conditions_and_bounds(spark: Any, path: Path, queries: Any, values: Any) -> None:
    lance_spark.enable(spark)
    table = LanceTable.forPath(spark, str(path))
    for options in ({"use_index": False}, {"refine_factor": 30}):
        joined = table.nearest_join(queries, "v", K, columns=["id"], filter="g = 1", **options)
        assert ids_by_query(joined) == dict(enumerate(nearest_ids(values, lambda i: i % 3 == 1))), (
            options
        )
    # Few rows meet this condition: all of them are found.
    rare = table.nearest_join(queries, "v", K, columns=["id"], filter="id IN (8, 900, 2000, 43)")
    sets = [set(ids) for ids in ids_by_query(rare).values()]
    assert sets == [{8, 900, 2000}] * QUERIES
    near = table.nearest_join(
        queries,
        "v",
        ROWS,
        columns=["id"],
        distance_range=(1.0, 4.0),
        nprobes=6,
        refine_factor=30,
        filter="id % 9 = 0",
    )
    rows = near.collect()
    assert rows
    assert all(1.0 <= row._distance < 4.0 and row.id % 9 == 0 for row in rows)


def test_left_join_and_names(spark: Any, path: Path, queries: Any) -> None:
    from pyspark.sql import functions as f

    lance_spark.enable(spark)
    table = LanceTable.forPath(spark, str(path))
    others = queries.select(f.col("number").alias("id"), f.col("v").alias("taste"), "number")
    joined = table.nearest_join(
        others,
        ("taste", "v"),
        2,
        how="left",
        columns=["id", "st.b"],
        aliases={"id": "found"},
        with_row_id=True,
    )
    assert joined.columns == ["id", "taste", "number", "found", "st", "_rowid", "_distance"]
    rows = joined.collect()
    assert len(rows) == 2 * QUERIES + 2
    empty = [row for row in rows if row.found is None]
    assert {row.id for row in empty} == {QUERIES, QUERIES + 1}
    assert all(row.st is None and row._rowid is None and row._distance is None for row in empty)
    assert all(row.st.asDict() == {"b": str(row.found)} for row in rows if row.st is not None)
    # Queries are computed once: random rows have their own neighbours.
    random = spark.range(40).select(f.array(*(f.rand() for _ in range(DIMENSION))).alias("v"))
    every = table.nearest_join(random, "v", 1, columns=["id"]).collect()
    assert len(every) == 40


def test_versions(spark: Any, path: Path, queries: Any) -> None:
    old = LanceTable.forPath(spark, str(path), version=1)
    assert max(max(ids) for ids in ids_by_query(old.nearest_join(queries, "v", 3)).values()) < 800


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t, q: t.nearest_join(q, "number"), "no field 'number'"),
        (
            lambda t, q: t.nearest_join(q, ("number", "v")),
            "must have arrays of numbers, not bigint",
        ),
        (lambda t, q: t.nearest_join(q, ("v", "id")), "has no vectors"),
        (lambda t, q: t.nearest_join(q, "v", 0), "k must be at least 1"),
        (lambda t, q: t.nearest_join(q, "v", how="outer"), "how must be one of"),
        (lambda t, q: t.nearest_join(q, "v", columns=["id", "v"]), "column v is a column of"),
        (lambda t, q: t.nearest_join(q, "v", aliases={"x": "y"}), "aliases: 'x'"),
        (lambda t, q: t.nearest_join(q, "v", aliases={"id": "Number"}), "column Number is"),
        (lambda t, q: t.nearest_join(q, "v", metric="far"), "metric must be one of"),
        (lambda t, q: t.nearest_join(q, "v", filter="nope > 1"), "nope"),
    ],
)
def test_wrong_arguments(
    spark: Any, path: Path, queries: Any, call: Callable[[Any, Any], Any], says: str
) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(says)):
        call(LanceTable.forPath(spark, str(path)), queries)


def test_vectors_of_another_length(spark: Any, path: Path) -> None:
    table = LanceTable.forPath(spark, str(path))
    short = spark.sql("SELECT array(1.0f, 2.0f) AS v")
    assert "column v has an array of 2 items; the vectors of the table have 8" in refusal(
        lambda: table.nearest_join(short, "v", columns=["id"]).collect()
    )


def test_rows_between_the_steps() -> None:
    q = vectors(1, 9)
    q[4] = q[2]
    keys = nearest_join.keys_of(q)
    assert len(np.unique(keys, axis=0)) == 8
    assert (keys[4] == keys[2]).all()
    assert (nearest_join.matrix_of(nearest_join.vectors_as_binaries(q), q) == q).all()
    some = nearest_join.vectors_as_binaries(q).slice(3, 4)
    assert (nearest_join.matrix_of(some, q) == q[3:7]).all()
    words = np.array([5, 6, 5, 7], np.uint64)
    neighbors = Neighbors(
        np.array([0, 0, 2, 2], np.int32), np.array([1, 2, 3, 4], np.float32), words, words + 10
    )
    packed = nearest_join.neighbors_as_binaries(neighbors, 4)
    assert [len(value) for value in packed.to_pylist()] == [40, 0, 40, 0]
    # A row that is there twice for one query is there once.
    again = nearest_join.neighbors_of(packed, np.array([0, 1, 0, 3]))
    assert again.queries.tolist() == [0, 0, 0]
    assert again.ids.tolist() == [5, 6, 7]
    assert again.addresses.tolist() == [15, 16, 17]


def test_probes_are_sent_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of binary values has less than 2 GiB."""
    monkeypatch.setattr(nearest_join, "_SENT_BYTES", 3 * 4 * DIMENSION)
    q = vectors(4, 5)
    query, slot = np.array([0, 0, 1, 2, 3, 4, 4]), np.arange(7)
    keys = nearest_join.keys_of(q)
    step: Any = nearest_join.AssignQueries(None)  # type: ignore[arg-type]
    parts = list(step._probes(query, slot, q, keys, pa.struct([])))
    assert [part.num_rows for part in parts] == [3, 3, 1]
    sent = pa.Table.from_batches(parts).combine_chunks()
    assert sent["slot"].to_pylist() == slot.tolist()
    assert sent["first"].to_pylist() == keys[query, 0].tolist()
    items = nearest_join.matrix_of(sent["vector"].combine_chunks(), q)
    assert (items == q[query]).all()


def test_each_slot_has_a_task(spark: Any) -> None:
    from pyspark.sql import functions

    for count in (1, 4, 7):
        keys = partition_keys(count).tolist()
        frame = spark.createDataFrame([(key,) for key in keys], "slot int")
        sent = frame.repartition(count, "slot").withColumn("p", functions.spark_partition_id())
        places = {row.slot: row.p for row in sent.collect()}
        assert [places[key] for key in keys] == list(range(count))
    assert len(set(partition_keys(2000).tolist())) == 2000


def test_groups_and_runs() -> None:
    """Partial results of a key are beside all its queries, however the rows are cut."""
    rng = np.random.default_rng(3)
    for size in (1, 2, 5, 100):
        rows = []
        for key in range(12):
            rows += [(key, b"x")] * int(rng.integers(0, 4)) + [(key, None)] * int(
                rng.integers(0, 5)
            )
        table = pa.table(
            {
                "first": pa.array([key for key, _ in rows], pa.int64()),
                "second": pa.array([0] * len(rows), pa.int64()),
                "neighbors": pa.array([value for _, value in rows], pa.binary()),
            }
        )
        batches = table.to_batches(max_chunksize=3)
        seen = []
        for group in nearest_join.groups(iter(batches), size):
            keys, values = group["first"].to_pylist(), group["neighbors"].to_pylist()
            for key in dict.fromkeys(
                key for key, value in zip(keys, values, strict=True) if value is None
            ):
                own = [value for k, value in zip(keys, values, strict=True) if k == key]
                assert own.count(b"x") == rows.count((key, b"x"))
                seen += [key] * own.count(None)
        assert seen == [key for key, value in rows if value is None]
        slots = np.sort(rng.integers(0, 5, 40)).astype(np.int32)
        runs = nearest_join.Runs(size)
        parts = []
        for batch in pa.table({"slot": slots}).to_batches(max_chunksize=7):
            parts += list(runs.add(batch))
        parts += list(runs.finish())
        assert all(part.num_rows <= size for _, part in parts)
        assert [slot for slot, part in parts for _ in range(part.num_rows)] == slots.tolist()


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_metrics(spark: Any, tmp_path: Path, queries: Any, metric: str) -> None:
    """The table has float16 vectors, stable row ids and moved rows."""
    path = str(tmp_path / "t.lance")
    values = vectors(23, 600).astype(np.float16)
    table = pa.table({"id": pa.array(range(600), pa.int64()), "v": column(values)})
    lance.write_dataset(table, path, max_rows_per_file=200, enable_stable_row_ids=True)
    dataset = lance.dataset(path)
    dataset.create_index("v", "IVF_FLAT", num_partitions=4, metric=metric)
    dataset.delete("id % 30 = 1")
    dataset.optimize.compact_files(target_rows_per_fragment=1000)
    dataset.update({"id": "id + 1000"}, where="id < 10")
    joined = LanceTable.forPath(spark, path).nearest_join(
        queries, "v", 3, columns=["id"], nprobes=4
    )
    result = ids_by_query(joined)
    for number, q in enumerate(given_queries()):
        if number == 1:
            continue
        nearest = {"column": "v", "q": q.astype(np.float16), "k": 3, "use_index": False}
        nearest["metric"] = metric
        expected = lance.dataset(path).to_table(columns=["id"], nearest=nearest)
        assert result[number] == expected["id"].to_pylist(), number


def test_recall_of_an_index(spark: Any, path: Path) -> None:
    table, dataset = LanceTable.forPath(spark, str(path)), lance_spark.open_dataset(str(path))
    for options in ({"nprobes": 1}, {"nprobes": 6}, {"nprobes": 6, "refine_factor": 5}):
        measured = table.index_recall("v_idx", sample=25, k=K, seed=3, **options)
        alone = dataset.index_recall("v_idx", sample=25, k=K, seed=3, **options)
        assert (measured.name, measured.k, measured.num_queries) == ("v_idx", K, 25)
        # Each slot of a join keeps as many rows as the search of one process keeps in all.
        assert measured.recall >= alone.recall - 0.02
        assert 0 <= measured.lowest <= measured.recall
    assert measured.recall > 0.9
