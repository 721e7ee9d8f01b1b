"""Declarative pipelines of Spark, since 4.1: the example, full refreshes, changed columns, flows that
fail, flows of changes, and tables of the session's catalog.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

from lance_spark.spark.jvm import enable
from tests.support.spark.connect_server import CONF, running_server, variables
from tests.support.spark.processes import ROOT, write_kept_jar
from tests.support.spark.versions import SPARK

EXAMPLE = ROOT / "examples" / "pipelines"
#: Runs pipelines and statements, one after the other, and prints what they return.
CLIENT = """
import gc, json, os, sys
from contextlib import redirect_stdout
from pathlib import Path
from pyspark.pipelines import cli
from pyspark.sql import SparkSession

os.environ["SPARK_REMOTE"] = sys.argv[1]
# Clients of Spark 4.1 wait for each other without end if an earlier session is collected meanwhile.
gc.disable()
answers = []
for kind, *arguments in json.loads(sys.argv[2]):
    if kind == "run":
        spec, full, refusal = arguments
        try:
            with redirect_stdout(sys.stderr):
                cli.run(Path(spec), [] if full == ["*"] else full, full == ["*"], [], False)
            answers.append("ran")
        except Exception as error:
            answers.append(str(error))
        assert (refusal or "ran") in answers[-1], answers[-1]
        continue
    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    rows = spark.sql(arguments[0]).collect()
    answers.append([list(row.asDict(True).values()) for row in rows])
    spark.stop()
print(json.dumps(answers, default=str))
"""


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    """The address of a server with the catalog `lance`, and with Lance tables of its own catalog."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enable, "write_jar", write_kept_jar)
        enable.write_conf(folder / "conf", root=str(folder / "lake"), session_catalog=True)
    properties = ["--properties-file", str(folder / "conf" / "lance-spark-defaults.conf")]
    conf = {**CONF, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    with running_server(folder, properties, conf) as address:
        yield address


def ask(server: str, folder: Path, *steps: tuple[Any, ...]) -> list[Any]:
    """Run pipelines and statements in a process of a client; return the rows of the statements."""
    ran = subprocess.run(
        [sys.executable, "-c", CLIENT, server, json.dumps(steps)],
        env=variables(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    answers = json.loads(ran.stdout.splitlines()[-1])
    return [rows for (kind, *_), rows in zip(steps, answers, strict=True) if kind == "sql"]


HEADER = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()
"""


def pipeline(place: Path, catalog: str = "lance", database: str = "default", **files: str) -> str:
    """Write a pipeline, in place of its files before; return the path of its specification."""
    shutil.rmtree(place / "flows", ignore_errors=True)
    (place / "flows").mkdir(parents=True)
    for name, text in files.items():
        (place / "flows" / f"{name}.py").write_text(HEADER + textwrap.dedent(text))
    specification = place / "spark-pipeline.yml"
    specification.write_text(
        f"name: {place.name}\nstorage: file://{place}/storage\ncatalog: {catalog}\n"
        f"database: {database}\nlibraries:\n  - glob:\n      include: flows/**\n"
    )
    return str(specification)


def run(specification: str, *full: str, refusal: str = "") -> tuple[Any, ...]:
    """Return the step that runs a pipeline; `*` refreshes all tables."""
    return ("run", specification, full, refusal)


def sql(statement: str) -> tuple[str, str]:
    return ("sql", statement)


def test_example(server: str, folder: Path) -> None:
    """The project `examples/pipelines`: two flows into a table, vectors by a function, materialized
    views in Python and SQL, an index, and a second run with new rows.
    """
    example = folder / "example"
    shutil.copytree(EXAMPLE, example)
    specification = example / "spark-pipeline.yml"
    specification.write_text(specification.read_text().replace("/data/", f"{folder}/data/"))
    arriving = folder / "data" / "reviews" / "input"
    reviews = {
        "books": [(1, 5, "a fine book"), (2, 2, "too long")],
        "games": [(3, 4, "a good game")],
    }
    for shop, rows in reviews.items():
        (arriving / shop).mkdir(parents=True)
        (arriving / shop / "1.json").write_text(
            "\n".join(
                json.dumps(dict(zip(("id", "stars", "text"), row, strict=True))) for row in rows
            )
        )
    index = "'reviews.searchable', 'vectors', 'IVF_FLAT', array('vector')"
    (first,) = ask(
        server,
        folder,
        sql("CREATE NAMESPACE lance.reviews"),
        run(str(specification)),
        sql("SELECT shop, reviews, stars FROM lance.reviews.shops ORDER BY shop"),
        sql(f"CALL lance.system.create_index({index})"),
    )[1:2]
    assert first == [["books", 2, 3.5], ["games", 1, 4.0]]
    (arriving / "games" / "2.json").write_text('{"id": 4, "stars": 1, "text": "dull"}')
    shops, liked, places, indexes = ask(
        server,
        folder,
        # Spark starts a flow before all flows into its source have ended, and reads the rest later.
        run(str(specification)),
        run(str(specification)),
        sql("SELECT shop, reviews, stars FROM lance.reviews.shops ORDER BY shop"),
        sql("SELECT shop, reviews FROM lance.reviews.liked_by_shop ORDER BY shop"),
        sql("DESCRIBE DETAIL lance.reviews.searchable"),
        sql("SHOW INDEXES IN lance.reviews.searchable"),
    )
    assert shops == [["books", 2, 3.5], ["games", 2, 2.5]]
    assert liked == [["books", 1], ["games", 1]]
    (path,) = (folder / "lake").glob("*_reviews$searchable")
    assert str(path) in map(str, places[0])
    table = lance.dataset(path)
    table.validate()
    assert table.schema.field("vector").type.list_size == 64
    assert sorted(table.to_table()["id"].to_pylist()) == [1, 2, 3, 4]
    # Rows of later runs are searched without the index.
    assert [indexes[0][0], indexes[0][4], indexes[0][6]] == ["vectors", 3, 1]


FLOWS = """
@dp.table(table_properties={{"vector.arrow.fixed-size-list.size": "2"}})
def rows():
    source = spark.readStream.table("lance.{0}.source").withColumn("value", sf.expr("{1}"))
    return source.withColumn("vector", sf.array(sf.lit(1.0), sf.lit(2.0)).cast("array<float>"))

@dp.materialized_view
def counts():
    return spark.read.table("rows").groupBy("word").agg({2})
"""
ONE = 'sf.count("*").alias("n")'


def test_refreshes_and_changed_columns(server: str, folder: Path) -> None:
    """Materialized views keep versions, tags and indexes; full refreshes; columns that are added,
    dropped or of another type; a flow that fails.
    """
    place = folder / "changes"

    def flows(value: str, aggregates: str) -> str:
        return pipeline(place, database="changes", flows=FLOWS.format("changes", value, aggregates))

    specification = flows("id", ONE)
    counts = sql("SELECT * FROM lance.changes.counts ORDER BY word")
    rows = sql("SELECT id, value FROM lance.changes.rows ORDER BY id")
    *_, before, again, full = ask(
        server,
        folder,
        sql("CREATE NAMESPACE lance.changes"),
        sql("CREATE TABLE lance.changes.source (id BIGINT, word STRING)"),
        sql("INSERT INTO lance.changes.source VALUES (1, 'a'), (2, 'b')"),
        run(specification),
        sql("CALL lance.system.create_index('changes.counts', 'words', 'BTREE', array('word'))"),
        sql("CALL lance.system.create_tag('changes.counts', 'first')"),
        sql("INSERT INTO lance.changes.source VALUES (3, 'b')"),
        run(specification),
        counts,
        sql("SELECT * FROM lance.changes.counts VERSION AS OF 'first' ORDER BY word"),
        run(specification, "*"),
        rows,
    )
    assert before == [["a", 1], ["b", 2]]
    assert again == [["a", 1], ["b", 1]]
    assert full == [[1, 1], [2, 2], [3, 3]]

    # A column more; then one less, and a type that holds fewer values.
    specification = flows("id", f'{ONE}, sf.max("id").alias("last")')
    more, indexes = ask(
        server, folder, run(specification), counts, sql("SHOW INDEXES IN lance.changes.counts")
    )
    assert more == [["a", 1, 1], ["b", 2, 3]]
    assert [index[0] for index in indexes] == ["words"]
    narrow = flows("id", 'sf.count("*").cast("int").alias("n")')
    ask(server, folder, run(narrow, refusal="n cannot be changed from int64 to int32"))
    (fewer,) = ask(server, folder, run(flows("id", ONE)), counts)
    assert fewer == [["a", 1], ["b", 2]]

    # A flow that fails half way has no rows, and the next run continues.
    failing = flows("if(id = 5, raise_error('row 5'), id)", ONE)
    _, kept, counted = ask(
        server,
        folder,
        sql("INSERT INTO lance.changes.source VALUES (4, 'd'), (5, 'e')"),
        run(failing, refusal="row 5"),
        rows,
        counts,
    )
    assert kept == [[1, 1], [2, 2], [3, 3]]
    # Spark empties a view before it runs the flows.
    assert counted == []
    repaired = flows("id", ONE)
    rows_after, counts_after = ask(server, folder, run(repaired), rows, counts)
    assert rows_after == [[n, n] for n in range(1, 6)]
    assert counts_after == [["a", 1], ["b", 2], ["d", 1], ["e", 1]]


@pytest.mark.skipif(SPARK < (4, 2), reason="Spark has flows of changes since 4.2")
def test_flows_of_changes(server: str, folder: Path) -> None:
    """Flows of changes (`create_auto_cdc_flow`), since Spark 4.3 also with `stored_as_scd_type=2`."""
    kinds = (1, 2) if SPARK >= (4, 3) else (1,)
    flow = """
    dp.create_streaming_table("people{0}")
    dp.create_auto_cdc_flow(
        target="people{0}", source="lance.cdc.source", keys=["id"], sequence_by="seq",
        apply_as_deletes="gone", except_column_list=["gone"], stored_as_scd_type={0},
    )
    """
    texts = {f"people{kind}": flow.format(kind) for kind in kinds}
    specification = pipeline(folder / "cdc", database="cdc", **texts)
    people = [
        sql(
            f"SELECT * EXCEPT (__spark_autocdc_metadata) FROM lance.cdc.people{kind} "
            "ORDER BY id, seq"
        )
        for kind in kinds
    ]
    answers = ask(
        server,
        folder,
        sql("CREATE NAMESPACE lance.cdc"),
        sql("CREATE TABLE lance.cdc.source (id BIGINT, name STRING, seq BIGINT, gone BOOLEAN)"),
        sql("INSERT INTO lance.cdc.source VALUES (1, 'a', 1, false), (2, 'b', 1, false)"),
        run(specification),
        sql("INSERT INTO lance.cdc.source VALUES (2, 'b', 3, true), (1, 'A', 2, false)"),
        run(specification),
        *people,
        run(specification, "*"),
        *people,
    )[4:]
    newest = [[1, "A", 2]]
    history = [[1, "a", 1, 1, 2], [1, "A", 2, 2, None], [2, "b", 1, 1, 3]]
    expected = [newest, history][: len(kinds)]
    assert answers == [*expected, *expected]


def test_tables_of_the_session_catalog(server: str, folder: Path) -> None:
    """Tables of the catalog of the session, with `format="lance"`."""
    specification = pipeline(
        folder / "own",
        "spark_catalog",
        flows="""
        @dp.table(format="lance")
        def own_rows():
            return spark.readStream.table("lance.own.source")

        @dp.materialized_view(format="lance")
        def own_count():
            return spark.read.table("own_rows").agg(sf.count("*").alias("n"))
        """,
    )
    *_, count = ask(
        server,
        folder,
        sql("CREATE NAMESPACE lance.own"),
        sql("CREATE TABLE lance.own.source AS SELECT id FROM range(3)"),
        run(specification),
        sql("INSERT INTO lance.own.source VALUES (3)"),
        run(specification),
        run(specification, "*"),
        sql("SELECT n FROM own_count"),
    )
    assert count == [[4]]
    assert lance.dataset(folder / "warehouse" / "own_rows").count_rows() == 4


def test_what_is_missing_is_named(server: str, folder: Path) -> None:
    """An absent namespace and columns for clusters are refused by name."""
    flow = "@dp.materialized_view\ndef one():\n    return spark.range(1)"
    absent = pipeline(folder / "absent", database="absent", flows=flow)
    clustered = flow.replace("view", "view(cluster_by=['id'])")
    parted = pipeline(folder / "parted", database="changes", flows=clustered)
    ask(
        server,
        folder,
        run(absent, refusal="The schema `lance`.`absent` cannot be found"),
        sql("CREATE NAMESPACE IF NOT EXISTS lance.changes"),
        run(parted, refusal="remove PARTITIONED BY or CLUSTER BY"),
    )
