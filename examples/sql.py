"""Tables by name and SQL, from an empty folder to MERGE and time travel.

    python examples/sql.py [folder]

The tables of catalog `lake` are in a folder. Each statement that changes a table makes one version.
Every Lance client can read the tables.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import lance_spark


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-data").absolute() / "lake"
    shutil.rmtree(root, ignore_errors=True)
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    lance_spark.enable(spark, "lake", root=str(root))

    # Tables: one with a schema, one from a query.
    spark.sql("CREATE NAMESPACE lake.shop")
    spark.sql(
        "CREATE TABLE lake.shop.customers "
        "(id BIGINT NOT NULL, name STRING, country STRING DEFAULT 'unknown', orders BIGINT) "
        "TBLPROPERTIES ('enable_stable_row_ids' = 'true')"
    )
    spark.sql(
        "INSERT INTO lake.shop.customers VALUES "
        "(1, 'Ada', 'UK', 0), (2, 'Emmy', 'DE', 0), (3, 'Grace', DEFAULT, 0)"
    )
    spark.sql(
        "CREATE TABLE lake.shop.orders AS "
        "SELECT id AS order_id, id % 4 AS customer, cast(id % 50 AS DOUBLE) AS amount "
        "FROM range(1000)"
    )
    spark.sql("SHOW TABLES IN lake.shop").show()

    # Changes of rows. Spark plans the change; tasks write only the changed rows.
    print("version", version(spark), "before changes")
    spark.sql("UPDATE lake.shop.customers SET country = 'US' WHERE name = 'Grace'")
    spark.sql("DELETE FROM lake.shop.orders WHERE amount = 0")
    spark.sql(
        "MERGE INTO lake.shop.customers AS c "
        "USING (SELECT customer, count(*) AS n FROM lake.shop.orders GROUP BY customer) AS o "
        "ON c.id = o.customer "
        "WHEN MATCHED THEN UPDATE SET orders = o.n "
        "WHEN NOT MATCHED THEN INSERT (id, name, orders) VALUES (o.customer, 'new', o.n)"
    )
    spark.sql("SELECT * FROM lake.shop.customers ORDER BY id").show()

    # A new column, and another name for a column.
    spark.sql("ALTER TABLE lake.shop.customers ADD COLUMNS (embedding ARRAY<FLOAT>)")
    spark.sql("ALTER TABLE lake.shop.customers RENAME COLUMN country TO home")

    # A tag protects a version from cleanup. Cleanup removes other old versions.
    spark.sql("CALL lake.system.create_tag('shop.customers', 'first', version => 2)")
    spark.sql("SELECT * FROM lake.shop.customers VERSION AS OF 'first' ORDER BY id").show()
    history = spark.sql("CALL lake.system.history('shop.customers')")
    history.select("version", "operation", "num_rows").show()

    # DataFrames by name.
    customer = [(7, "Katherine", "US", 0, None)]
    columns = "id bigint, name string, home string, orders bigint, embedding array<float>"
    spark.createDataFrame(customer, columns).writeTo("lake.shop.customers").append()
    print(spark.table("lake.shop.customers").count(), "customers")
    spark.stop()


def version(spark: SparkSession) -> int:
    """Return the newest version of the customers."""
    history = spark.sql("CALL lake.system.history('shop.customers', limit => 1)")
    return int(history.first()["version"])


if __name__ == "__main__":
    main()
