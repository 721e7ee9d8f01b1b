"""Push-down by configuration beside another extension, for each way to give Spark a jar."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark.spark.jvm import classes
from tests.support.cells import ALL_CELLS
from tests.support.spark.processes import JAVA_OPTIONS, environment, make_home, write_kept_jar
from tests.support.spark.settings import INTERPRETED

SUBMIT = Path(sys.executable).with_name("spark-submit")
OTHER = "example.Other"
LONG = pytest.mark.skipif(not ALL_CELLS, reason="make test-long tries all ways to give Spark a jar")

#: An extension with a rule at the place of push-down. It reports which table it finds there.
SOURCE = """
package example;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Function1;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

public class Other extends AbstractFunction1 {
  public Object apply(Object extensions) {
    ((SparkSessionExtensions) extensions).injectPreCBORule(new OfSession());
    return BoxedUnit.UNIT;
  }

  public static class OfSession extends AbstractFunction1 {
    public Object apply(Object session) {
      return new Seen();
    }
  }

  public static class Seen extends Rule {
    public TreeNode apply(TreeNode plan) {
      return (TreeNode) ((LogicalPlan) plan).transform(new Look());
    }
  }

  public static class Look extends AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof DataSourceV2Relation;
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
      if (!isDefinedAt(node)) {
        return otherwise.apply(node);
      }
      System.setProperty("example.seen", ((DataSourceV2Relation) node).table().getClass().getSimpleName());
      return node;
    }
  }
}
"""

JOB = """
import json, sys
from pyspark.sql import SparkSession
import lance_spark

spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
frame = spark.read.format("lance").load(sys.argv[1]).select("id")
plan = frame._jdf.queryExecution().executedPlan().toString()
seen = spark._jvm.java.lang.System.getProperty("example.seen")
rows = spark.range(20_000, numPartitions=2).join(frame, "id").count()
print(json.dumps([lance_spark.is_enabled(spark), "lance pushdown columns=[id:bigint]" in plan, seen, rows]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both jars, a table, a job, and a home that Spark can write to."""
    folder = tmp_path_factory.mktemp("extensions")
    write_kept_jar(folder / "rule.jar")
    (folder / "source").mkdir()
    (folder / "source" / "Other.java").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classes, "_FOLDER", folder / "source")
        patch.setattr(classes, "_SHIMS", folder / "none")
        classes.write_jar(folder / "other.jar")
    rows = pa.table({"id": range(30_000), "more": range(30_000)})
    lance.write_dataset(rows, str(folder / "t.lance"))
    (folder / "job.py").write_text(JOB)
    make_home(folder / "home")
    return folder


@pytest.mark.skipif(not SUBMIT.exists(), reason=f"no spark-submit beside {sys.executable}")
@pytest.mark.parametrize(
    ("master", "option", "between", "extensions", "seen"),
    [
        # With the class path, executors have neither jar, as those of `test_cluster`.
        # `test_configured` gives the jar to the driver in this way, too.
        pytest.param("local-cluster[2,1,1024]", "--driver-class-path", ":", [OTHER, classes.EXTENSION], "PathTable", marks=LONG),
        ("local[1]", "--jars", ",", [classes.EXTENSION, OTHER], "RequestTable"),
    ],
)  # fmt: skip
def test_push_down_works_with_another_extension(
    folder: Path, master: str, option: str, between: str, extensions: list[str], seen: str
) -> None:
    homes = {"SPARK_HOME": str(folder / "home"), "SPARK_LOCAL_DIRS": str(folder / "local")}
    settings = {
        "spark.sql.extensions": ",".join(extensions),
        "spark.ui.enabled": "false",
        "spark.driver.host": "localhost",
        "spark.sql.shuffle.partitions": "1",
        **INTERPRETED,
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    }
    command = [
        *(str(SUBMIT), "--master", master),
        *(option, between.join(str(folder / name) for name in ("other.jar", "rule.jar"))),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        *("job.py", str(folder / "t.lance")),
    ]
    ran = subprocess.run(
        command,
        cwd=folder,
        env=environment(**homes),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == [True, True, seen, 20_000]
