"""The Spark session of the benchmarks, and their bar charts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks import measuring
from benchmarks.measuring import ROOT, processes_below


def session(cores: int = 2) -> SparkSession:
    """Return a local session that knows the data sources of `benchmarks/sources.py`."""
    from benchmarks.sources import NothingSource, PrebuiltSource, PylanceSource

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

    The action is run `times` times; the numbers are means.
    """

    def used() -> tuple[float, float]:
        (jvm,) = (int(path.name) for path in Path("/proc").iterdir() if _is_child(path))
        below = sum(measuring.processor_seconds(process) for process in processes_below(jvm))
        return measuring.processor_seconds(jvm), below

    before = used()
    for _ in range(times):
        action()
    jvm, workers = (after - earlier for after, earlier in zip(used(), before, strict=True))
    return jvm / times, workers / times


def _is_child(process: Path) -> bool:
    """Return whether a process is the JVM that this process has started."""
    try:
        parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
        return int(parent) == os.getpid() and "java" in (process / "comm").read_text()
    except (OSError, IndexError):
        return False


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
