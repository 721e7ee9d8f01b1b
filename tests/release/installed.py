"""Tries an installed package: `make dist` runs this with the Python of a clean environment,
outside the checkout.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import lance_spark


def main() -> None:
    """Write and read a table with Spark and without."""
    package = Path(lance_spark.__file__).parent
    checkout = Path(__file__).parent.parent
    assert not package.is_relative_to(checkout / "lance_spark"), f"{package} is the checkout"
    assert (package / "py.typed").exists()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    lance_spark.enable(spark)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t.lance"
        lance_spark.write_dataset(pa.table({"id": [1, 2, 3]}), path)
        spark.range(4, 6).write.format("lance").mode("append").save(path)
        lance_spark.LanceTable.forPath(spark, path).delete("id = 2")
        table = spark.read.format("lance").load(path)
        assert [row.id for row in table.where("id > 1").orderBy("id").collect()] == [3, 4, 5]
        assert lance_spark.is_enabled(spark)
        assert lance_spark.open_dataset(path).count_rows() == 4
    spark.stop()
    print(f"lance_spark {lance_spark.__version__} works from {package}")


if __name__ == "__main__":
    main()
