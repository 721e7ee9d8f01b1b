"""A table of orders: created, changed, extended by columns, and sorted by `LanceTable`.

Each step is a Spark job and one commit.

python examples/lance_table.py [folder]
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import lance_spark
from lance_spark import LanceTable


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    path = str(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-data").absolute() / "lance_table")
    shutil.rmtree(path, ignore_errors=True)
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    lance_spark.enable(spark)

    builder = LanceTable.create(spark).location(path)
    builder.addColumn("id", "bigint", nullable=False).addColumn("customer", "string")
    table = builder.addColumn("amount", "double").execute()
    orders = spark.range(0, 10_000, 1, 8).select(
        "id",
        sf.concat(sf.lit("customer "), sf.col("id") % 50).alias("customer"),
        (sf.col("id") % 400 / 4).alias("amount"),
    )
    orders.write.format("lance").mode("append").save(path)

    print("deleted:", table.delete("customer = 'customer 7'").num_deleted_rows)
    result = table.update("amount < 1", {"amount": "amount + 1"})
    print("updated:", result.num_updated_rows)

    table.add_columns({"vat": "amount * 0.19", "big": sf.col("amount") > 90})
    levels = spark.createDataFrame(
        [(f"customer {n}", n % 3) for n in range(50)], "customer string, level int"
    )
    table.add_columns_from(levels, "customer")
    table.rename_column("big", "is_big")

    table.create_tag("before-tidying")
    table.optimize(sort_by="customer").show()
    table.history().select("version", "operation", "num_rows").show(truncate=False)
    table.detail().select("num_fragments", "num_rows", "tags").show(truncate=False)
    table.toDF().where("level = 2 and is_big").orderBy("id").show(5)
    spark.stop()


if __name__ == "__main__":
    main()
