"""Uses tables with secrets among the options and in the answers of a REST catalog, and prints every
plan and error; the event log is on.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import lance_spark
from tests.support.spark.processes import logged_session


def use_options(spark: Any, uri: str, options: dict[str, str], shown: str) -> None:
    """Read and write a table by its address."""
    rows = spark.range(3)
    # What Spark does without us.
    store_options = {name: options[name] for name in ("region", "endpoint")}
    for name in ("aws_access_key_id", "aws_secret_access_key", "azure_storage_account_key"):
        store_options[name] = shown
    # A write refuses settings of base paths that the table does not have.
    bases = json.dumps([{"path": path} for path in json.loads(options["base_store_params"])])
    first = rows.write.format("lance").options(**store_options, initial_bases=bases)
    first.mode("append").save(uri)
    spark.read.format("lance").options(**store_options).load(uri).createOrReplaceTempView("before")
    lance_spark.enable(spark)
    rows.write.format("lance").options(**options).mode("overwrite").save(uri)
    frame = spark.read.format("lance").options(**options).load(uri).where("id > 0")
    frame.createOrReplaceTempView("after")
    frame.explain(True)
    print(frame._jdf.queryExecution().toString())
    print("rows", sorted(row.id for row in frame.collect()))
    try:
        spark.read.format("lance").options(**options, version="77").load(uri).collect()
    except Exception as error:
        print("no version", error)


def use_namespace(spark: Any, options: dict[str, str]) -> None:
    """Run statements on tables of a REST catalog, whose server gives secrets."""
    lance_spark.enable(spark, "cat", **options)
    statements = (
        "CREATE TABLE cat.t AS SELECT id, 0 AS v FROM range(4)",
        "INSERT INTO cat.t VALUES (4, 0)",
        "UPDATE cat.t SET v = 1 WHERE id IN (SELECT id FROM range(2))",
        "MERGE INTO cat.t t USING (SELECT 4L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "ALTER TABLE cat.t ADD COLUMN w INT",
        "CREATE TEMPORARY VIEW viewed AS SELECT * FROM cat.t WHERE id > 0",
        "EXPLAIN EXTENDED UPDATE cat.t SET v = 1 WHERE id IN (SELECT id FROM range(2))",
        "EXPLAIN EXTENDED INSERT INTO cat.t SELECT * FROM viewed",
        "DESCRIBE EXTENDED cat.t",
        "SHOW CREATE TABLE cat.t",
        "SHOW TBLPROPERTIES cat.t",
        "CALL cat.system.history('t')",
        "SELECT * FROM cat.nothing",
        "SELECT * FROM cat.t VERSION AS OF 77",
        "INSERT INTO cat.t SELECT id, 5, raise_error('failed') FROM range(1)",
        "CREATE TABLE cat.t (id INT)",
    )
    for statement in statements:
        try:
            for row in spark.sql(statement).collect():
                print(*row)
        except Exception as error:
            print("error", error)
    for local in ("true", "false"):
        spark.conf.set("spark.lance.pushdown.local", local)
        frame = spark.table("viewed")
        frame.explain(True)
        print(frame._jdf.queryExecution().toString())
        print("rows", sorted(tuple(row) for row in frame.collect()))
    print(spark.table("cat.t")._jdf.queryExecution().logical().toJSON())


def main() -> None:
    log, uri, options, shown, catalog = sys.argv[1:]
    spark = logged_session(log)
    use_options(spark, uri, json.loads(options), shown)
    use_namespace(spark, json.loads(catalog))
    spark.stop()


if __name__ == "__main__":
    main()
