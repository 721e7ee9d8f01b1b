"""EXPLAIN and the metrics of the web interface, and sizes by which Spark chooses joins."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import lance
import pytest

from tests.spark.sql.catalogs import TestCatalog


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> TestCatalog:
    catalog = TestCatalog.of(spark, "explains", tmp_path_factory.mktemp("explains"))
    catalog.sql("CREATE TABLE CAT.t (id BIGINT, v BIGINT, s STRING)")
    for start in (0, 10, 20):
        catalog.sql(f"INSERT INTO CAT.t SELECT id, id, 'x' FROM range({start}, {start + 10}, 1, 1)")
    catalog.pylance("t").create_scalar_index("id", "ZONEMAP")
    return catalog


@pytest.fixture
def tasks(spark: Any, set_conf: Callable[[str, str], None]) -> None:
    """Leave all reads to tasks."""
    set_conf("spark.lance.pushdown.enabled", "true")
    set_conf("spark.lance.pushdown.local", "false")


@pytest.fixture
def set_conf(spark: Any) -> Any:
    before: dict[str, str | None] = {}

    def set_one(name: str, value: str) -> None:
        before.setdefault(name, spark.conf.get(name, None))
        spark.conf.set(name, value)

    yield set_one
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def explain(spark: Any, statement: str) -> str:
    return str(spark.sql(f"EXPLAIN {statement}").first()[0])


def metrics(spark: Any, wanted: str) -> dict[str, str]:
    """Return the metrics of the last statement that has a metric, by their descriptions."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    for number in reversed(range(executions.size())):
        execution = executions.apply(number)
        shown = [execution.metrics().apply(i) for i in range(execution.metrics().size())]
        if any(metric.name() == wanted for metric in shown):
            values = store.executionMetrics(execution.executionId())
            return {
                metric.name(): values.apply(metric.accumulatorId())
                for metric in shown
                if values.contains(metric.accumulatorId())
            }
    raise AssertionError(f"no statement has the metric {wanted}")


def test_explain_of_reads(spark: Any, catalog: TestCatalog, tasks: None) -> None:
    path = str(catalog.root / "t.lance")
    version = lance.dataset(path).version
    by_path = spark.read.format("lance").load(path)
    for frame in (spark.table(f"{catalog.name}.t"), by_path):
        query = frame.where("id > 25").select("v").limit(3)
        plan = query._jdf.queryExecution().executedPlan().toString()
        (scan,) = [line for line in plan.splitlines() if "BatchScan" in line]
        assert "columns=[v:bigint]" in scan
        assert re.search(r"id > 25L?[])]", scan)
        assert "limit=3" in scan
        assert "fragments=1 skipped=2 indexes=[id_idx (ZONEMAP): 10 rows] columnar=yes" in scan
        assert f" version={version} table={path}" in scan


def test_explain_of_changes(spark: Any, catalog: TestCatalog, tasks: None) -> None:
    table = f"{catalog.name}.t"
    version = catalog.pylance("t").version
    update = explain(spark, f"UPDATE {table} SET v = v + 1, s = 'y' WHERE id IN (1, 2)")
    assert f"lance UPDATE of version {version}, columns [[v, s]]" in update
    delete = explain(spark, f"DELETE FROM {table} WHERE v IN (SELECT id FROM range(2))")
    assert f"lance DELETE of version {version}" in delete
    (scan,) = [line for line in delete.splitlines() if "BatchScan" in line]
    assert "columns=[v:bigint,_rowaddr:bigint]" in scan
    merge = explain(
        spark,
        f"MERGE INTO {table} t USING (SELECT id FROM range(2)) r ON t.id = r.id "
        "WHEN MATCHED AND r.id = 0 THEN UPDATE SET v = 1 WHEN MATCHED THEN UPDATE SET s = 'y'",
    )
    assert f"lance MERGE of version {version}, columns [[v], [s]]" in merge


def test_metrics_of_statements(spark: Any, catalog: TestCatalog) -> None:
    names = ("rows inserted", "rows updated", "rows deleted", "fragments written", "files written")
    statements = {
        "CREATE TABLE {} AS SELECT id, id AS v FROM range(0, 10, 1, 2)": (10, 0, 0, 2, 2),
        "INSERT INTO {} SELECT id, id FROM range(10, 15, 1, 1)": (5, 0, 0, 1, 1),
        "UPDATE {} SET v = v + 1 WHERE id IN (SELECT id FROM range(3))": (0, 3, 0, 1, 2),
        "DELETE FROM {} WHERE id IN (SELECT id FROM range(12, 14))": (0, 0, 2, 0, 1),
        "MERGE INTO {} t USING (SELECT id FROM range(14, 17)) s ON t.id = s.id WHEN MATCHED THEN "
        "DELETE WHEN NOT MATCHED THEN INSERT (id, v) VALUES (id, 0) "
        "WHEN NOT MATCHED BY SOURCE AND t.id = 9 THEN UPDATE SET v = 90": (2, 1, 1, None, None),
        "INSERT OVERWRITE {} SELECT id, id FROM range(0, 4, 1, 1)": (4, 0, 0, 1, 1),
    }
    for statement, numbers in statements.items():
        spark.sql(statement.format(f"{catalog.name}.counted"))
        values = metrics(spark, "rows inserted")
        for name, number in zip(names, numbers, strict=True):
            assert number is None or values[name] == str(number), (statement, name, values)
        size = values["bytes written"]
        assert size.endswith(("iB", " B"))
    spark.range(7).writeTo(f"{catalog.name}.framed").create()
    assert metrics(spark, "rows inserted")["rows inserted"] == "7"
    saved = str(catalog.root / "saved.lance")
    for rows, mode in ((5, "errorifexists"), (6, "append"), (3, "overwrite")):
        spark.range(0, rows, 1, 2).write.format("lance").mode(mode).save(saved)
        values = metrics(spark, "rows inserted")
        assert [values[name] for name in names] == [str(rows), "0", "0", "2", "2"], mode
        assert values["bytes written"].endswith(("iB", " B"))


def test_metrics_of_reads(spark: Any, catalog: TestCatalog, tasks: None) -> None:
    assert len(spark.table(f"{catalog.name}.t").where("id > 25").collect()) == 4
    values = metrics(spark, "fragments scanned")
    assert (values["fragments scanned"], values["fragments skipped"]) == ("1", "2")


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_metrics_of_what_tasks_read(
    spark: Any,
    catalog: TestCatalog,
    tasks: None,
    set_conf: Callable[[str, str], None],
    adaptive: str,
) -> None:
    set_conf("spark.sql.adaptive.enabled", adaptive)
    wide = f"{catalog.name}.wide_{adaptive}"
    spark.range(0, 40_000, 1, 4).selectExpr(
        "id", "uuid() AS text", "array(id, 1L) AS list"
    ).writeTo(wide).create()
    path = catalog.root / f"wide_{adaptive}.lance"
    size = sum(file.stat().st_size for file in (path / "data").iterdir())
    counted = {}
    for columns in ("id", "id, text", "id, text, list"):
        for frame in (spark.table(wide), spark.read.format("lance").load(str(path))):
            assert len(frame.select(*columns.split(", ")).collect()) == 40_000
            values = metrics(spark, "reads of the store")
            assert values["files opened"] == "4"
            assert int(values["reads of the store"].replace(",", "")) >= 8
            assert {"time to read", "time to decode"} <= set(values)
            counted[columns] = bytes_of(values["bytes read"])
    assert counted["id"] < counted["id, text"] < counted["id, text, list"]
    assert 0.7 * size < counted["id, text, list"] <= size + 4 * 70_000
    joined = f"SELECT count(*), max(a.text) FROM {wide} a JOIN {wide} b ON a.id = b.id + 1"
    assert spark.sql(joined).first()[0] == 39_999
    assert metrics(spark, "reads of the store")["files opened"] == "4"


def bytes_of(shown: str) -> float:
    number, unit = shown.split()
    return float(number) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]


def test_a_small_table_is_broadcast(
    spark: Any, catalog: TestCatalog, tasks: None, set_conf: Callable[[str, str], None]
) -> None:
    catalog.run(
        [
            "CREATE TABLE CAT.large AS SELECT id, repeat('x', 100) AS s FROM range(2000)",
            "CREATE TABLE CAT.small AS SELECT id, 1 AS v FROM range(10)",
        ]
    )
    set_conf("spark.sql.autoBroadcastJoinThreshold", "10000")
    join = "SELECT * FROM {0}.large a JOIN {0}.{1} b ON a.id = b.id"
    assert "BroadcastHashJoin" in explain(spark, join.format(catalog.name, "small"))
    assert "BroadcastHashJoin" not in explain(spark, join.format(catalog.name, "large"))


def test_statistics_cannot_be_stored(catalog: TestCatalog) -> None:
    for words in ("", " FOR ALL COLUMNS"):
        refusal = catalog.refusal(f"ANALYZE TABLE CAT.t COMPUTE STATISTICS{words}")
        assert "ANALYZE TABLE is not supported" in refusal
