"""Two streams of sensor readings: from files into a table, and from this table into another table.

Each stream writes each row exactly once.

python examples/streaming.py [folder]
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import lance_spark


def write_hour(spark: SparkSession, landing: str, hour: int) -> None:
    """Write a file with the readings of one hour."""
    sensors = spark.range(100).withColumnRenamed("id", "sensor").withColumn("hour", sf.lit(hour))
    readings = sensors.withColumn("celsius", sf.round(20 + 5 * sf.sin(sf.col("sensor") + hour), 2))
    readings.coalesce(1).write.mode("append").parquet(landing)


def run(frame: DataFrame, checkpoint: str, table: str) -> None:
    """Write all rows that have arrived, and stop. The next run continues at this point."""
    writer = frame.writeStream.format("lance").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(table).awaitTermination()


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-streams").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    landing, readings, alarms = (
        str(folder / name) for name in ("landing", "readings.lance", "alarms.lance")
    )
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("lance_spark streams")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    schema = "sensor bigint, hour int, celsius double"

    # Files become versions of a table. With stable row ids, the change feed has the values of a row
    # before and after an update.
    empty = pa.schema([("sensor", pa.int64()), ("hour", pa.int32()), ("celsius", pa.float64())])
    lance_spark.write_dataset(empty.empty_table(), readings, enable_stable_row_ids=True)
    for hour in range(2):
        write_hour(spark, landing, hour)
        files = spark.readStream.schema(schema).parquet(landing)
        run(files, str(folder / "checkpoint-readings"), readings)
    table = lance_spark.open_dataset(readings)
    print(f"{table.count_rows()} readings in version {table.version}")

    # A stream can also read the table: first all rows, then the rows that arrive.
    hot = spark.readStream.format("lance").load(readings).where("celsius > 24.9")
    run(hot, str(folder / "checkpoint-alarms"), alarms)
    print(f"{lance_spark.open_dataset(alarms).count_rows()} alarms")
    write_hour(spark, landing, 2)
    files = spark.readStream.schema(schema).parquet(landing)
    run(files, str(folder / "checkpoint-readings"), readings)
    run(hot, str(folder / "checkpoint-alarms"), alarms)
    print(f"{lance_spark.open_dataset(alarms).count_rows()} alarms an hour later")

    # A correction of sensor 7, and a removal of sensor 8. The change feed shows both changes.
    before = lance_spark.open_dataset(readings).version
    lance_spark.open_dataset(readings).update(
        {"celsius": 19.0}, [("sensor", "==", 7), ("hour", "==", 0)]
    )
    lance_spark.open_dataset(readings).delete([("sensor", "==", 8)])
    feed = spark.read.format("lance").option("readChangeFeed", True)
    feed.option("startingVersion", before + 1).load(readings).orderBy(
        "_commit_version", "hour", "_change_type"
    ).show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
