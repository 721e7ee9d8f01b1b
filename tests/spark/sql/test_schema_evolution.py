"""MERGE and INSERT WITH SCHEMA EVOLUTION: new columns, wider types, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import expr

from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.versions import SPARK

NAME = "evolution"

pytestmark = pytest.mark.skipif(SPARK < (4, 1), reason="Spark 4.0 has no schema evolution")
later = pytest.mark.skipif(SPARK < (4, 2), reason="the statement needs Spark 4.2")

MERGE = (
    "MERGE WITH SCHEMA EVOLUTION INTO CAT.{} AS t USING ({}) AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def rows(catalog: TestCatalog, name: str) -> list[tuple[Any, ...]]:
    """Return the rows as pylance reads them, by increasing id."""
    return sorted(tuple(row.values()) for row in catalog.rows(name))


def test_columns_and_fields_of_structs_are_added(catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE TABLE CAT.added (id BIGINT NOT NULL, s STRUCT<a: STRUCT<b: INT>>)",
            "INSERT INTO CAT.added VALUES (1, struct(struct(1))), (2, struct(struct(2)))",
            MERGE.format(
                "added",
                "SELECT 2L AS id, named_struct('a', named_struct('b', 20, 'c', 'z'), 'q', true) "
                "AS s, 'new' AS n UNION ALL SELECT 3L, NULL, 'newer'",
            ),
        ]
    )
    assert rows(catalog, "added") == [
        (1, {"a": {"b": 1, "c": None}, "q": None}, None),
        (2, {"a": {"b": 20, "c": "z"}, "q": True}, "new"),
        (3, None, "newer"),
    ]
    # One version has the columns, and one the rows.
    assert catalog.pylance("added").version == 4


def test_fields_that_the_query_lacks(catalog: TestCatalog) -> None:
    """As in Delta, an update keeps them outside arrays and maps; otherwise they are null."""
    struct = "STRUCT<a: INT, b: STRUCT<c: INT, d: STRING>>"
    catalog.run(
        [
            f"CREATE TABLE CAT.lacking (id INT, s {struct}, l ARRAY<{struct}>, "
            f"m MAP<STRING, {struct}>)",
            "INSERT INTO CAT.lacking SELECT id, s, array(s), map('k', s) FROM "
            "(SELECT explode(array(1, 2)) AS id, struct(1, struct(2, 'x')) AS s)",
        ]
    )
    query = (
        "SELECT id, named_struct('b', b, 'new', true) AS s, array(named_struct('b', b)) AS l, "
        "map('k', named_struct('b', b)) AS m FROM "
        "(SELECT explode(array({})) AS id, named_struct('c', 5) AS b)"
    )
    old: dict[str, Any] = {"a": 1, "b": {"c": 2, "d": "x"}}
    kept: dict[str, Any] = {"a": 1, "b": {"c": 5, "d": "x"}}
    filled: dict[str, Any] = {"a": None, "b": {"c": 5, "d": None}}
    true = {"new": True}
    catalog.sql(MERGE.format("lacking", query.format("2, 3")))
    expected = [
        (1, {**old, "new": None}, [old], [("k", old)]),
        (2, {**kept, **true}, [filled], [("k", filled)]),
        (3, {**filled, **true}, [filled], [("k", filled)]),
    ]
    if SPARK >= (4, 2):
        insert = "INSERT WITH SCHEMA EVOLUTION INTO CAT.lacking BY NAME "
        catalog.sql(insert + query.format("4"))
        expected.append((4, *expected[2][1:]))
    assert rows(catalog, "lacking") == expected
    plain = MERGE.replace(" WITH SCHEMA EVOLUTION", "")
    assert "CANNOT_FIND_DATA" in catalog.refusal(plain.format("lacking", query.format("2")))


def test_types_become_wider(catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE TABLE CAT.wider (id BIGINT, i INT, f ARRAY<FLOAT>)",
            "INSERT INTO CAT.wider VALUES (1, 1, array(1.5)), (2, 2, NULL)",
            MERGE.format("wider", "SELECT 2L AS id, 5000000000L AS i, array(0.1D) AS f"),
        ]
    )
    assert rows(catalog, "wider") == [(1, 1, [1.5]), (2, 5_000_000_000, [0.1])]


def test_types_do_not_become_narrower(catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE TABLE CAT.narrower (id BIGINT, d DECIMAL(9, 2), v BIGINT)",
            "INSERT INTO CAT.narrower VALUES (1, 1.5, 1)",
        ]
    )
    merge = MERGE.format("narrower", "SELECT 1 AS id, 2.25BD AS d, 7 AS v, 'x' AS n")
    if SPARK < (4, 2):
        assert "holds fewer values" in catalog.refusal(merge)
        return
    catalog.sql(merge)
    assert [str(field.type) for field in catalog.pylance("narrower").schema] == [
        "int64",
        "decimal128(9, 2)",
        "int64",
        "string",
    ]
    assert [row["v"] for row in catalog.rows("narrower")] == [7]


def test_a_statement_without_new_columns_is_one_version(catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE TABLE CAT.same AS SELECT id, 'a' AS s FROM range(3)",
            MERGE.format("same", "SELECT id, 'b' AS s FROM range(2, 4)"),
        ]
    )
    assert catalog.pylance("same").version == 2
    assert rows(catalog, "same") == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]


def test_merge_into_of_dataframes(spark: Any, catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.frames AS SELECT id, 0 AS v FROM range(3)")
    frame = spark.sql("SELECT id, 1 AS v, 'x' AS n FROM range(2, 4)").alias("s")
    condition = expr(f"{catalog.name}.frames.id = s.id")
    merge = frame.mergeInto(f"{catalog.name}.frames", condition).withSchemaEvolution()
    merge.whenMatched().updateAll().whenNotMatched().insertAll().merge()
    assert rows(catalog, "frames") == [(0, 0, None), (1, 0, None), (2, 1, "x"), (3, 1, "x")]


@later
def test_inserts(catalog: TestCatalog) -> None:
    insert = "INSERT WITH SCHEMA EVOLUTION"
    catalog.run(
        [
            "CREATE TABLE CAT.inserts AS SELECT id FROM range(1)",
            f"{insert} INTO CAT.inserts BY NAME SELECT 'b' AS b, 1L AS id",
            f"{insert} INTO CAT.inserts SELECT 2L, 'b', 'c' AS c",
            f"{insert} INTO CAT.inserts REPLACE WHERE id = 1 SELECT 1L, 'B', 'C', 'D' AS d",
        ]
    )
    assert rows(catalog, "inserts") == [
        (0, None, None, None),
        (1, "B", "C", "D"),
        (2, "b", "c", None),
    ]
    catalog.sql(f"{insert} OVERWRITE TABLE CAT.inserts BY NAME SELECT 9L AS id, 'e' AS e")
    assert rows(catalog, "inserts") == [(9, None, None, None, "e")]


@later
def test_blobs_keep_their_values(catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE TABLE CAT.blobs (id BIGINT, data BINARY) "
            "TBLPROPERTIES ('data.lance.encoding' = 'blob')",
            "INSERT INTO CAT.blobs VALUES (1, X'0102'), (2, X'03')",
            MERGE.format("blobs", "SELECT 2L AS id, X'FF' AS data, 'k' AS n"),
        ]
    )
    dataset = catalog.pylance("blobs")
    ids = dataset.to_table(columns=["id"])["id"].to_pylist()
    blobs = [blob.readall() for blob in dataset.take_blobs("data", indices=[0, 1])]
    assert dict(zip(ids, blobs, strict=True)) == {1: b"\x01\x02", 2: b"\xff"}


def test_a_refused_change_leaves_the_table(catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE TABLE CAT.refused (id BIGINT, a ARRAY<STRUCT<x: INT>>, i INT)",
            "INSERT INTO CAT.refused VALUES (1, array(struct(1)), 1)",
        ]
    )
    fields = MERGE.format("refused", "SELECT 1L AS id, array(named_struct('x', 1, 'y', 2)) AS a")
    assert "a.element.y cannot be added" in catalog.refusal(fields)
    second_merge = MERGE.format("refused", "SELECT 1L AS id, 'text' AS i, 'x' AS n")
    assert "only to another size or precision" in catalog.refusal(second_merge)
    dataset = catalog.pylance("refused")
    assert dataset.version == 2
    assert dataset.schema.names == ["id", "a", "i"]


def test_a_statement_that_fails_later_leaves_the_new_columns(catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.failed AS SELECT id, 'a' AS s FROM range(3)")
    merge = MERGE.format("failed", "SELECT 1L AS id, 'b' AS s, 'n' AS n FROM range(2)")
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        catalog.sql(merge)
    assert rows(catalog, "failed") == [(0, "a", None), (1, "a", None), (2, "a", None)]


def test_two_clients_add_columns(catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.clients AS SELECT id FROM range(4)")

    def merge(client: int) -> None:
        catalog.sql(
            MERGE.format("clients", f"SELECT id, 'v{client}' AS c{client} FROM range({client}, 4)")
        )

    errors = []
    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(merge, client) for client in range(2)]:
            if (error := future.exception()) is not None:
                errors.append(str(error))
    assert all("overtaken" in error or "columns" in error for error in errors), errors
    table = catalog.rows("clients")
    for client in range(2):
        values = [row.get(f"c{client}") for row in sorted(table, key=lambda row: row["id"])]
        done = [None] * client + [f"v{client}"] * (4 - client)
        assert values == done or (errors and values == [None] * 4)
