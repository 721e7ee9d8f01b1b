"""A process that makes an upsert, and waits for a file before its first commit.

python upsert_at_once.py TABLE FOLDER ROWS: writes FOLDER/ready, waits for FOLDER/go, and prints the
result as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lance_spark import LanceTable
from lance_spark.mutations import commits
from lance_spark.mutations.rows import update as row_update

#: No process waits longer.
PATIENCE = 240.0


def wait_for(file: Path, still: Any = None) -> None:
    """Wait until a file exists. Raise an error if the process that should write it has ended."""
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        if time.monotonic() > deadline or (still is not None and still() is not None):
            raise TimeoutError(f"{file} did not come")
        time.sleep(0.01)


def main(table: str, folder: str, rows: str) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.driver.host", "localhost")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "600m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    commit = commits.commit_rows

    def held(*arguments: Any, **options: Any) -> Any:
        (Path(folder) / "ready").touch()
        wait_for(Path(folder) / "go")
        return commit(*arguments, **options)

    row_update.commit_rows = held  # type: ignore[attr-defined]
    source = spark.createDataFrame(json.loads(rows), "id bigint, v string")
    result = LanceTable.forPath(spark, table).upsert(source)
    print(json.dumps(dataclasses.asdict(result)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
