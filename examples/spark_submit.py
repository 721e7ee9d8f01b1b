"""A Lance table on a cluster: written, read, appended to, and read in an old version.

    spark-submit --master "local-cluster[2,1,1024]" --properties-file spark-conf/spark-defaults.conf
    \
        examples/spark_submit.py [folder or URI]

The driver plans and commits. The executors are separate processes; they write and read the data
files. The Python of the executors needs this package: install the package, or set PYTHONPATH to the
checkout. PYSPARK_PYTHON names the interpreter.
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
    # Only the driver needs the optimizer's rule.
    lance_spark.enable(spark)

    def table(**options: object) -> DataFrame:
        return spark.read.format("lance").options(**options).load(path)

    readings = spark.range(0, 200_000, numPartitions=4).select(
        "id",
        (fn.col("id") % 100).cast("int").alias("sensor"),
        fn.sin("id").cast("float").alias("value"),
        fn.array(*[(fn.col("id") * number).cast("float") for number in range(8)]).alias("vector"),
        fn.timestamp_seconds(fn.col("id")).alias("at"),
    )

    readings.write.format("lance").option("vector.arrow.fixed-size-list.size", 8).mode(
        "overwrite"
    ).save(path)
    first_version = lance_spark.open_dataset(path).version
    print(f"wrote    {table().count():>7,} rows to {path}, version {first_version}")

    # Python workers of the executors decode the rows. The driver decodes no rows.
    pids = table().select("id").mapInArrow(worker_pids, "pid long").distinct().collect()
    print(f"read     by {len(pids)} Python workers, the driver is process {os.getpid()}")

    readings.where("sensor < 10").write.format("lance").mode("append").save(path)
    print(f"appended {table().count():>7,} rows now")
    print(f"before   {table(version=first_version).count():>7,} rows, in version {first_version}")

    busiest = (
        table()
        .groupBy("sensor")
        .agg(fn.count("*").alias("n"), fn.max("at"))
        .orderBy(fn.desc("n"), "sensor")
    )
    busiest.show(3, truncate=False)
    assert table().count() == 220_000
    assert table(version=first_version).count() == 200_000
    assert table().where("size(vector) = 8 and vector[2] = 2 * vector[1]").count() == 220_000
    spark.stop()


def worker_pids(batches):  # type: ignore[no-untyped-def]
    """Yield the id of the process that reads a partition."""
    import pyarrow as pa

    for _ in batches:
        pass
    yield pa.record_batch({"pid": pa.array([os.getpid()], pa.int64())})


if __name__ == "__main__":
    main()
