"""Changes a table on two executors, one change after another, until it is killed. What it does and
what came of it is in `FOLDER/log`.

python run.py FOLDER FIRST [CHANGE:MOMENT:WHO ...]

The table is `FOLDER/t`. Lines of the log are JSON: {"begun": n, "change": name}, then {"done": n},
{"failed": n, "error": type}, or {"killed": n} if the process that commits a statement was killed. Changes have numbers from FIRST on. Those given are done first,
somebody being killed at the moment (`hook/sitecustomize.py`); without any, changes go on by turns
for ever. Changes are not idempotent: whatever is done twice, or lost, shows in the rows.

| change | of batch n |
| --- | --- |
| append | 400 rows more: `batch` is n |
| update | `n` of all rows of even `id` is one more |
| delete | rows of the oldest batch go, and every seventh row |
| optimize | none; fragments are rewritten |
| merge | rows of the newest batch get `n` ten more, 50 rows more |
| sql_append and others | the same by SQL |
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count, cycle
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lance_spark
from lance_spark import LanceTable
from tests.spark.kills.model import CHANGES, MERGED, ROWS, STATEMENTS
from tests.spark.table.cluster_run import two_hosts
from tests.support.spark.settings import INTERPRETED


class Changes:
    """The changes of a table, as methods with their names."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = path

    @property
    def table(self) -> LanceTable:
        return LanceTable.forPath(self.spark, self.path)

    def _rows(self, batch: int, first: int, stop: int) -> Any:
        ids = self.spark.range(batch * 1000 + first, batch * 1000 + stop, 1, 4)
        return ids.select(
            "id",
            F.lit(batch).cast("bigint").alias("batch"),
            F.lit(0).cast("bigint").alias("n"),
            F.concat(F.lit("row "), "id").alias("text"),
        )

    def append(self, number: int) -> None:
        self._rows(number, 0, ROWS).write.format("lance").mode("append").save(self.path)

    def update(self, number: int) -> None:
        self.table.update("id % 2 = 0", {"n": "n + 1"})

    def delete(self, number: int) -> None:
        oldest = "batch = (SELECT min(batch) FROM oldest WHERE id >= 0)"
        self.table.delete(f"id >= 0 AND ({oldest} OR id % 7 = 3)")

    def optimize(self, number: int) -> None:
        self.table.optimize(target_rows_per_fragment=1000)

    def merge(self, number: int) -> None:
        newest = self.table.toDF().where("batch = (SELECT max(batch) FROM oldest)")
        source = newest.drop("text").unionByName(self._rows(number, 0, MERGED).drop("text"))
        merge = self.table.merge(source, "target.id = source.id")
        merge = merge.whenMatchedUpdate(set={"n": "source.n + 10"})
        merge.whenNotMatchedInsert(
            values={"id": "source.id", "batch": "source.batch", "n": "source.n"}
        ).execute()

    # The same by SQL

    @property
    def _name(self) -> str:
        return f"lance.`{self.path}`"

    def sql_append(self, number: int) -> None:
        self._rows(number, 0, ROWS).createOrReplaceTempView("new")
        self.spark.sql(f"INSERT INTO {self._name} SELECT * FROM new")

    def sql_update(self, number: int) -> None:
        self.spark.sql(f"UPDATE {self._name} SET n = n + 1 WHERE id % 2 = 0")

    def sql_delete(self, number: int) -> None:
        oldest = f"batch = (SELECT min(batch) FROM {self._name} WHERE id >= 0)"
        self.spark.sql(f"DELETE FROM {self._name} WHERE id >= 0 AND ({oldest} OR id % 7 = 3)")

    def sql_merge(self, number: int) -> None:
        self._rows(number, 0, MERGED).createOrReplaceTempView("new")
        newest = f"batch = (SELECT max(batch) FROM {self._name})"
        self.spark.sql(
            f"MERGE INTO {self._name} AS t USING (SELECT id, batch, n FROM {self._name} WHERE "
            f"{newest} UNION ALL SELECT id, batch, n FROM new) AS s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET n = s.n + 10 "
            "WHEN NOT MATCHED THEN INSERT (id, batch, n) VALUES (s.id, s.batch, s.n)"
        )

    def sql_optimize(self, number: int) -> None:
        self.spark.sql(
            f"CALL lance.system.optimize('{self.path}', target_rows_per_fragment => 1000)"
        )


def main(folder: Path, first: int, changes_and_moments: list[str]) -> None:
    """Start Spark, and change the table."""
    quiet = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **INTERPRETED}
    local = SparkSession.builder.master("local[1]").config(map=quiet).getOrCreate()
    local.sparkContext.setLogLevel("OFF")
    spark = two_hosts(local)
    spark.sparkContext.setLogLevel("OFF")
    process = spark._jvm.java.lang.ProcessHandle.current().pid()
    (folder / "driver").write_text(f"{process} {os.getpid()}")
    lance_spark.enable(spark)
    changes = Changes(spark, str(folder / "t"))
    changes.table.toDF().createOrReplaceTempView("oldest")
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(**fields: Any) -> None:
        os.write(log, (json.dumps(fields) + "\n").encode())

    plan = [text.split(":") for text in changes_and_moments] or (
        [name] for name in cycle([*CHANGES, *STATEMENTS])
    )
    for number, (name, *moment) in zip(count(first), plan, strict=False):
        # The rows of a subquery are planned when its view is created.
        changes.table.toDF().createOrReplaceTempView("oldest")
        if moment:
            (folder / "armed").write_text(" ".join(moment))
        tell(begun=number, change=name)
        try:
            getattr(changes, name)(number)
        except Exception as error:
            outcome = "killed" if moment[1:] == ["planner"] else "failed"
            tell(**{outcome: number}, error=type(error).__name__, text=str(error)[:300])
        else:
            tell(done=number)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
