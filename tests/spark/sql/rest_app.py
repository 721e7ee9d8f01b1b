"""Runs statements on tables of a REST catalog, whose server gives secrets, and prints every plan and
error; the event log is on.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    import lance_spark
    from tests.support.spark.processes import logged_session

    log, text = sys.argv[1:]
    spark = logged_session(log)
    lance_spark.enable(spark, "cat", **json.loads(text))
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
    spark.stop()


if __name__ == "__main__":
    main()
