"""MERGE INTO reads only rows of the table with keys of a small source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lance
import pytest
from pyspark.errors import PySparkException

NAME = "merge_keys"
ROWS = 1_000
UPSERT = (
    "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (-1, s.v)"
)
UPDATE = "WHEN MATCHED THEN UPDATE SET v = -1"
INSERT = "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.k, -1)"
COLUMNS = (
    "id INT, w STRING, raw BINARY, day DATE, cents DECIMAL(10, 2), small TINYINT, x DOUBLE, "
    "at TIMESTAMP, inner STRUCT<a: INT>, v BIGINT"
)
VALUES = (
    "SELECT int(id), concat('w', id), binary(string(id)), date_add(DATE '2024-01-01', int(id)), "
    "CAST(id / 100 AS DECIMAL(10, 2)), CAST(IF(id % 9 = 1, NULL, id % 100) AS TINYINT), id / 2, "
    "timestamp_micros(id * 1000000 + 7), named_struct('a', int(id)), id FROM range(0, 1000, 1, 20)"
)


ENABLED = "spark.lance.pushdown.enabled"

pytestmark = pytest.mark.usefixtures("pushed")


@pytest.fixture(scope="module")
def table(spark: Any, root: Path) -> str:
    # The rows of more than 16 fragments are not read while a query is planned.
    spark.sql(f"CREATE TABLE {NAME}.t ({COLUMNS})")
    spark.sql(f"INSERT INTO {NAME}.t {VALUES}")
    spark.sql(f"CREATE TABLE {NAME}.s (k BIGINT, v BIGINT)")
    spark.sql(f"INSERT INTO {NAME}.s VALUES (5, 1), (NULL, 2), (5000000000, 3), (7, 4)")
    return f"{NAME}.t"


def filters(spark: Any, statement: str) -> str:
    """Return the filters of the scan of the table in the plan of a statement."""
    (plan,) = spark.sql(f"EXPLAIN {statement}").first()
    scans = [line for line in plan.splitlines() if f"BatchScan {NAME}.t[" in line]
    if not scans:
        return plan
    (scan,) = scans
    match = re.search(r"filters=\[(.*?)\] partitions", scan)
    assert match is not None
    return match[1]


def source(expressions: str) -> str:
    return f"(SELECT * FROM VALUES {expressions} AS x(k)) s"


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("condition", "expressions", "parts"),
    [
        ("t.id = s.k", "(3), (NULL), (3000000), (9)", ["IN (", "3000000"]),
        ("t.ID = s.K", "(4L), (7L), (5000000000L)", ["IN (4, 7)"]),
        ("t.id = s.k", "(5000000000L)", ["false|NULL|null"]),
        ("t.id = s.k", "(CAST(NULL AS INT)), (CAST(NULL AS INT))", ["false"]),
        ("t.id = s.k + 1 AND t.w = concat('w', s.k + 1)", "(3), (4)", ["'w4'", "IN ("]),
        ("t.small = s.k", "(5L), (1000L), (-129L)", ["small"]),
        ("t.w = s.k", "('w5'), ('W6'), (NULL)", ["'w5'"]),
        ("s.k = t.day", "(DATE '2024-01-03'), (NULL)", ["2024-01-03|19725"]),
        ("t.at = s.k", "(TIMESTAMP '1970-01-01 00:00:09.000007Z')", ["at"]),
        ("t.cents = s.k", "(CAST(0.05 AS DECIMAL(10, 2)))", ["0.05"]),
        ("t.raw = s.k", "(X'3137')", ["3137"]),
        ("t.x = s.k", "(1.5D), (-0.0D)", []),
        ("t.inner.a = s.k", "(9), (11)", ["IN (9, 11)"]),
        ("t.id <=> s.k", "(9), (NULL)", []),
        ("t.id = s.k OR t.id = 4", "(4)", []),
        ("t.id = s.k AND t.v > 4", "(3), (9)", ["IN (", "> 4"]),
    ],
)
def test_rows_are_those_of_the_join(
    spark: Any, root: Path, table: str, condition: str, expressions: str, parts: list[str]
) -> None:
    merge = f"MERGE INTO {table} t USING {source(expressions)} ON {condition} {UPDATE}"
    text = filters(spark, merge)
    for part in parts:
        assert any(choice in text for choice in part.split("|")), text
    if not parts:
        assert " IN " not in text
    joined = spark.sql(
        f"SELECT t.id FROM {table} t JOIN {source(expressions)} ON {condition} WHERE t.v >= 0"
    )
    spark.conf.set(ENABLED, "false")
    expected = sorted(row[0] for row in joined.collect())
    spark.conf.set(ENABLED, "true")
    spark.sql(merge)
    path = str(root / "t.lance")
    changed = lance.dataset(path).to_table(["id"], filter="v = -1")["id"].to_pylist()
    try:
        assert sorted(changed) == expected
        assert lance.dataset(path).count_rows() == ROWS
    finally:
        spark.sql(f"UPDATE {table} SET v = id WHERE v = -1")


def test_new_rows_are_inserted(spark: Any, root: Path, table: str) -> None:
    merge = f"MERGE INTO {table} t USING {NAME}.s ON t.id = s.k {UPSERT}"
    assert re.search(r"IN \(5, 7\)", filters(spark, merge))
    spark.sql(merge)
    rows = lance.dataset(str(root / "t.lance")).to_table(["id", "v"]).to_pylist()
    assert sorted((row["id"], row["v"]) for row in rows if row["id"] in (-1, 5, 7)) == [
        (-1, 2),
        (-1, 3),
        (5, 1),
        (7, 4),
    ]
    assert len(rows) == ROWS + 2
    spark.sql(f"DELETE FROM {table} WHERE id = -1")
    spark.sql(f"UPDATE {table} SET v = id WHERE id IN (5, 7)")


def test_statements_that_only_insert(spark: Any, root: Path, table: str) -> None:
    keys = "(5), (NULL), (2000), (2000)"
    merge = f"MERGE INTO {table} t USING {source(keys)} ON t.id = s.k {INSERT}"
    assert re.search(r"IN \(5, 2000\)", filters(spark, merge))
    spark.sql(merge)
    rows = lance.dataset(str(root / "t.lance")).to_table(["id"], filter="v = -1").to_pylist()
    assert sorted(str(row["id"]) for row in rows) == ["2000", "2000", "None"]
    spark.sql(f"DELETE FROM {table} WHERE v = -1")


def test_rows_without_a_match_are_needed(spark: Any, table: str) -> None:
    merge = f"MERGE INTO {table} t USING {NAME}.s ON t.id = s.k {UPSERT}"
    assert " IN " not in filters(spark, merge + " WHEN NOT MATCHED BY SOURCE THEN DELETE")


@pytest.fixture(scope="module")
def large(spark: Any, root: Path) -> str:
    """A table of so many rows that sources are computed before it is read."""
    spark.sql(f"CREATE TABLE {NAME}.large (id INT, w STRING, v BIGINT)")
    spark.sql(
        f"INSERT INTO {NAME}.large SELECT int(id), concat('w', id), 0 FROM range(0, 100000, 1, 17)"
    )
    return f"{NAME}.large"


@pytest.fixture(scope="module")
def files(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files, and views `given` and `shuffled` of rows of the program."""
    folder = tmp_path_factory.mktemp("sources")
    spark.range(5).selectExpr("id * 1000 AS k", "id AS v").write.parquet(str(folder / "few"))
    spark.range(10_001).selectExpr("id AS k", "1L AS v").write.parquet(str(folder / "many"))
    rows = [(3, 1), (500, 2), (None, 3)]
    spark.createDataFrame(rows, "k long, v long").createOrReplaceTempView("given")
    shuffled = spark.sparkContext.parallelize(rows).repartition(2)
    spark.createDataFrame(shuffled, "k long, v long").createOrReplaceTempView("shuffled")
    return folder


def ran(spark: Any, statement: str) -> str:
    """Run a statement that changes `large`, and return the filters of its scan."""
    plans = run_plans(spark, statement)
    scans = re.findall(r"filters=\[(.*?)\] partitions.*large\.lance", "\n".join(plans))
    assert scans, plans
    return str(next((scan for scan in scans if " IN (" in scan), scans[0]))


def run_plans(spark: Any, statement: str) -> list[str]:
    """Run a statement, and return its plan, and those of the queries that it has run."""
    before = max(executions(spark), default=-1)
    spark.sql(statement)
    plans = {number: plan for number, plan in executions(spark).items() if number > before}
    # The executions that compute a source begin after that of the statement.
    return [plans[number] for number in sorted(plans)]


def exchanges(plan: str) -> list[str]:
    """Return the nodes of a plan by which rows move between tasks."""
    return re.findall(r"(\w*Exchange)\b", plan.partition("(1)")[0])


def executions(spark: Any) -> dict[int, str]:
    """Return the plans of all executions by their numbers."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    listed = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [listed.apply(i) for i in range(listed.size())]
    return {plan.executionId(): plan.physicalPlanDescription() for plan in plans}


def jobs(spark: Any) -> int:
    """Return how many jobs have run."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


def changed_rows(spark: Any, root: Path) -> list[tuple[Any, int]]:
    """Return id and v of the rows of `large` that a statement has changed; undo the change."""
    rows = lance.dataset(str(root / "large.lance")).to_table(["id", "v"], filter="v <> 0")
    spark.sql(f"DELETE FROM {NAME}.large WHERE v < 0")
    spark.sql(f"UPDATE {NAME}.large SET v = 0 WHERE v > 0")
    ids = [-1 if id_ is None else id_ for id_ in rows["id"].to_pylist()]
    return sorted(zip(ids, rows["v"].to_pylist(), strict=True))


MERGED = "WHEN MATCHED THEN UPDATE SET v = s.v + 10 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.k, -1)"
FEW = [(0, 10), (1000, 11), (2000, 12), (3000, 13), (4000, 14)]


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("query", "keys", "expected"),
    [
        ("SELECT * FROM parquet.`few`", 5, FEW),
        ("SELECT k, max(v) AS v FROM parquet.`few` WHERE v < 2 GROUP BY k", 2, FEW[:2]),
        ("SELECT a.k, b.v FROM parquet.`few` a JOIN parquet.`few` b ON a.v = b.v", 5, FEW),
        (
            "SELECT k, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS number "
            "FROM parquet.`few`) WHERE number = 1",
            5,
            FEW,
        ),
        ("SELECT id * 1000 AS k, id AS v FROM range(5)", 5, FEW),
        ("SELECT * FROM given", 2, [(-1, -1), (3, 11), (500, 12)]),
        # The table itself.
        (
            f"SELECT id + 1 AS k, id AS v FROM {NAME}.large WHERE id < 3",
            3,
            [(1, 10), (2, 11), (3, 12)],
        ),
        # Rows that are not kept: of long programs, and of functions.
        ("SELECT * FROM shuffled", 0, [(-1, -1), (3, 11), (500, 12)]),
        ("SELECT same(k) AS k, v FROM parquet.`few`", 0, FEW),
    ],
)
def test_rows_of_small_sources_are_kept(
    spark: Any,
    root: Path,
    large: str,
    files: Path,
    query: str,
    keys: int,
    expected: list[tuple[int, int]],
) -> None:
    spark.udf.register("same", lambda value: value, "long")
    query = query.replace("`few`", f"`{files}/few`")
    merge = f"MERGE INTO {large} t USING ({query}) s ON t.id = s.k {MERGED}"
    (plan,) = spark.sql(f"EXPLAIN {merge}").first()
    assert " IN (" not in plan
    text = ran(spark, merge)
    # Spark 4.0 passes predicates, which show a filter without the parentheses.
    match = re.fullmatch(r"\(?(?:t\.)?id IN \((.*?)\)\)?", text)
    assert (len(match[1].split(", ")) if match else 0) == keys, text
    assert changed_rows(spark, root) == expected


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ("t.id = s.k", 10_001),
        ("t.id <=> s.k AND s.v > 0", 10_001),
        ("t.w = s.w", 8_572),
        ("t.w <=> s.w AND s.k < 700", 600),
        ("t.w COLLATE UTF8_LCASE = upper(s.w)", 8_572),
        ("CAST(t.id AS DOUBLE) = s.x AND t.id + 1 > s.k", 9_991),
        ("s.x + 0 = t.id * 1.0D", 9_991),
    ],
)
def test_candidates_of_large_sources_are_joined(
    spark: Any, root: Path, large: str, files: Path, condition: str, matches: int
) -> None:
    """By the comparisons of the join: also nulls, NaN, -0.0, collations and expressions."""
    columns = "k, v, IF(k % 7 = 0, NULL, concat('w', k)) AS w"
    number = "IF(k = 0, -0.0D, IF(k % 1000 = 1, CAST('NaN' AS DOUBLE), CAST(k AS DOUBLE))) AS x"
    source = f"(SELECT {columns}, {number} FROM parquet.`{files}/many`) s"
    plan, *others = run_plans(
        spark,
        f"MERGE INTO {large} t USING {source} ON {condition} "
        "WHEN MATCHED THEN UPDATE SET v = 5 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.k, -1)",
    )
    if condition in ("t.id = s.k", "t.w = s.w"):
        # Python has looked for the keys.
        assert exchanges(plan) == []
        assert "LeftSemi" not in "".join(others)
    else:
        assert "LeftSemi" in plan + "".join(others)
    changed = [v for _, v in changed_rows(spark, root)]
    assert (changed.count(5), changed.count(-1)) == (matches, 10_001 - matches)


def test_rows_of_small_sources_are_joined_in_one_task(
    spark: Any, root: Path, large: str, files: Path
) -> None:
    few = f"SELECT * FROM parquet.`{files}/few`"
    plan, *_ = run_plans(spark, f"MERGE INTO {large} t USING ({few}) s ON t.id = s.k {MERGED}")
    assert exchanges(plan) == []
    assert changed_rows(spark, root) == FEW
    # Rows of the source that match one row are in two partitions.
    merge = f"MERGE INTO {large} t USING ({few} UNION ALL {few}) s ON t.id = s.k {MERGED}"
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        spark.sql(merge)
    # More rows of the table have a key than are collected.
    condition = "t.v = s.v WHEN MATCHED AND s.k < 0 THEN UPDATE SET v = 3"
    plan, *_ = run_plans(spark, f"MERGE INTO {large} t USING ({few}) s ON {condition}")
    assert "BatchScan" in plan


@pytest.mark.parametrize("query", ["SELECT *", "SELECT k, max(v) AS v"])
def test_rows_of_larger_sources_are_joined_in_one_task(
    spark: Any, root: Path, large: str, files: Path, query: str
) -> None:
    query += f" FROM parquet.`{files}/many`" + (" GROUP BY k" if "max" in query else "")
    merge = f"MERGE INTO {large} t USING ({query}) s ON t.id = s.k {MERGED}"
    plan, *others = run_plans(spark, merge)
    assert exchanges(plan) == []
    assert "BatchScan" not in "".join(others)
    assert changed_rows(spark, root) == [(number, 11) for number in range(10_001)]


def test_a_source_is_computed_once(spark: Any, root: Path, large: str) -> None:
    computed = spark.sparkContext.accumulator(0)

    def counted(number: int) -> tuple[int, int]:
        computed.add(1)
        return number, 1

    rows = spark.sparkContext.parallelize(range(100), 4).map(counted)
    spark.createDataFrame(rows, "k long, v long").createOrReplaceTempView("counted")
    merge = f"MERGE INTO {large} t USING counted s ON t.id = s.k {MERGED}"
    assert "99" in ran(spark, merge)
    assert computed.value == 100
    assert len(changed_rows(spark, root)) == 100


def test_batches_of_streams_are_kept(spark: Any, root: Path, large: str, tmp_path: Path) -> None:
    """Spark does not know how many rows a batch has."""
    spark.sql(f"CREATE TABLE {NAME}.arriving AS SELECT id * 1000 AS k, id AS v FROM range(5)")
    scans: list[str] = []
    counts: list[int] = []

    def merge(batch: Any, _: int) -> None:
        batch.createOrReplaceTempView("arrived")
        statement = f"MERGE INTO {large} t USING arrived s ON t.id = s.k {MERGED}"
        before = jobs(spark)
        scans.append(ran(batch.sparkSession, statement))
        counts.append(jobs(spark) - before)

    stream = spark.readStream.table(f"{NAME}.arriving").writeStream.foreachBatch(merge)
    stream = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    stream.start().awaitTermination()
    assert scans
    assert all(" IN (" in scan for scan in scans)
    # A job keeps the rows and returns their keys, one reads their rows of the table, one writes.
    assert set(counts) == {3}
    assert changed_rows(spark, root) == FEW


def test_errors_of_a_source(spark: Any, root: Path, large: str, files: Path) -> None:
    query = f"SELECT CAST(concat('x', k) AS BIGINT) AS k, v FROM parquet.`{files}/few`"
    merge = f"MERGE INTO {large} t USING ({query}) s ON t.id = s.k {MERGED}"
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        spark.sql(merge)
    assert changed_rows(spark, root) == []


def test_statements_that_only_insert_keep_rows(
    spark: Any, root: Path, large: str, files: Path
) -> None:
    merge = (
        f"MERGE INTO {large} t USING parquet.`{files}/few` s ON t.id = s.k + 99000 "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.k, -1)"
    )
    assert "100000" in ran(spark, merge)
    assert changed_rows(spark, root) == [(k, -1) for k in range(1000, 5000, 1000)]


def test_rows_of_small_tables_are_joined(spark: Any, table: str, files: Path) -> None:
    """To compute the source of a small table before is no use."""
    merge = f"MERGE INTO {table} t USING parquet.`{files}/few` s ON t.id = s.k {UPDATE}"
    spark.sql(merge)
    plans = executions(spark)
    plan = plans[max(plans)]
    assert "Scan parquet" in plan
    assert " IN (" not in plan
    spark.sql(f"UPDATE {table} SET v = id WHERE v = -1")


def test_addresses_are_keys(spark: Any, table: str) -> None:
    rows = spark.sql(f"SELECT _rowaddr, id FROM {table} WHERE id IN (3, 500)").collect()
    keys = ", ".join(f"({row[0]}L)" for row in rows)
    spark.sql(f"MERGE INTO {table} t USING {source(keys)} ON t._rowaddr = s.k {UPDATE}")
    assert sorted(
        row[0] for row in spark.sql(f"SELECT id FROM {table} WHERE v = -1").collect()
    ) == [
        3,
        500,
    ]
    spark.sql(f"UPDATE {table} SET v = id WHERE v = -1")


def test_a_row_matches_one_row_of_the_source(spark: Any, table: str) -> None:
    merge = f"MERGE INTO {table} t USING {source('(3), (3)')} ON t.id = s.k {UPDATE}"
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        spark.sql(merge)
