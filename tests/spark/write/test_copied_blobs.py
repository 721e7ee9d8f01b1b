"""Writes that only copy blobs move locators in place of the bytes: the bytes are those of a SELECT."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from lance_spark import LanceTable
from lance_spark.scan.blobs import MAX_VALUE_BYTES
from lance_spark.spark.table.merge import join
from tests.spark.sql.catalogs import TestCatalog
from tests.support.interop.blobs import MARK, blob_paths
from tests.support.spark.settings import LOCAL, restored

LARGE = MAX_VALUE_BYTES + 1_000
Digest = tuple[int, str] | None
#: Queries of `i`, `b`, and the number of scans in each that return locators.
SHAPES = {
    # Handed on.
    "SELECT i, b FROM CAT.s": 1,
    "SELECT i, c AS b FROM CAT.s ORDER BY n, i": 1,
    "SELECT /*+ REPARTITION(3) */ i, b FROM CAT.s": 1,
    "SELECT i, b FROM CAT.s WHERE b IS NOT NULL AND i > 1 ORDER BY i DESC LIMIT 4": 1,
    "SELECT l.i, l.b FROM CAT.s l JOIN CAT.s r ON l.i = r.i + 1": 1,
    "SELECT l.i, coalesce(r.b, l.b) AS b FROM CAT.s l LEFT JOIN CAT.u r ON l.i = r.i": 2,
    "SELECT i, b FROM CAT.s LEFT SEMI JOIN CAT.u USING (i)": 1,
    "SELECT i, b FROM (SELECT *, row_number() OVER (PARTITION BY i % 3 ORDER BY i) AS r "
    "FROM CAT.s) WHERE r = 1": 1,
    "SELECT i, b FROM CAT.s UNION ALL SELECT i, c FROM CAT.u UNION ALL SELECT i, p FROM CAT.s": 2,
    "SELECT m, b FROM CAT.s LATERAL VIEW explode(array(i, -i)) AS m": 1,
    "SELECT i, CASE WHEN i % 2 = 0 THEN b WHEN b IS NULL THEN c ELSE X'01' END AS b FROM CAT.s": 1,
    "SELECT l.i, l.b FROM CAT.s l, (SELECT length(b) AS n FROM CAT.u WHERE i = 4) r "
    "WHERE l.i < r.n": 1,
    # Looked at.
    "SELECT i, b FROM CAT.s WHERE length(b) > 3": 0,
    "SELECT i, concat(b, X'00') AS b FROM CAT.s": 0,
    "SELECT i, first(b) FROM CAT.s GROUP BY i": 0,
    "SELECT DISTINCT i, b FROM CAT.s": 0,
    "SELECT max(i), b FROM CAT.s GROUP BY b": 0,
    "SELECT l.i, l.b FROM CAT.s l JOIN CAT.s r ON l.b = r.b": 0,
    "SELECT i, b FROM CAT.s ORDER BY b LIMIT 2": 0,
    "SELECT i, max(b) OVER (PARTITION BY i) AS b FROM CAT.s": 0,
    "SELECT i, b FROM CAT.s WHERE b IN (SELECT b FROM CAT.u)": 0,
    "SELECT i, b FROM CAT.s s WHERE EXISTS (SELECT 1 FROM CAT.u u WHERE u.b = s.b)": 0,
    "SELECT i, (SELECT max(b) FROM CAT.u WHERE i = 4) AS b FROM CAT.s": 0,
    "SELECT i, map_from_arrays(array(i), array(b))[i] AS b FROM CAT.s": 0,
    "SELECT i, b FROM CAT.s EXCEPT ALL SELECT i, b FROM CAT.u": 0,
}


@pytest.fixture(autouse=True)
def _tasks(spark: Any, pushed: None) -> Iterator[None]:
    with restored(spark, LOCAL):
        spark.conf.set(LOCAL, "false")
        yield


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> TestCatalog:
    catalog = TestCatalog.of(spark, "copied_blobs", tmp_path_factory.mktemp("copied_blobs"))
    for name, ids in (("s", range(10)), ("u", range(4, 8))):
        large = {i: f"{name}{i}.".encode() * (LARGE // 3) for i in ids}
        small = {i: (large[i], None, b"", f"{name}{i}".encode())[i % 4] for i in ids}
        columns = {
            "i": pa.array(ids, pa.int64()),
            "b": pa.array(small.values(), pa.large_binary()),
            "c": pa.array([value + b"c" for value in large.values()], pa.large_binary()),
            "p": pa.array([b"plain"] * len(ids)),
            "n": pa.array([1] * len(ids), pa.int32()),
        }
        fields = [
            pa.field(name, column.type, metadata=MARK if name in "bc" else None)
            for name, column in columns.items()
        ]
        lance.write_dataset(
            pa.table(list(columns.values()), schema=pa.schema(fields)),
            str(catalog.root / f"{name}.lance"),
            data_storage_version="2.2",
            max_rows_per_file=5,
        )
    return catalog


def digest(value: Any) -> Digest:
    return None if value is None else (len(value), hashlib.md5(value).hexdigest())


def written(path: str, *columns: str) -> dict[int, Any]:
    """Return digests by `i`, as pylance reads them."""
    dataset = lance.dataset(path)
    dataset.validate()
    rows = dataset.to_table(["i", *columns], blob_handling="all_binary").to_pylist()
    assert len({row["i"] for row in rows}) == len(rows)
    return {row["i"]: tuple(digest(row[name]) for name in columns) for row in rows}


def scans(plan: str) -> int:
    return len(re.findall(r"locators=\[", plan))


def test_shapes_of_queries(catalog: TestCatalog, spark: Any) -> None:
    queries = [query.replace("CAT.", f"{catalog.name}.") for query in SHAPES]
    union = " UNION ALL ".join(
        f"SELECT {number} AS shape, i, b FROM ({query}) AS q{number} (i, b)"
        for number, query in enumerate(queries)
    )
    catalog.sql(
        "CREATE TABLE CAT.out (shape INT, i BIGINT, b BINARY) "
        "TBLPROPERTIES ('b.lance.encoding' = 'blob')"
    )
    insert = f"INSERT INTO {catalog.name}.out {union}"
    if scans(spark.sql(f"EXPLAIN {insert}").first()[0]) != sum(SHAPES.values()):
        for query, number in zip(queries, SHAPES.values(), strict=True):
            alone = spark.sql(f"EXPLAIN INSERT INTO {catalog.name}.out SELECT 0, * FROM ({query})")
            assert scans(alone.first()[0]) == number, query
        raise AssertionError("the scans of all queries together differ from those of each")
    spark.sql(insert)
    expected = sorted((row[0], row[1], str(digest(row[2]))) for row in spark.sql(union).collect())
    stored = catalog.pylance("out").to_table(blob_handling="all_binary").to_pylist()
    found = sorted((row["shape"], row["i"], str(digest(row["b"]))) for row in stored)
    assert found == expected


def test_statements(catalog: TestCatalog, spark: Any) -> None:
    path, before = catalog.pylance("s").uri, written(catalog.pylance("s").uri, "b", "c")
    other = written(catalog.pylance("u").uri, "b", "c")
    plans: list[int] = []

    def run(statement: str) -> None:
        plans.append(scans(catalog.sql(f"EXPLAIN {statement}")[0][0]))
        catalog.sql(statement)

    # The same values, in other columns, and in a table that replaces itself.
    catalog.sql("CREATE TABLE CAT.t AS SELECT i, c AS b, b AS c, p, n FROM CAT.s")
    target = catalog.pylance("t").uri
    assert blob_paths(lance.dataset(target).schema) == ["b", "c"]
    assert written(target, "c", "b") == before
    catalog.sql("CREATE OR REPLACE TABLE CAT.t AS SELECT i, c AS b, b AS c, p, n FROM CAT.t")
    assert written(target, "b", "c") == before
    run("INSERT OVERWRITE CAT.t SELECT * FROM CAT.t VERSION AS OF 1 WHERE i < 4")
    assert written(target, "c", "b") == {i: v for i, v in before.items() if i < 4}
    run("INSERT OVERWRITE CAT.t TABLE CAT.s")
    # Values of both tables, and such that stay.
    run(
        "MERGE INTO CAT.t USING (SELECT i + 4 AS i, b, c, p, 2 AS n FROM CAT.u) u ON t.i = u.i "
        "WHEN MATCHED AND u.i = 8 THEN UPDATE SET b = u.b, c = t.b, n = 7 "
        "WHEN MATCHED THEN UPDATE SET n = 8 WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.i = 0 THEN DELETE"
    )
    expected = {i: value for i, value in before.items() if i}
    expected[8] = (other[4][0], before[8][0])
    expected |= {i + 4: value for i, value in other.items() if i > 5}
    assert written(target, "b", "c") == expected
    run("MERGE INTO CAT.t USING CAT.u ON t.i = u.i WHEN MATCHED THEN UPDATE SET *")
    expected |= other
    assert written(target, "b", "c") == expected
    run("MERGE INTO CAT.t USING CAT.s ON t.i = s.i WHEN NOT MATCHED THEN INSERT *")
    expected[0] = before[0]
    assert written(target, "b", "c") == expected
    run("UPDATE CAT.t SET b = c, c = b WHERE i % 2 = 0")
    expected |= {i: (c, b) for i, (b, c) in expected.items() if i % 2 == 0}
    assert written(target, "b", "c") == expected
    run("UPDATE CAT.t SET n = 4 WHERE i > 2")
    run("UPDATE CAT.t SET b = c WHERE length(c) < 10")
    expected |= {i: (c, c) for i, (_, c) in expected.items() if c is not None and c[0] < 10}
    assert written(target, "b", "c") == expected
    assert plans == [1, 1, 2, 1, 1, 1, 0, 0]
    # A column of other values, not of blobs, and a path.
    spark.sql(f"CREATE TABLE {catalog.name}.plain (i BIGINT, b BINARY)")
    catalog.sql("INSERT INTO CAT.plain SELECT i, b FROM CAT.s")
    assert written(catalog.pylance("plain").uri, "b") == {i: v[:1] for i, v in before.items()}
    frame = spark.read.format("lance").load(path)
    copy = str(Path(path).parent / "copy.lance")
    frame.repartition(2).write.format("lance").save(copy)
    spark.read.format("lance").load(copy).sort("i").write.format("lance").mode("overwrite").save(
        copy
    )
    assert written(copy, "b", "c") == before


def test_jobs_of_a_table(catalog: TestCatalog, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = catalog.pylance("s").uri
    before, other = written(path, "b", "c"), written(catalog.pylance("u").uri, "b", "c")
    plans: list[int] = []
    original: Callable[..., Any] = type(spark.range(1)).mapInArrow

    def planned(frame: Any, *arguments: Any) -> Any:
        result = original(frame, *arguments)
        plans.append(scans(result._jdf.queryExecution().toString()))
        return result

    monkeypatch.setattr(type(spark.range(1)), "mapInArrow", planned)
    # A small source of a large table is kept, but for its blobs.
    monkeypatch.setattr(join, "MIN_TABLE_ROWS", 1)
    table = LanceTable.forPath(spark, path).alias("t")
    source = spark.table(f"{catalog.name}.u").withColumn("i", F.col("i") + 4)
    table.merge(source, "t.i = source.i").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert plans[0] == 1
    expected = before | {i + 4: value for i, value in other.items()}
    assert written(path, "b", "c") == expected
    table.merge(source, "t.i = source.i").whenMatchedUpdate(
        set={"c": "t.b", "b": "source.c"}
    ).execute()
    expected |= {i + 4: (value[1], expected[i + 4][0]) for i, value in other.items()}
    assert written(path, "b", "c") == expected
    table.update("i % 2 = 0", {"b": "c", "c": "b"})
    expected |= {i: (c, b) for i, (b, c) in expected.items() if i % 2 == 0}
    assert written(path, "b", "c") == expected
    table.replace_where(source.where("i > 9"), "i > 9")
    expected |= {i + 4: value for i, value in other.items() if i > 5}
    assert written(path, "b", "c") == expected
    assert plans
    table.update("length(c) > 0", {"n": F.length("c")})
    assert written(path, "b", "c") == expected
