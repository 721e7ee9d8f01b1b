"""Spark Connect: a server that `python -m lance_spark conf` configured, in a process of its own,
its clients, and a client that sends the classes to a server.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark.errors import UnsupportedError
from lance_spark.spark.jvm import connect, enable
from lance_spark.spark.jvm.classes import EXTENSION
from tests.support.cells import ALL_CELLS
from tests.support.spark.connect_server import (
    CONF,
    running_server,
    skip_module_without_connect,
    variables,
)
from tests.support.spark.processes import write_kept_jar
from tests.support.spark.versions import SPARK

skip_module_without_connect()

START = """
import io, json, sys
from contextlib import redirect_stdout
from pyspark.sql import SparkSession
import lance_spark
import lance_spark.query

builder = SparkSession.builder.remote(sys.argv[1])
for name, value in json.loads(sys.argv[3]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
folder = sys.argv[2]
table = folder + "/t.lance"
results = {}

def load(path=table, **options):
    return spark.read.format("lance").options(**options).load(path)

def rows(frame):
    return [row.asDict(True) for row in frame.orderBy("id").collect()]

def plan(frame):
    with redirect_stdout(io.StringIO()) as text:
        frame.explain()
    return text.getvalue()

def columns_of_tasks(frame):
    distance = "l2_distance(slice(v, 1, 1), array(CAST(v[0] + 1 AS FLOAT)))"
    query = frame.selectExpr("sum(v[0])", "max(s.g)", "count(*)", f"sum({distance})")
    return plan(query), list(query.collect()[0])

def refusal(ask):
    try:
        return repr(ask())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""

CLIENT = """
frame = load()
answers["all"] = rows(frame)
answers["schema"] = rows(spark.read.format("lance").schema("g int, id long").load(table))
answers["columns"] = rows(load(columns="word,id"))
answers["version"] = rows(load(version=1))

made = folder + "/made.lance"
frame = spark.range(20_000).selectExpr(
    "id", "array(cast(id as float), 1f) as v", "named_struct('g', id % 7) as s"
)
frame.write.format("lance").mode("overwrite").save(made)
frame.limit(5).write.format("lance").mode("append").save(made)
answers["wrong"] = refusal(lambda: frame.drop("v").write.format("lance").mode("append").save(made))

frame = load()
narrow = frame.where("g > 1").select("id")
hollow = load(folder + "/hollow.lance")
answers["on"] = [plan(load(made).select("id")), rows(narrow), lance_spark.is_enabled(spark)]
answers["columns of tasks"] = columns_of_tasks(load(made))
answers["enable"] = refusal(lambda: lance_spark.enable(spark))
answers["count"] = hollow.count()
answers["read"] = refusal(lambda: hollow.collect())
answers["settings"] = []
for name, value, text in (
    ("spark.sql.ansi.enabled", "false", "g + 2147483647 < 0"),
    ("spark.sql.parser.escapedStringLiterals", "true", r"word <> '\\a'"),
    ("spark.sql.caseSensitive", "true", "G = 2"),
    ("spark.sql.session.timeZone", "Asia/Tokyo", "hour(TIMESTAMP '2024-01-01 00:00:00Z') = id + 8"),
):
    ask = lambda: sorted(row.id for row in load(filter=text).collect())
    spark.conf.set(name, value)
    changed = refusal(ask)
    spark.conf.unset(name)
    answers["settings"].append([changed, refusal(ask)])

spark.conf.set("spark.sql.catalog.cat", "org.lancespark.LanceCatalog")
spark.conf.set("spark.sql.catalog.cat.root", folder + "/statements")
spark.sql("CREATE TABLE cat.t AS SELECT id FROM range(0, 4, 1, 2)").collect()
answers["statements"] = [
    spark.sql("OPTIMIZE cat.t").collect()[0].fragments_removed,
    spark.sql("DESCRIBE HISTORY cat.t LIMIT 1").collect()[0].num_rows,
    refusal(lambda: spark.sql("OPTIMIZE cat.t FULL").collect()),
]

lance_table = lance_spark.LanceTable.forPath(spark, table)
match = lance_spark.query.MatchQuery("a é", "word")
answers["search"] = [
    [row.id for row in lance_table.search(match, ["id"], limit=2).collect()],
    refusal(lambda: [row.id for row in spark.sql(
        f"SELECT id FROM lance_search('{table}', 'a é', search_columns => array('word'), k => 1)"
    ).collect()]),
]

spark.conf.set("spark.lance.pushdown.enabled", "false")
answers["off"] = [plan(load(made).select("id")), rows(narrow), lance_spark.is_enabled(spark)]
answers["count when off"] = refusal(lambda: hollow.count())
"""

CHANGES = """
from pyspark.sql import functions as F

changed = folder + "/changed.lance"
spark.range(10_000).selectExpr("id", "id % 7 as g").write.format("lance").mode("append").save(changed)
lance_table = lance_spark.LanceTable.forPath(spark, changed)
spark.range(100).createOrReplaceTempView("few")
done = [
    lance_table.delete("id >= 9000"),
    lance_table.delete("id in (select id from few)"),
    lance_table.update(F.col("g") == 3, {"g": F.col("id") * 10}),
]
answers["done"] = [(metrics.version, metrics.num_deleted_rows, metrics.num_updated_rows) for metrics in done]
answers["refused"] = refusal(lambda: lance_table.update("id = 500", {"g": "nowhere + 1"}))

source = spark.range(8990, 9010).selectExpr("id", "-id AS g")
merge = lance_table.merge(source, F.col("target.id") == source["id"])
merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll("id < 9005")
result = merge.whenNotMatchedBySourceDelete("id < 200").execute()
answers["merged"] = [result.num_inserted_rows, result.num_updated_rows, result.num_deleted_rows]
answers["ambiguous"] = refusal(lambda: lance_table.merge(
    source.union(source), "target.id = source.id").whenMatchedUpdateAll().execute())

source = spark.range(200, 205).selectExpr("id", "0L AS g")
replaced = lance_table.replace_where(source, (F.col("id") < 210) & (F.col("g") >= 0))
whole = lance_table.update_columns({"g": "g + 1"})
answers["replaced"] = [replaced.num_inserted_rows, replaced.num_deleted_rows, whole.num_updated_rows]
"""

KEPT = """
from pyspark.sql import functions as F

kept = folder + "/kept.lance"
frame = spark.range(0, 4000, 1, 4).selectExpr("id", "id % 7 as g")
frame.write.format("lance").mode("append").save(kept)
lance_table = lance_spark.LanceTable.forPath(spark, kept)
source = spark.range(3990, 4010).selectExpr("id", "-id as g").alias("s")
merge = lance_table.alias("t").merge(source, "t.id = s.id", commit_message="merged")
done = merge.whenMatchedUpdate("t.id < 3995", {"g": "s.g + t.g"}).whenNotMatchedInsertAll().execute()
answers["merged"] = [done.num_updated_rows, done.num_inserted_rows, done.num_deleted_rows]
lance_table.add_columns({"double": "g * 2", "next": F.col("id") + 1}, commit_message="two more")
fragments = lance_table.detail().first().num_fragments
answers["optimize"] = lance_table.optimize(target_rows_per_fragment=1_000_000).first().asDict()
answers["fragments"] = [fragments, lance_table.detail().first().num_fragments]
answers["history"] = [
    [row.version, row.operation, row.message, row.num_rows] for row in lance_table.history().collect()
]
answers["dry"] = lance_table.vacuum(retain_versions=1, dry_run=True).first().asDict()
answers["vacuum"] = lance_table.vacuum(retain_versions=1).first().asDict()
answers["versions"] = [row.version for row in lance_table.history().collect()]
"""

NAMES = """
root = spark.conf.get("spark.sql.catalog.lance.root", folder + "/sent")
answers["enable"] = refusal(lambda: lance_spark.enable(spark, root=root))
for statement in (
    "CREATE TABLE lance.t (id BIGINT, word STRING)",
    "INSERT INTO lance.t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "UPDATE lance.t SET word = upper(word) WHERE id = 2",
    "DELETE FROM lance.t WHERE id IN (SELECT 1L)",
    "MERGE INTO lance.t USING (SELECT id, 'x' AS word FROM range(3, 5)) AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "CREATE TABLE lance.gone AS SELECT id FROM lance.t",
    "CALL lance.system.create_tag(table => 't', name => 'merged')",
    "DROP TABLE lance.gone",
):
    spark.sql(statement).collect()
spark.range(9, 10).selectExpr("id", "'z' AS word").writeTo("lance.t").append()
answers["rows"] = rows(spark.table("lance.t"))
answers["old"] = spark.sql("SELECT * FROM lance.t VERSION AS OF 2").count()
answers["tables"] = [row.tableName for row in spark.sql("SHOW TABLES IN lance").collect()]
answers["plan"] = plan(spark.table("lance.t").where("id > 2").select("id"))
built = lance_spark.LanceTable.create().tableName("lance.built").addColumn("id", "bigint").execute()
source = spark.sql("SELECT 1L AS id, 'x' AS word")
done = built.merge(source, "target.id = source.id").withSchemaEvolution().whenNotMatchedInsertAll().execute()
answers["built"] = [*done.first(), done.version, *built.detail().first().name.split("."), *built.toDF().first()]
spark.sql("DROP TABLE lance.built").collect()

# The rows of so many fragments are not read while a statement is planned.
spark.sql("CREATE TABLE lance.keyed AS SELECT id, 0 AS v FROM range(0, 100000, 1, 17)").collect()
spark.range(2).selectExpr("id * 70000 AS k").createOrReplaceTempView("few_keys")
merge = "MERGE INTO lance.keyed t USING {} s ON t.id = s.k WHEN MATCHED THEN UPDATE SET v = 1"
explained = spark.sql("EXPLAIN " + merge.format("(SELECT * FROM VALUES (3), (9) AS x(k))"))
answers["keys"] = explained.collect()[0][0]
spark.sql(merge.format("few_keys")).collect()
answers["merged"] = [row.id for row in spark.table("lance.keyed").where("v = 1").collect()]
spark.sql("DROP TABLE lance.keyed").collect()
"""

#: Without the statements.
ENABLED = """
answers["enable"] = refusal(lambda: lance_spark.enable(spark, root=folder + "/sent"))
"""

PLANS = """
before = [plan(load()), lance_spark.is_enabled(spark)]
{names}
spark.conf.set("spark.lance.pushdown.local", "false")
answers["plans"] = [*before, plan(load().select("id")), lance_spark.is_enabled(spark)]
spark.range(20_000).selectExpr(
    "id", "array(cast(id as float)) as v", "named_struct('g', id % 7) as s"
).writeTo("lance.many").create()
answers["columns of tasks"] = columns_of_tasks(spark.table("lance.many"))
answers["other catalog"] = refusal(lambda: lance_spark.enable(spark, "other", root=folder + "/other"))
spark.sql("CREATE TABLE other.t AS SELECT 1 AS id").collect()
lance_spark.enable(spark, session_catalog=True)
for statement in (
    f"CREATE TABLE own USING lance LOCATION '{{folder}}/own.lance' AS SELECT 1 AS id",
    "UPDATE own SET id = 2",
    "DROP TABLE own",
):
    spark.sql(statement).collect()
"""

#: The page of SQL, and the pages that show how something is done.
PAGES = """
from pathlib import Path
from tests.support import pages

for page in [pages.SQL_PAGE, *sorted((pages.ROOT / "docs/howto").glob("*.md"))]:
    names = {"__name__": "page", "spark": spark, "lance_spark": lance_spark}
    place = Path(folder) / "pages" / page.stem
    place.mkdir(parents=True)
    pages.run_page(page, names, place)
    for table in spark.catalog.listTables():
        what = "VIEW" if table.isTemporary else "TABLE"
        spark.sql(f"DROP {what} {table.name}").collect()
"""


def client(jobs: dict[str, str], url: str, folder: Path, **conf: str) -> dict[str, dict[str, Any]]:
    """Run jobs, and return the answers of each of them.

    They run in a process of their own: a process that was a client cannot become a driver.
    """
    code = "".join(f"answers = results[{name!r}] = {{}}\n{job}\n" for name, job in jobs.items())
    ran = subprocess.run(
        [
            *(sys.executable, "-c", f"{START}{code}print(json.dumps(results))"),
            *(url, str(folder), json.dumps(conf)),
        ],
        env=variables(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900 if ALL_CELLS else 180,
        check=False,
    )
    errors = re.sub(r"\n\s+at [^\n]+", "", ran.stderr)
    assert ran.returncode == 0, errors[-4000:]
    results: dict[str, dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a table `t.lance` of two versions, and a table `hollow.lance` without its data
    files.
    """
    folder = tmp_path_factory.mktemp("connect")
    rows = pa.table(
        {"id": [1, 2, 3], "g": pa.array([1, 2, None], pa.int32()), "word": ["a", None, "é"]}
    )
    for name in ("t", "hollow"):
        lance.write_dataset(rows, str(folder / f"{name}.lance"))
        more = rows.slice(1, 1).set_column(0, "id", pa.array([4]))
        lance.write_dataset(more, str(folder / f"{name}.lance"), mode="append")
    shutil.rmtree(folder / "hollow.lance" / "data")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    """The address of a server that runs with the written configuration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enable, "write_jar", write_kept_jar)
        enable.write_conf(folder / "conf", root=str(folder / "lake"))
    properties = ["--properties-file", str(folder / "conf" / "lance-spark-defaults.conf")]
    with running_server(folder, properties, CONF) as address:
        yield address


@pytest.fixture(scope="module")
def results(server: str, folder: Path) -> dict[str, dict[str, Any]]:
    # The last one turns push-down off.
    jobs = {"changes": CHANGES, "kept": KEPT, "names": NAMES, "client": CLIENT}
    return client(jobs, server, folder)


@pytest.fixture(scope="module")
def answers(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return results["client"]


def test_tables_are_read(answers: dict[str, Any]) -> None:
    rows = [
        {"id": 1, "g": 1, "word": "a"},
        {"id": 2, "g": 2, "word": None},
        {"id": 3, "g": None, "word": "é"},
        {"id": 4, "g": 2, "word": None},
    ]
    assert answers["all"] == rows
    assert answers["schema"] == [{"g": row["g"], "id": row["id"]} for row in rows]
    assert answers["columns"] == [{"word": row["word"], "id": row["id"]} for row in rows]
    assert answers["version"] == rows[:3]


def test_tables_are_written(answers: dict[str, Any], folder: Path) -> None:
    made = lance.dataset(str(folder / "made.lance"))
    assert made.version == 2
    written = made.to_table()
    assert sorted(written["id"].to_pylist()) == sorted([*range(20_000), *range(5)])
    assert {"id": 8, "v": [8.0, 1.0], "s": {"g": 1}} in written.to_pylist()
    assert "the DataFrame has no v" in answers["wrong"]


def test_tables_are_changed(results: dict[str, dict[str, Any]], folder: Path) -> None:
    result = results["changes"]
    updated = [n for n in range(100, 9000) if n % 7 == 3]
    assert result["done"] == [[2, 1000, 0], [3, 100, 0], [4, 0, len(updated)]]
    assert "nowhere" in result["refused"]
    changed = lance.dataset(str(folder / "changed.lance"))
    changed.validate()
    rows = changed.to_table().sort_by("id").to_pydict()
    assert result["merged"] == [5, 10, 100]
    assert "AmbiguousMergeError" in result["ambiguous"]
    assert rows["id"] == [*range(200, 205), *range(210, 9005)]
    assert result["replaced"] == [5, 10, 8800]
    old = [n * 10 + 1 if n % 7 == 3 else n % 7 + 1 for n in range(210, 8990)]
    assert rows["g"] == [*[1] * 5, *old, *(1 - n for n in range(8990, 9005))]


def test_columns_and_maintenance(results: dict[str, dict[str, Any]], folder: Path) -> None:
    result = results["kept"]
    assert result["merged"] == [5, 10, 0]
    before, after = result["fragments"]
    assert before > after == 1
    assert result["optimize"]["fragments_removed"] == before
    assert result["optimize"]["fragments_added"] == 1
    # A compaction creates two versions.
    assert [item[1:] for item in result["history"]] == [
        ["OPTIMIZE", None, 4010],
        ["RESERVE FRAGMENTS", None, 4010],
        ["CHANGE COLUMNS", "two more", 4010],
        ["MERGE", "merged", 4010],
        ["WRITE", None, 4000],
    ]
    assert [item[0] for item in result["history"]] == [5, 4, 3, 2, 1]
    assert result["dry"] == result["vacuum"]
    assert result["vacuum"]["old_versions"] == 4
    assert result["vacuum"]["bytes_removed"] > 0
    assert result["versions"] == [5]
    kept = lance.dataset(str(folder / "kept.lance"))
    kept.validate()
    assert len(list((folder / "kept.lance" / "data").iterdir())) == 1
    g = {n: n % 7 - n * (n >= 3990) if n < 3995 else n % 7 for n in range(4000)}
    g.update({n: -n for n in range(4000, 4010)})
    assert kept.to_table().select(["id", "g", "double", "next"]).sort_by("id").to_pydict() == {
        "id": list(g),
        "g": list(g.values()),
        "double": [item * 2 for item in g.values()],
        "next": [n + 1 for n in g],
    }


def check_names(result: dict[str, Any], root: Path) -> None:
    """Check the answers that the client of `NAMES` got, and the tables that it left in the
    catalog.
    """
    assert result["enable"] == "None"
    words = {2: "B", 3: "x", 4: "x", 9: "z"}
    assert {row["id"]: row["word"] for row in result["rows"]} == words
    assert result["old"] == 3
    assert result["tables"] == ["t"]
    # Columns, then rows, of a merge are versions 2 and 3.
    assert result["built"] == [1, 0, 0, 1, 3, "lance", "built", 1, "x"]
    table = lance.dataset(str(root / "t.lance"))
    table.validate()
    assert {row["id"]: row["word"] for row in table.to_table().to_pylist()} == words
    assert list(table.tags.list()) == ["merged"]
    # The keys of the source of a merge. Spark 4.0 shows values without their types.
    assert re.search(r"id IN \(3L?, 9L?\)", result["keys"]), result["keys"]
    assert sorted(result["merged"]) == [0, 70_000]


def test_a_configured_server_has_tables_by_name(
    results: dict[str, dict[str, Any]], folder: Path
) -> None:
    check_names(results["names"], folder / "lake")


def check_columns(result: list[Any], more: int) -> None:
    plan, row = result
    assert "columnar=yes" in plan
    assert row == [sum(range(20_000)) + sum(range(more)), 6, 20_000 + more, 20_000 + more]


def test_a_configured_server_pushes_down(answers: dict[str, Any]) -> None:
    plan, rows, enabled = answers["on"]
    assert "lance pushdown columns=[id:bigint] filters=[" in plan
    assert rows == [{"id": 2}, {"id": 4}]
    assert enabled
    check_columns(answers["columns of tasks"], 5)
    assert answers["enable"] == "None"
    plan, again, enabled = answers["off"]
    assert "lance pushdown" not in plan
    assert again == rows
    assert not enabled


def test_conditions_use_the_settings_of_the_client(answers: dict[str, Any]) -> None:
    ansi, escaped, case, zone = answers["settings"]
    assert ansi[0] == "[1, 2, 4]"
    assert "overflows int" in ansi[1]
    assert escaped == ["[1, 3]", "[3]"]
    assert "column G not found" in case[0]
    assert case[1] == "[2, 4]"
    assert zone[0] == "[1]"


def test_searches(answers: dict[str, Any]) -> None:
    assert answers["search"] == [[1, 3], "[1]"]


def test_statements_of_other_connectors(answers: dict[str, Any]) -> None:
    removed, rows, refused = answers["statements"]
    assert (removed, rows) == (2, 4)
    assert "near 'FULL': expected the end of the statement" in refused


def test_a_count_reads_only_the_manifest(answers: dict[str, Any]) -> None:
    assert answers["count"] == 4
    assert ".lance" in answers["read"]
    assert ".lance" in answers["count when off"]


def test_a_server_without_the_jar_gets_it_from_the_client(folder: Path) -> None:
    conf = {**CONF, "spark.sql.extensions": EXTENSION}
    # `make test` runs the pages in its own session.
    page = PAGES if SPARK >= (4, 3) and ALL_CELLS else ""
    # They ran on the other server, whose classes are the same.
    jobs = {"plans": PLANS.format(names=NAMES if ALL_CELLS else ENABLED) + page}
    result = client(jobs, "local[1]", folder, **conf)["plans"]
    assert result["enable"] == "None"
    if ALL_CELLS:
        check_names(result, folder / "sent")
    before, was_enabled, after, is_enabled = result["plans"]
    assert not was_enabled
    assert "lance pushdown" not in before
    assert is_enabled
    assert "lance pushdown columns=[id:bigint]" in after
    check_columns(result["columns of tasks"], 0)
    assert result["other catalog"] == "None"
    assert lance.dataset(str(folder / "other" / "t.lance")).count_rows() == 1
    assert lance.dataset(str(folder / "own.lance")).to_table()["id"].to_pylist() == [2]


def test_a_server_that_refuses_classes_is_reported() -> None:
    from pyspark.errors import PySparkException

    class Refusing:
        @property
        def read(self) -> None:
            raise PySparkException("ModuleNotFoundError: No module named 'lance_spark'\nmore")

    with pytest.raises(UnsupportedError, match="cannot take the classes") as raised:
        connect.enable_rules(Refusing())
    assert "(ModuleNotFoundError: No module named 'lance_spark')" in str(raised.value)
    assert "\n" not in str(raised.value)
