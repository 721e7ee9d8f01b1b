"""Each Spark job of a change has a description in the web interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lance_spark import LanceTable
from lance_spark.spark.jvm.enable import CONF
from tests.support.spark.settings import restored

NAME = "described"
_KEY = "spark.job.description"


@pytest.fixture(autouse=True)
def no_description(spark: Any) -> None:
    """Drop what another test has set in the thread."""
    spark.sparkContext.setLocalProperty(_KEY, None)


def jobs_of(spark: Any, action: Callable[[], object]) -> list[str | None]:
    """Return the descriptions of the jobs that an action runs."""
    store = spark.sparkContext._jsc.sc().statusStore()
    before = {job.jobId() for job in _jobs(spark, store)}
    action()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    new = [job for job in _jobs(spark, store) if job.jobId() not in before]
    texts = [job.description() for job in new]
    return [text.get() if text.isDefined() else None for text in texts]


def _jobs(spark: Any, store: Any) -> list[Any]:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = store.jobsList(None)
    return [jobs.apply(index) for index in range(jobs.size())]


def test_jobs_of_statements(spark: Any, root: Path) -> None:
    table, other = f"{NAME}.t", f"{NAME}.other"
    sql = spark.sql
    source = f"(SELECT id, id AS k, 'z' AS s FROM {other} WHERE id % 2 = 0)"
    merge = f"MERGE INTO {table} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    statements = {
        f"CREATE TABLE {table} AS SELECT id, id % 7 AS k, 'a' AS s FROM range(3000)": "lance write",
        f"CREATE TABLE {other} AS SELECT id, id % 7 AS k, 'a' AS s FROM range(40)": "lance write",
        f"INSERT INTO {table} SELECT id, 0, 'b' FROM range(10)": "lance write",
        f"UPDATE {table} SET s = 'u' WHERE id IN (SELECT id FROM {other})": "lance update",
        f"DELETE FROM {table} WHERE k IN (SELECT id + 5 FROM {other})": "lance delete",
        merge: "lance merge",
        f"{merge} WHEN NOT MATCHED BY SOURCE AND t.id > 2990 THEN DELETE": "lance merge",
        f"CREATE INDEX i ON {table} USING BTREE (id)": "lance create index",
        f"OPTIMIZE {table}": "lance optimize",
    }
    for statement, start in statements.items():
        texts = jobs_of(spark, lambda statement=statement: sql(statement))
        assert texts, statement
        assert all(text is not None and text.startswith(start) for text in texts), statement
        assert spark.sparkContext.getLocalProperty(_KEY) is None
    # That of the user stays.
    spark.sparkContext.setJobDescription("mine")
    try:
        insert = f"INSERT INTO {table} SELECT id, 0, 'b' FROM range(10)"
        assert set(jobs_of(spark, lambda: sql(insert))) == {"mine"}
        assert spark.sparkContext.getLocalProperty(_KEY) == "mine"
    finally:
        spark.sparkContext.setLocalProperty(_KEY, None)


def test_after_a_statement_that_fails(spark: Any, root: Path) -> None:
    """Later jobs do not have its description."""
    spark.sql(f"CREATE TABLE {NAME}.f AS SELECT id, id AS k FROM range(100)")
    source = "(SELECT id, raise_error('no') AS k FROM range(10) GROUP BY ALL)"
    merge = f"MERGE INTO {NAME}.f t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    with pytest.raises(Exception, match="no"):
        spark.sql(merge)
    # Also without push-down.
    with restored(spark, CONF):
        spark.conf.set(CONF, "false")
        texts = jobs_of(spark, spark.range(100).repartition(2).collect)
    assert set(texts) == {None}
    assert spark.sparkContext.getLocalProperty(_KEY) is None


def test_jobs_of_lance_table(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = spark.range(300_000).selectExpr("id", "id % 7 AS k")
    write = rows.write.format("lance").save
    assert {text.split(" /")[0] for text in map(str, jobs_of(spark, lambda: write(path)))} == {
        "lance write"
    }
    few = spark.range(3).selectExpr("id", "id AS k")
    table = LanceTable.forPath(spark, path)
    merge = table.merge(few, "target.id = source.id").whenMatchedUpdateAll()
    for action, start in (
        (merge.execute, "lance merge"),
        (lambda: table.optimize(z_order_by=["id", "k"]), "lance optimize"),
    ):
        texts = jobs_of(spark, action)
        assert texts
        assert all(text is not None and text.startswith(start) for text in texts)
