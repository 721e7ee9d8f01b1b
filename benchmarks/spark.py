"""The Spark session of the benchmarks, and their bar charts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks import measuring
from benchmarks.measuring import ROOT, processes_below


def session(cores: int = 2) -> SparkSession:
    """Return a local session that knows the data sources of `benchmarks/sources.py`."""
    from benchmarks.sources import NothingSource, PrebuiltSource, PylanceSource

    # Otherwise Spark's workers run the first python3 on the path, which can lack the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("lance_spark benchmarks")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "6g")
        .config("spark.sql.shuffle.partitions", cores)
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for source in (PrebuiltSource, PylanceSource, NothingSource):
        spark.dataSource.register(source)
    return spark


def drain(frame: DataFrame) -> None:
    """Read all rows and columns into Spark's `noop` sink, which drops them."""
    frame.write.format("noop").mode("overwrite").save()


def processor_seconds(action: Callable[[], object], times: int) -> tuple[float, float]:
    """Return the processor time of the JVM, and of all Python processes below it, for an action.

    The action is run `times` times; the numbers are means. The JVM must be the only child of this
    process.
    """

    def used() -> tuple[float, float]:
        jvm, *workers = map(measuring.processor_seconds, processes_below(os.getpid()))
        return jvm, sum(workers)

    before = used()
    for _ in range(times):
        action()
    jvm, workers = (after - earlier for after, earlier in zip(used(), before, strict=True))
    return jvm / times, workers / times


def plot(title: str, unit: str, results: dict[str, dict[str, float]], path: Path) -> None:
    """Save a bar chart with a group of bars for each table, and a bar for each client."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names, clients = list(results), list(next(iter(results.values())))
    width = 0.8 / len(clients)
    figure, axes = plt.subplots(figsize=(10, 4.5))
    for number, client in enumerate(clients):
        shift = (number - (len(clients) - 1) / 2) * width
        positions = [group + shift for group in range(len(names))]
        axes.bar(positions, [results[name][client] for name in names], width, label=client)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel(unit)
    axes.set_title(title)
    axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
