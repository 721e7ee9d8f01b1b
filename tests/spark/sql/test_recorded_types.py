"""Columns of types that Arrow lacks, by name and by path. Spark over Parquet is the oracle of
queries and of checks; pylance reads what was written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

import lance_spark
from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.versions import HAS_TIME, SPARK

NAME = "recorded"

COLUMNS = (
    "id INT, x VARIANT, c CHAR(4), w VARCHAR(4), l STRING COLLATE UTF8_LCASE, d INTERVAL DAY, "
    "n STRUCT<c: ARRAY<CHAR(3)>, m: MAP<STRING, INTERVAL HOUR TO MINUTE>, "
    "s: STRING COLLATE UTF8_LCASE>"
)
ROWS = """
    SELECT 1 AS id, parse_json('{"a": [1, 2]}') AS x, 'ab' AS c, 'ab' AS w, 'aB' AS l,
      INTERVAL '5' DAY AS d, named_struct('c', array('x', NULL),
      'm', map('k', INTERVAL '1:30' HOUR TO MINUTE), 's', 'Ä') AS n
    UNION ALL SELECT 2, NULL, NULL, NULL, NULL, NULL, NULL
    UNION ALL SELECT 3, parse_json('7'), 'abcd', '', 'Ab', INTERVAL '-1' DAY, NULL
"""
QUERIES = [
    "SELECT id, to_json(x), c, w, l, d, n FROM {} ORDER BY id",
    "SELECT id FROM {} WHERE c = 'ab' OR try_variant_get(x, '$', 'int') = 7 ORDER BY id",
    "SELECT id FROM {} WHERE l = 'ab' ORDER BY id",
    "SELECT id FROM {} WHERE l IN ('AB', 'x') AND l LIKE 'A%' AND contains(l, 'B') ORDER BY id",
    "SELECT count(*), max(l), min(d) FROM {} WHERE l > 'aa'",
    "SELECT lower(l), count(*), count(DISTINCT l) FROM {} GROUP BY l ORDER BY 1",
    "SELECT id FROM {} WHERE n.s = 'ä' OR n.c[0] = 'x'",
    "SELECT id FROM {} WHERE d > INTERVAL '0' DAY AND x IS NOT NULL",
    "SELECT id FROM {} WHERE x IS NULL",
]
TOO_LONG = ["'abcde', 'a'", "'a', 'abcde'"]


#: Spark 4.0 cannot plan an INSERT of a UNION into columns of char(n): docs/reference/types.md.
needs_unions = pytest.mark.skipif(SPARK < (4, 1), reason="Spark 4.0 fails to plan the INSERT")


@needs_unions
def test_rows_are_those_of_parquet(spark: Any, catalog: TestCatalog) -> None:
    spark.sql("DROP TABLE IF EXISTS recorded_oracle")
    spark.sql(f"CREATE TABLE recorded_oracle ({COLUMNS}) USING parquet")
    catalog.sql(f"CREATE TABLE CAT.t ({COLUMNS})")
    assert catalog.sql("SELECT * FROM CAT.t") == []
    for table in ("recorded_oracle", "recorded.t"):
        spark.sql(f"INSERT INTO {table} {ROWS}")
    assert spark.table("recorded.t").schema == spark.table("recorded_oracle").schema
    types = [row.data_type for row in catalog.sql("DESCRIBE CAT.t")]
    assert types == [row.data_type for row in spark.sql("DESCRIBE recorded_oracle").collect()]
    for query in QUERIES:
        expected = spark.sql(query.format("recorded_oracle")).collect()
        assert spark.sql(query.format("recorded.t")).collect() == expected, query
    rows = catalog.rows("t")
    assert [row["c"] for row in rows] == ["ab  ", None, "abcd"]
    assert rows[0]["n"]["c"] == ["x  ", None]
    metadata = catalog.pylance("t").schema.field("x").metadata
    assert metadata[b"ARROW:extension:name"] == b"arrow.parquet.variant"
    for values in TOO_LONG:
        with pytest.raises(Exception, match="EXCEED_LIMIT_LENGTH"):
            catalog.sql(f"INSERT INTO CAT.t (c, w) VALUES ({values})")
    spark.sql("DROP TABLE recorded_oracle")


@needs_unions
def test_rows_are_changed(catalog: TestCatalog) -> None:
    catalog.sql(f"CREATE TABLE CAT.changed ({COLUMNS})")
    catalog.run(
        [
            f"INSERT INTO CAT.changed {ROWS}",
            "UPDATE CAT.changed SET x = parse_json('[3]'), c = 'z', d = INTERVAL '8' DAY WHERE l = 'AB'",
            f"MERGE INTO CAT.changed t USING (SELECT id + 1 AS i, * FROM ({ROWS})) s "
            "ON t.id = s.i WHEN MATCHED THEN UPDATE SET x = s.x, l = s.l "
            "WHEN NOT MATCHED THEN INSERT (id, x, n) VALUES (s.i, s.x, s.n)",
            "DELETE FROM CAT.changed WHERE c = 'z' AND id = 1",
        ]
    )
    query = "SELECT id, to_json(x) x, c, l, n.s FROM CAT.changed ORDER BY id"
    assert [tuple(row) for row in catalog.sql(query)] == [
        (2, '{"a":[1,2]}', None, "aB", None),
        (3, None, "z   ", None, None),
        (4, "7", None, None, None),
    ]
    assert len(catalog.rows("changed")) == 3


def test_alter_column_changes_the_record(spark: Any, catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE TABLE CAT.altered (a VARCHAR(2), b CHAR(2))",
            "ALTER TABLE CAT.altered ALTER COLUMN a TYPE VARCHAR(3)",
            "ALTER TABLE CAT.altered ALTER COLUMN b TYPE STRING",
            "ALTER TABLE CAT.altered ADD COLUMN x VARIANT",
            "INSERT INTO CAT.altered VALUES ('abc', 'abcdef', NULL)",
        ]
    )
    types = [row.data_type for row in catalog.sql("DESCRIBE CAT.altered")]
    assert types == ["varchar(3)", "string", "variant"]


def test_user_defined_types(
    spark: Any, catalog: TestCatalog, tmp_path: Path, read: Callable[..., Any]
) -> None:
    from pyspark.ml.linalg import Matrices, Vectors, VectorUDT
    from pyspark.sql.types import ArrayType, IntegerType, StructType

    matrix = Matrices.dense(1, 2, [3.0, 4.0])
    rows = [(1, Vectors.dense([1.0, 2.0]), [Vectors.sparse(3, [1], [9.0])]), (2, None, None)]
    schema = StructType().add("id", IntegerType()).add("v", VectorUDT())
    frame = spark.createDataFrame(rows, schema.add("a", ArrayType(VectorUDT())))
    frame.write.format("lance").mode("append").save(str(tmp_path / "t.lance"))
    frame.writeTo("recorded.vectors").create()
    catalog.sql("UPDATE CAT.vectors SET v = a[0] WHERE id = 1")
    for result, first in ((read(), rows[0][1]), (spark.table("recorded.vectors"), rows[0][2][0])):
        assert result.schema.simpleString() == "struct<id:int,v:vector,a:array<vector>>"
        assert [tuple(row) for row in result.orderBy("id").collect()] == [
            (1, first, rows[0][2]),
            rows[1],
        ]
    matrices = spark.createDataFrame([(matrix,)], ["m"])
    matrices.write.format("lance").mode("append").save(str(tmp_path / "m.lance"))
    assert read(str(tmp_path / "m.lance")).collect() == [(matrix,)]
    values = lance.dataset(str(tmp_path / "t.lance")).to_table().column("v").to_pylist()
    assert values[0]["values"] == [1.0, 2.0]
    # A stream of such a column returns rows.
    stream = spark.readStream.format("lance").load(str(tmp_path / "t.lance")).writeStream
    collected: list[Any] = []
    stream = stream.foreachBatch(lambda batch, _: collected.extend(batch.collect()))
    query = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    assert query.start().awaitTermination(60)
    assert sorted(tuple(row) for row in collected) == sorted(rows, key=lambda row: row[0])


def test_batches_of_columns_are_written_as_rows(spark: Any, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors

    lance_spark.enable(spark)
    vectors = [(1, Vectors.dense([1.0, 2.0])), (2, Vectors.sparse(3, [1], [9.0])), (3, None)]
    frame = spark.createDataFrame(vectors, ["id", "v"]).selectExpr(
        "id",
        "v",
        "array(v, NULL) AS vs",
        "if(id = 2, NULL, parse_json(concat('[', id, ', \"ä\"]'))) AS x",
        "if(id = 1, NULL, named_struct('x', parse_json('7'), 'n', id)) AS s",
        "map('k', parse_json('{\"a\": null}'), 'n', NULL) AS m",
    )
    tables = []
    for columnar in ("true", "false"):
        spark.conf.set("spark.lance.columnar.enabled", columnar)
        frame.write.format("lance").save(str(tmp_path / columnar))
        tables.append(lance.dataset(str(tmp_path / columnar)).to_table().sort_by("id"))
    spark.conf.unset("spark.lance.columnar.enabled")
    assert tables[0].schema.equals(tables[1].schema, check_metadata=True)
    assert tables[0].equals(tables[1])
    variants = [row.x for row in frame.orderBy("id").collect()]
    assert tables[0]["x"].to_pylist() == [
        x and {"metadata": bytes(x.metadata), "value": bytes(x.value)} for x in variants
    ]


@needs_unions
def test_copies_by_path_keep_the_types(
    spark: Any, catalog: TestCatalog, tmp_path: Path, read: Callable[..., Any]
) -> None:
    catalog.sql(f"CREATE TABLE CAT.source ({COLUMNS})")
    catalog.sql(f"INSERT INTO CAT.source {ROWS}")
    source = spark.table("recorded.source")
    path = str(tmp_path / "t.lance")
    source.write.format("lance").mode("append").save(path)
    source.write.format("lance").mode("append").save(path)
    assert read().schema == source.schema
    assert sorted(row.c or "" for row in read().collect()) == sorted(
        2 * [row.c or "" for row in source.collect()]
    )
    plain = spark.sql("SELECT struct(X'00' AS metadata, X'00' AS value) AS x")
    with pytest.raises(Exception, match="column x is variant in the table"):
        plain.write.format("lance").mode("append").save(path)
    for text in ("l = 'ab'", "c = 'ab'", "n.s > 'a'"):
        with pytest.raises(Exception, match="does not compare by bytes"):
            read(filter=text).collect()


@pytest.mark.skipif(not HAS_TIME, reason="Spark 4.0 has no geometries and times")
def test_geometries_and_times(
    spark: Any, catalog: TestCatalog, tmp_path: Path, read: Callable[..., Any]
) -> None:
    settings = ("spark.sql.timeType.enabled", "spark.sql.geospatial.enabled")
    for name in settings:
        spark.conf.set(name, "true")
    try:
        wkb = "X'0101000000000000000000F03F0000000000000040'"
        query = (
            f"SELECT ST_GeomFromWKB({wkb}) AS g, array(ST_GeogFromWKB({wkb}), NULL) AS h, "
            "CAST(TIME'10:11:12' AS TIME(0)) AS t UNION ALL SELECT NULL, NULL, NULL"
        )
        frame = spark.sql(query)
        frame.write.format("lance").mode("append").save(str(tmp_path / "t.lance"))
        catalog.sql(f"CREATE TABLE CAT.places AS {query}")
        catalog.sql("UPDATE CAT.places SET g = NULL, t = NULL WHERE g IS NOT NULL")
        assert read().schema == frame.schema == spark.table("recorded.places").schema
        shown = [(str(row.g), str(row.h), str(row.t)) for row in read().orderBy("t").collect()]
        assert shown == [(str(r.g), str(r.h), str(r.t)) for r in frame.orderBy("t").collect()]
        assert [row["g"] for row in catalog.rows("places")] == [None, None]
        field = lance.dataset(str(tmp_path / "t.lance")).schema.field("g")
        assert field.metadata[b"ARROW:extension:name"] == b"geoarrow.wkb"
    finally:
        for name in settings:
            spark.conf.unset(name)
