"""A Lance table on a cluster: written, read, appended to, and read as it was before, by separate
processes.

    spark-submit --master "local-cluster[2,1,1024]" --properties-file spark-conf/spark-defaults.conf
    \
        examples/spark_submit.py [folder or URI]

The driver plans and commits; the executors, which are other processes, write and read the data
files. Their Python needs this package: install it, or set PYTHONPATH to the checkout.
PYSPARK_PYTHON names the interpreter.
"""

from __future__ import annotations

import os
import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import lance_spark


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="lance-")
    path = f"{base.rstrip('/')}/readings.lance"
    spark = SparkSession.builder.appName("lance_spark on a cluster").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Only the driver has the rule: executors get partitions and readers, as Spark itself has them.
    lance_spark.enable(spark)

    def table(**options: object) -> DataFrame:
        return spark.read.format("lance").options(**options).load(path)

    readings = spark.range(0, 200_000, numPartitions=4).select(
        "id",
        (fn.col("id") % 100).cast("int").alias("sensor"),
        fn.sin("id").cast("float").alias("value"),
        fn.array(*[(fn.col("id") * i).cast("float") for i in range(8)]).alias("vector"),
        fn.timestamp_seconds(fn.col("id")).alias("at"),
    )

    readings.write.format("lance").option("vector.arrow.fixed-size-list.size", 8).mode(
        "overwrite"
    ).save(path)
    first = lance_spark.open_dataset(path).version
    print(f"wrote    {table().count():>7,} rows to {path}, version {first}")

    # Where the rows are decoded: in Python workers of the executors, none of which is the driver's.
    pids = table().select("id").mapInArrow(worker_pids, "pid long").distinct().collect()
    print(f"read     by {len(pids)} Python workers, the driver is process {os.getpid()}")

    readings.where("sensor < 10").write.format("lance").mode("append").save(path)
    print(f"appended {table().count():>7,} rows now")
    print(f"before   {table(version=first).count():>7,} rows, in version {first}")

    busiest = (
        table()
        .groupBy("sensor")
        .agg(fn.count("*").alias("n"), fn.max("at"))
        .orderBy(fn.desc("n"), "sensor")
    )
    busiest.show(3, truncate=False)
    assert table().count() == 220_000
    assert table(version=first).count() == 200_000
    assert table().where("size(vector) = 8 and vector[2] = 2 * vector[1]").count() == 220_000
    spark.stop()


def worker_pids(batches):  # type: ignore[no-untyped-def]
    """Say which process a partition was handed to."""
    import pyarrow as pa

    for _ in batches:
        pass
    yield pa.record_batch({"pid": pa.array([os.getpid()], pa.int64())})


if __name__ == "__main__":
    main()
