"""A Spark session as the benchmarks use it, and how they time a query."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parent.parent


def session(cores: int = 2) -> SparkSession:
    """A local session with the peers' data sources registered."""
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
    """Read every row and column, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def timed(actions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each action; one warm-up round, then the actions in turn, so that noise
    hits all alike.
    """
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(rounds + 1):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def plot(title: str, unit: str, results: dict[str, dict[str, float]], path: Path) -> None:
    """Save a grouped bar chart: one group a table, one bar a client."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names, clients = list(results), list(next(iter(results.values())))
    width = 0.8 / len(clients)
    figure, axes = plt.subplots(figsize=(10, 4.5))
    for i, client in enumerate(clients):
        places = [n + (i - (len(clients) - 1) / 2) * width for n in range(len(names))]
        axes.bar(places, [results[name][client] for name in names], width, label=client)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel(unit)
    axes.set_title(title)
    axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
