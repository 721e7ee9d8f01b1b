"""Options of reads by name, the function lance_changes, and Spark's clause CHANGES."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException

from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.settings import restored
from tests.support.spark.versions import SPARK

PASSES_OPTIONS = SPARK >= (4, 3)
HAS_CHANGES = SPARK >= (4, 2)
BUCKETING = "spark.sql.sources.v2.bucketing.enabled"


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> TestCatalog:
    """A table whose versions 2 to 5 insert, insert, update and delete."""
    made = TestCatalog.of(spark, "queried", tmp_path_factory.mktemp("queried"))
    made.run(
        [
            "CREATE TABLE CAT.t (id INT, b BINARY) TBLPROPERTIES "
            "('enable_stable_row_ids' = 'true', 'b.lance.encoding' = 'blob')",
            "INSERT INTO CAT.t VALUES (1, X'01')",
            "INSERT INTO CAT.t VALUES (2, X'02'), (3, NULL)",
            "UPDATE CAT.t SET id = 20 WHERE id = 2",
            "DELETE FROM CAT.t WHERE id = 3",
        ]
    )
    return made


def test_versions_by_option(spark: Any, catalog: TestCatalog) -> None:
    assert spark.read.option("version", 2).table("queried.t").count() == 1
    assert catalog.sql("SELECT count(*) FROM CAT.t WITH ('version' = '3')") == [(3,)]
    with pytest.raises(Exception, match="99"):
        spark.read.option("version", 99).table("queried.t").collect()
    with pytest.raises(Exception, match="vers1on"):
        spark.read.option("vers1on", 2).table("queried.t").collect()


def test_references_to_one_table_have_their_own_options(catalog: TestCatalog) -> None:
    old = "CAT.t WITH ('version' = '3')"
    catalog.run([f"CREATE TEMPORARY VIEW old_rows AS SELECT id FROM {old}"])
    for query, expected in {
        f"SELECT (SELECT count(*) FROM {old}), (SELECT count(*) FROM CAT.t)": (3, 2),
        f"SELECT count(a.id), count(b.id) FROM {old} a FULL JOIN CAT.t b ON a.id = b.id": (3, 2),
        f"SELECT count(*) FROM CAT.t WHERE id NOT IN (SELECT id FROM {old})": (1,),
        f"SELECT sum(id) FROM (SELECT id FROM CAT.t UNION ALL SELECT id FROM {old})": (27,),
        "SELECT count(*) FROM old_rows JOIN CAT.t USING (id)": (1,),
    }.items():
        assert catalog.sql(query) == [expected], query


def test_two_versions_are_refused(spark: Any, catalog: TestCatalog) -> None:
    read = spark.read.option("versionAsOf", 1)
    assert read.option("version", 1).table("queried.t").count() == 0
    with pytest.raises(Exception, match="option version is 2"):
        read.option("version", 2).table("queried.t").collect()
    with pytest.raises(Exception, match="option version is 2"):
        catalog.sql("SELECT * FROM CAT.t VERSION AS OF 1 WITH ('version' = '2')")


def test_options_that_change_the_columns(spark: Any, catalog: TestCatalog) -> None:
    queries: dict[str, Callable[[], Any]] = {
        "blobs": lambda: spark.read.option("blob_handling", "none").table("queried.t"),
        "with": lambda: spark.sql(
            "SELECT * FROM queried.t WITH ('blob_handling' = 'none') WHERE id < 99"
        ),
    }
    for query in queries.values():
        if PASSES_OPTIONS:
            assert sorted(query().collect()) == [(1,), (20,)]
        else:
            with pytest.raises(Exception, match="blob_handling change the columns"):
                query().collect()
    assert dict(spark.table("queried.t").dtypes)["b"] == "binary"
    assert spark.table("queried.t").columns == ["id", "b"]
    options = {"readChangeFeed": "true", "startingVersion": "4"}
    if PASSES_OPTIONS:
        assert spark.read.options(**options).table("queried.t").count() == 3
        assert spark.read.option("columns", "id").table("queried.t").columns == ["id"]


@pytest.mark.skipif(not PASSES_OPTIONS, reason="a change feed by name needs Spark 4.3")
@pytest.mark.parametrize("bucketing", ["false", "true"])
def test_joins_and_groups_of_a_change_feed(
    spark: Any, catalog: TestCatalog, bucketing: str, pushed: None
) -> None:
    options = {"readChangeFeed": "true", "startingVersion": "2"}
    feed = spark.read.options(**options).table("queried.t")
    with restored(spark, BUCKETING):
        spark.conf.set(BUCKETING, bucketing)
        joined = feed.join(spark.table("queried.t"), "id")
        assert sorted(row.id for row in joined.collect()) == [1, 20]
        assert feed.groupBy("_change_type").count().count() == 4


def test_the_function_returns_the_change_feed(
    spark: Any, catalog: TestCatalog, read: Callable[..., Any]
) -> None:
    path = str(catalog.root / "t.lance")
    options = {"readChangeFeed": True, "startingVersion": 2, "endingVersion": 4}
    expected = sorted(
        read(path, **options).select("id", "_change_type", "_commit_version").collect()
    )
    assert len(expected) == 5
    for table in ("queried.t", f"queried.`{path}`", path):
        query = f"SELECT id, _change_type, _commit_version FROM lance_changes('{table}', 2, 4)"
        assert sorted(spark.sql(query).collect()) == expected
    (row,) = catalog.sql(
        "SELECT *, string(_commit_timestamp) AS shown FROM lance_changes('queried.t', 5) "
        "WHERE _change_type = 'delete'"
    )
    assert (row.id, row._commit_version) == (3, 5)
    since = row._commit_timestamp.isoformat(sep=" ")
    for bound, count in (
        # Texts without an offset are in the zone of the session.
        (f"'{row.shown}'", 1),
        (f"TIMESTAMP'{since}+00:00'", 1),
        (f"TIMESTAMP_NTZ'{row.shown}'", 1),
        ("DATE'2100-01-01'", 0),
        ("5S", 1),
    ):
        query = f"SELECT count(*) FROM lance_changes('queried.t', {bound})"
        assert catalog.sql(query) == [(count,)], bound
    spark.sql("DECLARE OR REPLACE VARIABLE first INT DEFAULT 5")
    assert catalog.sql("SELECT count(*) FROM lance_changes('queried.t', first)") == [(1,)]
    spark.sql("USE queried")
    try:
        assert catalog.sql("SELECT count(*) FROM lance_changes('t', 2, 2)") == [(1,)]
    finally:
        spark.sql("USE spark_catalog")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("lance_changes('queried.t')", "has 0 bounds"),
        ("lance_changes('queried.t', 1, 2, 3)", "has 3 bounds"),
        ("lance_changes('queried.t', NULL)", "a bound is null"),
        ("lance_changes('queried.t', 2, 77)", "77"),
        ("lance_changes('queried.t', 77)", "startingVersion is 77"),
        ("lance_changes('queried.t', 1.5D)", "startingTimestamp must be a time"),
        ("lance_changes('queried.t', INTERVAL 2 SECONDS)", "startingTimestamp must be a time"),
        ("lance_changes('queried.t', 3, 1)", "starts at version 3 and ends at version 1"),
        ("lance_changes('queried.t', start => 2)", "a constant without a name, not start => 2"),
        ("lance_changes('queried.t', (SELECT 2))", "a constant without a name"),
        ("lance_changes('queried.missing', 2)", "missing"),
    ],
)
def test_calls_that_are_refused(catalog: TestCatalog, call: str, message: str) -> None:
    with pytest.raises(IllegalArgumentException, match=re.escape(message)) as error:
        catalog.sql(f"SELECT * FROM {call}")
    assert "Traceback" not in str(error.value)


@pytest.mark.skipif(not HAS_CHANGES, reason="the clause is new in Spark 4.2")
def test_the_clause_of_spark(spark: Any, catalog: TestCatalog) -> None:
    def rows(query: str) -> list[Any]:
        return sorted(catalog.sql(f"SELECT id, _change_type, _commit_version FROM {query}"))

    clause = "CAT.t CHANGES FROM VERSION 2 TO VERSION 4"
    assert rows(clause) == rows("lance_changes('queried.t', 2, 4)")
    assert rows("CAT.t CHANGES FROM VERSION 2 EXCLUSIVE TO VERSION 4") == rows(
        "lance_changes('queried.t', 3, 4)"
    )
    net = "SELECT * FROM CAT.t CHANGES FROM VERSION 2 WITH (deduplicationMode = 'netChanges')"
    assert "the change feed has the changes of each version" in catalog.refusal(net)
    missing = "SELECT * FROM CAT.t CHANGES FROM VERSION 77"
    assert "startingVersion is 77" in catalog.refusal(missing)
