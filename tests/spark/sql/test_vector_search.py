"""The table functions lance_vector_search and lance_hybrid_search, and `LanceTable.hybrid_search`."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException

import lance_spark
from lance_spark.errors import InvalidInputError
from lance_spark.spark.read.searches import Rerank
from lance_spark.spark.table import LanceTable
from tests.spark.sql.catalogs import TestCatalog
from tests.spark.table.test_nearest import DIMENSION, column, vectors

ROWS = 200
#: In SQL.
Q = vectors(31, 1)[0]
VECTOR = "array(" + ", ".join(f"{item:.6f}" for item in Q) + ")"
NAMED = f"query_vector => {VECTOR}, vector_column => 'v'"


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> TestCatalog:
    root = tmp_path_factory.mktemp("vectors")
    catalog = TestCatalog.of(spark, "vectors", root)
    texts = [
        f"note {'fox' if i % 10 == 0 else 'dog'} {'quick' if i % 15 == 0 else ''}"
        for i in range(ROWS)
    ]
    table = pa.table({"id": range(ROWS), "text": texts, "v": column(vectors(30, ROWS))})
    lance.write_dataset(table, str(root / "t.lance"))
    lance_spark.open_dataset(str(root / "t.lance")).create_scalar_index("text", "INVERTED")
    return catalog


def nearest(catalog: TestCatalog, k: int, **options: Any) -> pa.Table:
    search = {"column": "v", "q": Q, "k": k, **options.pop("nearest", {})}
    return catalog.pylance("t").to_table(
        columns=["id", "_distance"], nearest=search, prefilter=True, **options
    )


def test_vector_search(catalog: TestCatalog) -> None:
    def searched_ids(arguments: str, function: str = "lance_vector_search") -> list[int]:
        return [row.id for row in catalog.sql(f"SELECT * FROM {function}({arguments})")]

    whole = nearest(catalog, 10)
    ids = whole["id"].to_pylist()
    named = f"table => 'vectors.t', {NAMED}"
    for function in ("lance_vector_search", "VECTOR_SEARCH"):
        assert searched_ids(named, function) == ids
    rows = catalog.sql(
        f"SELECT * FROM lance_vector_search('vectors.t', {VECTOR}, 3, vector_column => 'v')"
    )
    assert list(rows[0].asDict()) == ["id", "text", "v", "_distance"]
    distances = whole["_distance"].to_pylist()[:3]
    assert [row._distance for row in rows] == pytest.approx(distances, rel=1e-4)
    of_row = "(SELECT v FROM vectors.t WHERE id = 7)"
    assert searched_ids(f"'vectors.t', {of_row}, (SELECT 1), vector_column => 'v'") == [7]
    with pytest.raises(IllegalArgumentException, match="must return one row, not several"):
        searched_ids("'vectors.t', (SELECT v FROM vectors.t), 1, vector_column => 'v'")
    path = catalog.root / "t.lance"
    assert (
        searched_ids(f"'{path}', {VECTOR}, vector_column => 'v', num_results => 4, offset => 2")
        == ids[2:6]
    )
    even = nearest(catalog, 3, filter="id % 2 = 0")["id"].to_pylist()
    assert searched_ids(f"{named}, k => 3, filter => 'id % 2 = 0'") == even
    late = [number for number in ids if number % 2 == 0]
    assert searched_ids(f"{named}, filter => 'id % 2 = 0', prefilter => false") == late
    cosine = nearest(catalog, 5, nearest={"metric": "cosine"})["id"].to_pylist()
    exact = "distance_type => 'COSINE', bypass_vector_index => true, nprobes => 2"
    assert searched_ids(f"{named}, limit => 5, {exact}") == cosine
    upper = distances[2]
    assert searched_ids(f"{named}, upper_bound => {upper:.6f}") == ids[:2]
    named_rows = catalog.sql(
        f"SELECT * FROM vector_search({named}, columns => array('id'), with_row_id => true, k => 1)"
    )
    assert list(named_rows[0].asDict()) == ["id", "_distance", "_rowid"]
    several = catalog.sql(
        "SELECT * FROM vector_search('vectors.t', array("
        f"{VECTOR}, {VECTOR}), 2, vector_column => 'v', columns => array('id'))"
    )
    assert [(row.query_index, row.id) for row in several] == [
        (number, i) for number in (0, 1) for i in ids[:2]
    ]


def test_searches_of_a_query_read_one_version(
    spark: Any, catalog: TestCatalog, pushed: None
) -> None:
    """Another client appends rows all the time."""
    path = str(catalog.root / "moving.lance")
    rows = catalog.pylance("t").to_table()
    lance.write_dataset(rows, path, mode="overwrite")
    texts = "query => 'note', search_columns => array('text')"
    table = "table => 'vectors.moving'"
    is_done = threading.Event()

    def append() -> None:
        while not is_done.is_set():
            lance.write_dataset(rows.slice(0, 1), path, mode="append")

    with ThreadPoolExecutor(1) as pool:
        appends = pool.submit(append)
        try:
            for _ in range(3):
                (counts,) = catalog.sql(
                    f"SELECT (SELECT count(*) FROM lance_search({table}, {texts}, limit => NULL)), "
                    "(SELECT count(*) FROM vectors.moving)"
                )
                assert counts[0] == counts[1] >= ROWS
                (unmatched,) = catalog.sql(
                    f"SELECT count(*) FROM lance_hybrid_search({table}, {texts}, {NAMED}, "
                    "k => 10000, candidates => 10000) WHERE _score IS NULL OR _distance IS NULL"
                )
                assert unmatched[0] == 0
        finally:
            is_done.set()
    appends.result()


def test_hybrid_search(spark: Any, catalog: TestCatalog) -> None:
    rows = catalog.sql(
        f"SELECT * FROM HYBRID_SEARCH(table => 'vectors.t', {NAMED}, query => 'quick fox', "
        "columns => array('id'), candidates => 30, k => 50, rrf_k => 60.0)"
    )
    assert list(rows[0].asDict()) == ["id", "_distance", "_score", "_relevance_score"]
    by_vector = nearest(catalog, 50)["id"].to_pylist()
    texts = catalog.sql("SELECT id, _score FROM lance_search('vectors.t', 'quick fox', 50)")
    ranks: dict[int, float] = {}
    for result in (by_vector, [row.id for row in texts]):
        for rank, number in enumerate(result):
            ranks[number] = ranks.get(number, 0.0) + 1 / (rank + 60)
    assert len(rows) == 50
    relevance = [row._relevance_score for row in rows]
    assert relevance == sorted(relevance, reverse=True)
    for row in rows:
        assert row._relevance_score == pytest.approx(ranks[row.id], rel=1e-5)
        assert (row._distance is None) == (row.id not in by_vector)
        assert (row._score is None) == (row.id not in {text.id for text in texts})
    table = LanceTable.forPath(spark, str(catalog.root / "t.lance"))
    same = table.hybrid_search("quick fox", Q, 50, column="v", columns=["id"], candidates=30)
    assert [row.id for row in same.collect()] == [row.id for row in rows]

    linear = table.hybrid_search(
        "quick fox", Q, 12, column="v", columns=["id"], reranker="linear", weight=1.0
    ).collect()
    assert [row.id for row in linear[:11]] == nearest(catalog, 12)["id"].to_pylist()[:11]
    assert linear[0]._relevance_score == 1.0

    def by_id(candidates: pa.Table) -> Any:
        return candidates["id"].to_numpy() % 50

    chosen = table.hybrid_search("quick fox", Q, 4, column="v", reranker=by_id, candidates=9)
    assert chosen.columns == ["id", "text", "v", "_distance", "_score", "_relevance_score"]
    scores = [row._relevance_score for row in chosen.collect()]
    assert scores == sorted(scores, reverse=True)
    assert all(row._relevance_score == row.id % 50 for row in chosen.collect())


def test_wrong_calls(spark: Any, catalog: TestCatalog) -> None:
    for call, says in (
        ("vector_search('vectors.t')", "argument query_vector is missing"),
        ("vector_search('vectors.t', 'x')", "query_vector must be an array of numbers"),
        ("vector_search('vectors.t', array(1, 2), vector_column => 'v')", "q must have 8 items"),
        (f"vector_search('vectors.t', {VECTOR})", "no field 'vector'"),
        (f"vector_search('vectors.t', {NAMED}, distance_type => 'x')", "metric must be one of"),
        (f"vector_search('vectors.t', {NAMED}, y => 1)", "has no parameter y"),
        (f"vector_search('vectors.t', {NAMED}, k => -1)", "limit must be a number of rows"),
        (
            f"vector_search('vectors.t', array({VECTOR}), vector_column => 'v', offset => 1)",
            "query_vector must be one vector",
        ),
        (f"hybrid_search('vectors.t', {NAMED}, query => 'x', rrf_k => 0)", "rrf_k must be"),
        (f"hybrid_search('vectors.t', {NAMED})", "argument query is missing"),
    ):
        with pytest.raises(Exception, match=re.escape(says)) as caught:
            catalog.sql(f"SELECT * FROM {call}")
        assert "Traceback" not in str(caught.value)
    table = LanceTable.forPath(spark, str(catalog.root / "t.lance"))
    for arguments, says in (
        ({"reranker": "best"}, "reranker must be one of"),
        ({"weight": 2.0}, "weight must be"),
        ({"rrf_k": 0.0}, "rrf_k must be"),
        ({"candidates": 0}, "candidates must be at least 1"),
    ):
        with pytest.raises(InvalidInputError, match=re.escape(says)):
            table.hybrid_search("x", Q, column="v", **arguments)
    with pytest.raises(InvalidInputError, match="one vector"):
        table.hybrid_search("x", np.zeros((2, DIMENSION)), column="v")
    rows = pa.table({"id": [1, 2]})
    for values, says in (([1.0], "returned 1 numbers for 2 rows"), (["x", "y"], "a number")):
        with pytest.raises(InvalidInputError, match=says):
            Rerank(lambda _, given=values: given, ("id",))(rows)


def test_lateral_search_by_the_vectors_of_rows(catalog: TestCatalog) -> None:
    """As a search for each row: of all rows, of rows without a vector, with other columns."""
    table = catalog.pylance("t")
    queries = table.to_table(columns=["id", "v"], filter="id IN (3, 50, 77)").to_pylist()
    expected = {
        (row["id"], found, None if found % 2 else found)
        for row in queries
        for found in table.to_table(columns=["id"], nearest={"column": "v", "q": row["v"], "k": 4})[
            "id"
        ].to_pylist()
    }
    call = "lance_vector_search('vectors.t', u.v, 4, vector_column => 'v')"
    rows = catalog.sql(
        f"SELECT u.id, r.id, r.even FROM vectors.t AS u, LATERAL (SELECT id, "
        f"if(id % 2 = 0, id, NULL) AS even FROM {call}) AS r WHERE u.id IN (3, 50, 77)"
    )
    assert set(map(tuple, rows)) == expected
    assert len(rows) == len(expected)
    rows = catalog.sql(
        "SELECT u.id, r.* FROM (SELECT id, if(id = 3, v, NULL) AS v FROM vectors.t WHERE id < 4) AS "
        "u LEFT JOIN LATERAL lance_vector_search('vectors.t', u.v, 1, vector_column => 'v', columns "
        "=> array('id'), filter => 'id != 3', nprobes => 2) AS r"
    )
    (other,) = nearest_others(table, 3)
    assert sorted((row[0], row[1]) for row in rows if row[0] == 3) == [(3, other)]
    assert sorted((row[0], row[1], row[2]) for row in rows if row[0] < 3) == [
        (0, None, None),
        (1, None, None),
        (2, None, None),
    ]
    for statement, message in (
        (f"SELECT * FROM vectors.t u, LATERAL (SELECT count(*) FROM {call}) r", "LATERAL lance"),
        (f"SELECT (SELECT max(id) FROM {call}) FROM vectors.t AS u", "LATERAL lance"),
    ):
        assert message in catalog.refusal(statement)


def nearest_others(table: Any, row: int) -> list[int]:
    """Return the id of the row nearest to another one."""
    (vector,) = table.to_table(columns=["v"], filter=f"id = {row}")["v"].to_pylist()
    search = {"column": "v", "q": vector, "k": 1}
    found = table.to_table(columns=["id"], nearest=search, filter=f"id != {row}", prefilter=True)
    ids: list[int] = found["id"].to_pylist()
    return ids
