"""Run all methods of `LanceTable` on a cluster, then some with failing and slow tasks.

spark-submit --master "local-cluster[2,1,1024]" cluster_run.py FOLDER

FOLDER has `t.lance`, the same rows, without `ts`, as `rows.parquet`, and `small.lance`. Each step
is also made to a plain DataFrame, which is stored as `expected/STEP`. `steps.json` has the table
and the version to which it must be equal.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lance_spark
from lance_spark import LanceTable
from lance_spark.errors import StorageError
from lance_spark.mutations.compaction.task import CompactionGroupTask
from tests.spark.table import cluster_hooks as hooks
from tests.support.pages import SQL_PAGE, run_page
from tests.support.spark.versions import SPARK

ATTEMPTS = 2
#: Two workers on one machine, with names that Spark takes for two machines: it never runs a task
#: twice on one machine.
HOSTS = ("127.0.0.1", "127.0.0.2")


class Run:
    """The tables of a folder, and what is expected of them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.path = str(folder / "t.lance")
        self.table = LanceTable.forPath(spark, self.path)
        self.plain = spark.read.parquet(str(folder / "rows.parquet"))
        self.steps: dict[str, Any] = {}

    def expect(self, step: str, plain: DataFrame, *, table: str = "t.lance") -> None:
        """Record the rows of a table after a step. The next step begins with them."""
        folder = str(self.folder / "expected" / step)
        plain.write.parquet(folder)
        version = lance_spark.open_dataset(str(self.folder / table)).version
        self.steps[step] = {"table": table, "version": version}
        self.plain = self.spark.read.schema(plain.schema).parquet(folder)

    def set(self, condition: str, values: dict[str, str]) -> DataFrame:
        """Return the plain rows, with new values in rows that meet a condition."""
        new = {
            name: F.when(F.expr(condition), F.expr(value).cast(self.plain.schema[name].dataType))
            .otherwise(F.col(name))
            .alias(name)
            for name, value in values.items()
        }
        return self.plain.select(*(new.get(name, F.col(name)) for name in self.plain.columns))

    def without(self, condition: str) -> DataFrame:
        """Return the plain rows without the rows that meet a condition."""
        return self.plain.where(f"NOT coalesce({condition}, false)")


def rows(run: Run) -> None:
    """Rows are deleted and updated."""
    table = run.table
    condition = "id BETWEEN 30 AND 20000 OR text LIKE '%77'"
    assert table.delete(condition).num_deleted_rows > 0
    run.expect("delete", run.without(condition))

    run.plain.where("id % 97 = 5").select("id").createOrReplaceTempView("gone")
    table.delete("id IN (SELECT id FROM gone)")
    run.expect("delete by a subquery", run.without("id % 97 = 5"))

    values = {"text": "concat(text, '!')", "g": "g + 1000"}
    table.update("g = 3", values)
    run.expect("update", run.set("g = 3", values))

    values = {"vector": "transform(vector, x -> x * 2)"}
    table.update("pmod(id, 50) = 7", values, mode="rows")
    run.expect("update rows", run.set("id % 50 = 7", values))

    table.update("g > 50", {"text": "upper(text)"}, mode="columns")
    run.expect("update columns", run.set("g > 50", {"text": "upper(text)"}))


def columns(run: Run) -> None:
    """Columns are added, updated and altered."""
    table = run.table
    table.add_columns({"twice": "id * 2", "first": "element_at(vector, 1)"})
    run.expect(
        "add_columns",
        run.plain.withColumns(
            {"twice": F.expr("id * 2"), "first": F.expr("element_at(vector, 1)")}
        ),
    )
    source = run.plain.where("id % 3 = 1").select(
        "id", F.concat(F.lit("label "), "id").alias("label")
    )
    table.add_columns_from(source, "id")
    run.expect("add_columns_from", run.plain.join(source, "id", "left"))

    source = run.plain.where("id % 11 = 4").select("id", (F.col("twice") + 1).alias("twice"))
    table.update_columns_from(source, "id")
    run.expect("update_columns_from", run.set("id % 11 = 4", {"twice": "twice + 1"}))

    table.update_columns({"first": "first + g"})
    run.expect("update_columns", run.set("true", {"first": "first + g"}))

    table.alter_column("g", data_type="bigint")
    table.rename_column("first", "head")
    table.drop_columns("twice")
    table.reorder_columns("id", "label")
    plain = run.plain.withColumn("g", F.col("g").cast("bigint")).drop("twice")
    run.expect("columns altered", plain.withColumnRenamed("first", "head"))


def writes(run: Run) -> None:
    """Rows are appended and replaced by writes."""

    def save(frame: DataFrame, mode: str = "append", **options: object) -> None:
        # Spark has no nanoseconds: the times of new rows are whole microseconds.
        timed = frame.withColumn("ts", F.timestamp_micros("id"))
        timed.write.format("lance").mode(mode).options(**options).save(run.path)

    new = run.plain.where("id % 10 = 1").withColumn("id", F.col("id") + 10**9)
    save(new)
    run.expect("append", run.plain.unionByName(new))

    new = run.plain.where("g = 9").withColumn("id", F.col("id") + 2 * 10**9)
    save(new, "overwrite", replaceWhere="g = 9")
    run.expect("replace_where", run.without("g = 9").unionByName(new))


def merges(run: Run) -> None:
    """Rows are replaced, merged, and inserted or updated by their key."""
    table = run.table
    new = run.plain.where("g = 11").withColumn("id", F.col("id") + 3 * 10**9)
    table.replace_where(new.withColumn("ts", F.timestamp_micros("id")), "g = 11")
    run.expect("replaceWhere by Spark", run.without("g = 11").unionByName(new))

    known = run.plain.where("id % 40 = 3").withColumn("text", F.concat("text", F.lit("?")))
    new = known.where("id % 3 = 0").withColumn("id", F.col("id") + 4 * 10**9)
    source = known.unionByName(new).withColumn("ts", F.timestamp_micros("id"))
    merge = table.merge(source, "target.id = source.id")
    merge = merge.whenMatchedUpdate(set={"text": "source.text"}).whenNotMatchedInsertAll()
    merge.whenNotMatchedBySourceDelete("target.id % 500 = 9").execute()
    run.plain = run.set("id % 40 = 3", {"text": "concat(text, '?')"})
    run.expect("merge", run.without("id % 500 = 9").unionByName(new))

    # Spark can store these times: all values of the rows come from the source.
    known = run.plain.where(f"id >= {10**9} AND id % 2 = 1").withColumn("g", F.col("g") + 7)
    new = known.where("id % 3 = 0").withColumn("id", F.col("id") + 20 * 10**9)
    table.upsert(known.unionByName(new).withColumn("ts", F.timestamp_micros("id")))
    plain = run.set(f"id >= {10**9} AND id % 2 = 1", {"g": "g + 7"})
    run.expect("upsert", plain.unionByName(new))


def feed(run: Run) -> None:
    """The change feed has the rows by which each version differs from the version before."""
    last = run.steps["update rows"]["version"]
    options = {"readChangeFeed": True, "startingVersion": 2, "endingVersion": last}
    # Spark has no nanoseconds.
    names = json.dumps(["id", "g", "text", "vector"])
    changes = run.spark.read.format("lance").options(**options, columns=names).load(run.path)
    changes.drop("_commit_timestamp").write.parquet(str(run.folder / "feed"))


def maintenance(run: Run) -> None:
    """Fragments are rewritten, in the order of rows and in another order."""
    table = run.table
    table.optimize(target_rows_per_fragment=60_000)
    run.expect("optimize", run.plain)
    table.optimize(sort_by=["g", "id"], target_rows_per_fragment=60_000)
    run.expect("optimize with sort_by", run.plain)
    table.create_tag("sorted", table.dataset().version)
    table.optimize(z_order_by=["g", "id"], target_rows_per_fragment=60_000)
    run.expect("optimize with z_order_by", run.plain)


def names(run: Run) -> dict[str, Any]:
    """The table has a history, a branch and clones with rows of their own. No file is left to clean
    up.
    """
    table = run.table
    version = table.dataset().version
    history = table.history().collect()
    assert [row.version for row in history] == list(range(version, 0, -1))
    detail = table.detail().collect()[0]
    assert (detail.version, detail.tags) == (version, ["sorted"])
    branch = table.create_branch("work")
    branch.delete("id % 2 = 1")
    assert [row.name for row in table.branches().collect()] == ["work"]
    assert branch.toDF(["id"]).count() == run.plain.where("id % 2 = 0").count()
    assert table.toDF(["id"]).count() == run.plain.count()
    table.delete_branch("work")
    for name, shallow in (("shallow.lance", True), ("deep.lance", False)):
        clone = table.clone(str(run.folder / name), isShallow=shallow)
        clone.update("g = 4", {"text": "'of a clone'"})
        changed = run.set("g = 4", {"text": "'of a clone'"})
        kept = run.plain
        run.expect(f"clone {name}", changed, table=name)
        run.plain = kept
    removed = table.cleanup(timedelta(0)).collect()[0]
    return {"files_removed": removed.files_removed}


def statements(run: Run) -> None:
    """A table by name is created and changed by SQL."""
    all_rows = run.plain
    lance_spark.enable(run.spark, "lake", root=str(run.folder / "lake"))
    table = "lake/t.lance"

    def step(statement: str, plain: DataFrame) -> None:
        run.spark.sql(statement)
        run.expect(statement.split(maxsplit=1)[0].lower() + " by name", plain, table=table)

    all_rows.createOrReplaceTempView("whole")
    step(
        "CREATE TABLE lake.t AS SELECT * FROM whole WHERE id % 3 > 0", all_rows.where("id % 3 > 0")
    )
    added = all_rows.where("id % 3 = 0")
    step("INSERT INTO lake.t SELECT * FROM whole WHERE id % 3 = 0", run.plain.unionByName(added))
    changed = run.set("g = 5", {"text": "concat(text, '?')"})
    step("UPDATE lake.t SET text = concat(text, '?') WHERE g = 5", changed)
    gone = "id % 101 = 7"
    all_rows.where(gone).select("id").createOrReplaceTempView("gone")
    step("DELETE FROM lake.t WHERE id IN (SELECT id FROM gone)", run.without(gone))
    source = all_rows.where("id % 101 BETWEEN 6 AND 8").withColumn("g", F.lit(-1).cast("bigint"))
    source.createOrReplaceTempView("source")
    kept = run.plain.join(source, "id", "left_anti").select(run.plain.columns)
    step(
        "MERGE INTO lake.t AS t USING source AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        kept.unionByName(source),
    )
    run.plain = all_rows


def page_of_sql(run: Run) -> None:
    """Run the statements of the page about SQL in a session of its own: its catalog has another
    root.
    """
    names = {"__name__": "page", "spark": run.spark.newSession(), "lance_spark": lance_spark}
    if SPARK >= (4, 3):
        run_page(SQL_PAGE, names, run.folder / "page")


def streams(run: Run) -> None:
    """A stream reads a table and writes another table, and continues after its last batch."""
    target = str(run.folder / "copy.lance")

    def go_on() -> None:
        stream = run.spark.readStream.format("lance").option("columns", '["id", "text", "g"]')
        writer = stream.load(run.path).writeStream.format("lance")
        writer = writer.option("checkpointLocation", str(run.folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start(target)
        assert query.awaitTermination(300)

    go_on()
    new = run.plain.where("id % 1000 = 1").withColumn("id", F.col("id") + 50 * 10**9)
    timed = new.withColumn("ts", F.timestamp_micros("id"))
    timed.write.format("lance").mode("append").save(run.path)
    run.expect("append for the stream", run.plain.unionByName(new))
    all_rows = run.plain
    go_on()
    run.expect("streams", all_rows.select("id", "text", "g"), table="copy.lance")
    LanceTable.forPath(run.spark, target).vacuum(retain_versions=1, delete_unverified=True)
    run.plain = all_rows


def history(run: Run) -> None:
    """An older version is restored; then the table is overwritten."""
    table = run.table
    table.restoreToVersion(run.steps["update"]["version"])
    run.expect("restoreToVersion", run.spark.read.parquet(str(run.folder / "expected" / "update")))
    plain = run.plain.where("id % 2 = 0")
    timed = plain.withColumn("ts", F.timestamp_micros("id"))
    timed.write.format("lance").mode("overwrite").save(run.path)
    run.expect("overwrite", plain)


@contextmanager
def hooked(make: Callable[[Any], Any]) -> Any:
    """Let compactions run their tasks by another function."""
    run = CompactionGroupTask.run_if_possible
    CompactionGroupTask.run_if_possible = make(run)  # type: ignore[method-assign]
    try:
        yield
    finally:
        CompactionGroupTask.run_if_possible = run  # type: ignore[method-assign]


def compact_small(spark: SparkSession, path: Path) -> dict[str, int]:
    """Make five fragments of fifty."""
    table = LanceTable.forPath(spark, str(path))
    done = table.optimize(target_rows_per_fragment=10_000).collect()[0]
    return done.asDict()


def failed(run: Run) -> dict[str, Any]:
    """All attempts of a task fail while another task is running."""
    path = run.folder / "failed.lance"
    marker = run.folder / "failed.marker"
    error = StorageError("the disk is full")
    message = ""
    with hooked(lambda task: hooks.Failing(task, error, ATTEMPTS, str(marker))):
        try:
            compact_small(run.spark, path)
        except Exception as raised:
            message = f"{type(raised).__name__}: {raised}"[:300]
    return {
        "error": message,
        "failed": len(list(run.folder.glob(f"failed.marker.failed.*.{ATTEMPTS}"))),
    }


def speculated(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """A slow task runs twice, and the slow attempt writes its files after the commit."""
    path = folder / "slow.lance"
    marker = folder / "slow.marker"
    with hooked(lambda task: hooks.Slow(task, str(marker), str(path / "_versions"))):
        done = compact_small(spark, path)
    # Without this, workers start executors for the application again and again, until they stop.
    spark.stop()
    return {**done, "slow": marker.exists()}


def two_hosts(spark: SparkSession) -> SparkSession:
    """Return a session of another cluster, whose workers have two names, with speculation."""
    jvm = spark._jvm
    conf = spark.sparkContext._jsc.sc().conf()
    spark.stop()
    deploy = jvm.org.apache.spark.deploy
    master = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, conf)
    url = f"spark://{master._1().address().hostPort()}"
    urls = spark._sc._gateway.new_array(jvm.java.lang.String, 1)
    urls[0] = url
    none = jvm.scala.Option.apply(None)
    for host in HOSTS:
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 1, 1024, urls, None, none, conf, none
        )
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.2",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.efficiency.enabled": "false",
    }
    return SparkSession.builder.master(url).config(map=speculation).getOrCreate()


#: The parts run in this order: each part begins with the tables of the parts before it.
def columnar(run: Run) -> dict[str, Any]:
    """This part reads columns. Its executors started before the classes were sent to them."""
    run.spark.conf.set("spark.lance.pushdown.local", "false")
    frame = run.spark.read.format("lance").load(str(run.folder / "failed.lance"))
    # The generated code of executors calls the classes of functions.
    query = frame.selectExpr(
        "max(text)", "sum(g)", "sum(vector[3])", "count(*)", "sum(dot_product(vector, vector))"
    )
    plan = str(query._jdf.queryExecution().executedPlan().toString())
    (row,) = query.collect()
    run.spark.conf.unset("spark.lance.pushdown.local")
    return {"plan": plan, "row": list(row)}


PARTS = (
    rows,
    feed,
    columns,
    writes,
    merges,
    maintenance,
    names,
    statements,
    page_of_sql,
    streams,
    history,
    failed,
    columnar,
)


def main(folder: Path, *names: str) -> None:
    """Run all parts, or the named parts, and record how long they took."""
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    results: dict[str, Any] = {"seconds": {}}

    def timed(name: str, part: Callable[..., Any], *arguments: Any) -> None:
        begun = time.monotonic()
        results[name] = part(*arguments)
        results["seconds"][name] = round(time.monotonic() - begun, 1)
        print(name, results["seconds"][name], flush=True)

    run = Run(spark, folder)
    for part in PARTS:
        if not names or part.__name__ in names:
            timed(part.__name__, part, run)
    results["steps"] = run.steps
    if not names or "speculated" in names:
        timed("speculated", lambda: speculated(two_hosts(spark), folder))
    (folder / "told.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
