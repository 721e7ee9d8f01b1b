"""Random nested tables that pylance has written: Spark reads the rows that pylance reads, by
columns and by rows.

    python -m tests.support.spark.random_tables SESSION FIRST TABLES

SESSION is a master, or `remote` for a client of Spark Connect with a server of its own. FIRST is the
first seed.
"""

from __future__ import annotations

import datetime as dt
import io
import os
import sys
import tempfile
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import lance
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import lance_spark
from tests.support.interop.tables import assert_same, random_table
from tests.support.spark.converted import converted
from tests.support.spark.processes import ROOT, WORKERS

MAX_ROWS = 1_200
COLUMNAR = "spark.lance.columnar.enabled"
REMOTE = "remote"


def check_tables(spark: Any, seeds: Iterable[int], folder: Path) -> int:
    """Write a table for each seed, and compare what Spark and pylance read.

    All rows must be read by tasks. Returns the number of tables that were compared: some cannot be
    written by pylance, or have values that Python does not have.
    """
    num_compared = 0
    for seed in seeds:
        path = folder / f"{seed}.lance"
        table = random_table(seed, maps=True, max_rows=MAX_ROWS)
        try:
            lance.write_dataset(table, path, data_storage_version="2.2", max_rows_per_file=500)
        except OSError as error:
            # A defect of pylance, for some nested structs with nulls.
            if "null_bit_buffer size too small" in str(error):
                continue
            raise
        stored = lance_spark.open_dataset(str(path)).to_table()
        assert_same(stored, lance.dataset(path).to_table())
        expected = converted(stored)
        if expected is None:
            continue
        try:
            rows = _texts(expected[1].to_pylist(maps_as_pydicts="lossy"))
        except OverflowError:
            # Python has no dates before the year 1 or after 9999.
            continue
        for columnar in ("true", "false"):
            spark.conf.set(COLUMNAR, columnar)
            frame = spark.read.format("lance").load(str(path))
            plan = _plan_of(frame)
            assert ("columnar=yes" in plan) == (columnar == "true"), plan
            try:
                collected = frame.collect()
            except AnalysisException as error:
                # Clients of Spark Connect cannot collect values of the type TIME.
                if "UNSUPPORTED_TIME_TYPE" in str(error):
                    break
                raise
            # In an order that all readers know: that of the tasks.
            assert _texts([row.asDict(True) for row in collected]) == rows, (seed, columnar)
        else:
            num_compared += 1
        spark.conf.unset(COLUMNAR)
    return num_compared


def _plan_of(frame: Any) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        frame.explain()
    return printed.getvalue()


def _plain(value: Any) -> Any:
    """Return a value as Spark and Arrow have it in common: local times, bytes, keys in order."""
    if isinstance(value, dict):
        # Spark's rows have the entries of maps in any order.
        return {_plain(key): _plain(item) for key, item in sorted(value.items())}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)
    return value


def _texts(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as texts, in which NaN equals NaN."""
    return [repr(_plain(row)) for row in rows]


def _session(session: str) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(WORKERS), str(ROOT)])
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if session == REMOTE:
        return builder.remote("local[2]").getOrCreate()
    return builder.master(session).getOrCreate()


def main() -> None:
    session, first, tables = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    spark = _session(session)
    lance_spark.enable(spark)
    spark.conf.set("spark.lance.pushdown.local", "false")
    with tempfile.TemporaryDirectory() as folder:
        print(check_tables(spark, range(first, first + tables), Path(folder)))
    spark.stop()


if __name__ == "__main__":
    main()
