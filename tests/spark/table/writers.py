"""One of two processes that change a table at the same time; it reads commands from stdin.

A command is a line of JSON: {"race": folder, "job": name, "arguments": {...}}. The table is `t` in
the folder. NAME is the name of this process:

| file | meaning |
| --- | --- |
| NAME.hold | stop before the first commit of the operation that the text names, or of any |
| NAME.ready | this process has stopped there; the text is the newest version that it knows |
| NAME.go | continue |
| NAME.conflicts | a line of JSON per conflict: the operation, whether it is retryable, the error |
| NAME.answer | the end: {"result": ...} or {"error": type, "text": ..., "retryable": ...} |

Writes of DataFrames commit in a Python process of Spark: `HeldSource` stops there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lance_spark import LanceTable
from lance_spark.errors import CommitConflictError
from lance_spark.spark.datasource import LanceDataSource
from lance_spark.spark.write.writer import LanceWriter
from lance_spark.table.commit import commit
from tests.support.spark.settings import INTERPRETED

#: No process waits longer.
PATIENCE = 120.0


def hold(name: str) -> None:
    """Stop before commits if the folder of the race requests it, and record conflicts in the
    folder.
    """
    attempt, run = commit._Attempts._attempt, commit._Attempts.run
    if attempt.__name__ == "held":
        return

    def held(self: Any, scheme: Any) -> Any:
        folder = folder_of(self._store)
        operation = self._transaction.operation.name
        wanted, go = folder / f"{name}.hold", folder / f"{name}.go"
        if wanted.exists() and not go.exists() and wanted.read_text() in ("", operation):
            said(folder / f"{name}.ready", str(self._newest.version))
            deadline = time.monotonic() + PATIENCE
            while not go.exists():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{go} did not come")
                time.sleep(0.005)
        return attempt(self, scheme)

    def noted(self: Any, *arguments: Any) -> Any:
        try:
            return run(self, *arguments)
        except CommitConflictError as error:
            line = [self._transaction.operation.name, error.retryable, str(error)]
            with (folder_of(self._store) / f"{name}.conflicts").open("a") as file:
                file.write(json.dumps(line) + "\n")
            raise

    commit._Attempts._attempt = held  # type: ignore[method-assign]
    commit._Attempts.run = noted  # type: ignore[method-assign]


def folder_of(store: Any) -> Path:
    return Path(store.uri).parent


def said(file: Path, text: str) -> None:
    """Write a file atomically."""
    part = file.with_suffix(file.suffix + ".part")
    part.write_text(text)
    part.rename(file)


class HeldWriter(LanceWriter):
    """A writer that stops before its commit."""

    held_name: str

    def commit(self, messages: list[Any]) -> None:
        hold(self.held_name)
        super().commit(messages)


class HeldSource(LanceDataSource):
    """The source with a `HeldWriter`, by another name: Spark 4.0 cannot replace a source."""

    @classmethod
    def name(cls) -> str:
        return "held_lance"

    def writer(self, schema: Any, overwrite: bool) -> Any:
        writer: Any = super().writer(schema, overwrite)
        writer.__class__ = HeldWriter
        writer.held_name = os.environ["PAIR_NAME"]
        return writer


def rows(spark: SparkSession, first: int, stop: int, factor: int) -> Any:
    # Columns may be null, as columns of the tables.
    ids = spark.range(first, stop).selectExpr("if(id < 0, null, id) AS id")
    return ids.selectExpr("id", "cast(id % 5 as int) AS g", f"id * {factor} AS v")


def listed(ids: list[int]) -> str:
    return f"id in ({', '.join(map(str, ids))})"


class Jobs:
    """The changes that a process can make. Each change records the name of its process in its
    transaction.

    Parameters
    ----------
    spark : SparkSession
    folder : Path
        Of the race.
    name : str
        Of this process.
    more : dict
        Arguments of methods of `LanceTable`, such as ``conflict_retries``.
    """

    def __init__(self, spark: SparkSession, folder: Path, name: str, more: dict[str, Any]) -> None:
        self.spark = spark
        self.name = name
        self.path = str(folder / "t")
        self.more = {"commit_message": name, **more}

    @property
    def table(self) -> LanceTable:
        return LanceTable.forPath(self.spark, self.path)

    def _write(self, frame: Any, mode: str) -> None:
        writer = (
            frame.write.format(HeldSource.name()).mode(mode).option("commit_message", self.name)
        )
        writer.save(self.path)

    def append(self, first: int, stop: int) -> None:
        self._write(rows(self.spark, first, stop, 10), "append")

    def overwrite(self, first: int, stop: int, columns: list[str]) -> None:
        self._write(rows(self.spark, first, stop, -1).select(columns), "overwrite")

    def delete(self, ids: list[int]) -> None:
        self.table.delete(listed(ids), **self.more)

    def update(self, ids: list[int], mode: str) -> None:
        self.table.update(listed(ids), {"v": "v * 2 + 1"}, mode=mode, **self.more)  # type: ignore[arg-type]

    def merge(self, ids: list[int], first: int, stop: int) -> None:
        """Triple the values of rows with these ids, and of new rows that exist already."""
        source = rows(self.spark, 0, 60, 10).where(listed(ids))
        source = source.union(rows(self.spark, first, stop, 10)).alias("s")
        merge = self.table.alias("t").merge(source, "t.id = s.id", **self.more)
        merge.whenMatchedUpdate(set={"v": "t.v * 3"}).whenNotMatchedInsert(
            values={"id": "s.id", "g": "s.g", "v": "s.v"}
        ).execute()

    def optimize(self, condition: str | None) -> None:
        self.table.optimize(condition, **self.more)

    def add_columns(self, column: str) -> None:
        self.table.add_columns({column: "v + 1"}, **self.more)


def answer(job: Callable[..., None], arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        job(**arguments)
    except Exception as error:
        return {
            "error": type(error).__name__,
            "text": str(error),
            "retryable": getattr(error, "retryable", None),
        }
    return {}


def session() -> SparkSession:
    """Return a session with one core and little memory."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "600m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "1",
        **INTERPRETED,
        "spark.sql.adaptive.enabled": "false",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(HeldSource)
    return spark


def main(name: str) -> None:
    os.environ["PAIR_NAME"] = name
    hold(name)
    spark = session()
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        folder = Path(request["race"])
        jobs = Jobs(spark, folder, name, request.get("more", {}))
        result = answer(getattr(jobs, request["job"]), request["arguments"])
        said(folder / f"{name}.answer", json.dumps(result))
    spark.stop()
