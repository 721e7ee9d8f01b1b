"""`LanceTable.search`, the option full_text_query and the functions of SQL: rows and scores of
pylance.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark import query as q
from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.spark.table import LanceTable
from tests.interop.text.tables import (
    change,
    oracle_scores,
    random_query,
    vocabulary,
    write_indexed,
)
from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.messages import refusal

QUERIES = 4
#: Tasks search, not the driver, and each searches few postings.
IN_TASKS = {"driver_read_bytes": 0, "target_rows_per_partition": 100}

pytestmark = pytest.mark.usefixtures("pushed")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_changed(tmp_path_factory.mktemp("search") / "t.lance", stable_row_ids=False)


def write_changed(path: Path, *, stable_row_ids: bool) -> Path:
    """Write a table with several segments, rows without an index, deleted and updated rows."""
    rng = random.Random(7)
    words = vocabulary(rng)
    write_indexed(
        path, rng, words, stable_row_ids=stable_row_ids, fragment_rows=1000, num_segments=2
    )
    change(path, rng, words, 0)
    return path


def scores_of(frame: Any) -> dict[int, float]:
    score_of = {row.id: row._score for row in frame.collect()}
    scores = list(score_of.values())
    assert scores == sorted(scores, reverse=True)
    return score_of


def plan_of(frame: Any) -> str:
    text: str = frame._jdf.queryExecution().toString()
    return text


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_random_queries(spark: Any, changed: Path, tmp_path: Path, stable_row_ids: bool) -> None:
    lance_spark.enable(spark)
    rng = random.Random(str(stable_row_ids))
    words = vocabulary(rng)
    if stable_row_ids:
        changed = write_changed(tmp_path / "t.lance", stable_row_ids=True)
    table, dataset = LanceTable.forPath(spark, str(changed)), lance_spark.open_dataset(str(changed))
    for number in range(QUERIES):
        query = random_query(rng, words)
        options: dict[str, Any] = [{}, {"filter": "id % 3 = 0"}, {"fast_search": True}][number % 3]
        expected = oracle_scores(changed, query, **options)
        where = IN_TASKS if number % 2 else {}
        score_of = scores_of(table.search(query, ["id"], **options, **where))
        assert score_of == pytest.approx(expected, rel=3e-6, abs=1e-5), query
        # The first rows are those of `Dataset`, of rows with equal scores too.
        best = dataset.to_table(["id", "_score"], full_text_query=query, limit=5, **options)
        first = table.search(query, ["id"], limit=5, **options, **where).collect()
        assert [tuple(row) for row in first] == list(
            zip(best["id"].to_pylist(), best["_score"].to_pylist(), strict=True)
        )


def test_the_number_of_tasks_changes_nothing(spark: Any, changed: Path) -> None:
    table = LanceTable.forPath(spark, str(changed))
    query = q.MatchQuery("the cats Running", "s")
    for enabled in ("true", "false"):
        spark.conf.set("spark.lance.pushdown.enabled", enabled)
        frames = [
            table.search(query, ["id"], driver_read_bytes=0, target_rows_per_partition=target)
            for target in (1, 10**9)
        ]
        one, other = (scores_of(frame) for frame in frames)
        assert one == other
        limited = [scores_of(frame.limit(3)) for frame in frames]
        assert limited[0] == limited[1] == dict(list(one.items())[:3])


def test_conditions_after_a_search(spark: Any, changed: Path) -> None:
    """They choose among the rows, and change no score, of rows without an index either."""
    lance_spark.enable(spark)
    table = LanceTable.forPath(spark, str(changed))
    whole = scores_of(table.search("the cats", ["id"]))
    for where in ({}, IN_TASKS):
        every = table.search("the cats", ["id"], **where)
        assert scores_of(every.where("id > 3000")) == {
            number: score for number, score in whole.items() if number > 3000
        }
        assert scores_of(every.where("_score > 3 AND id % 2 = 0")) == {
            number: score for number, score in whole.items() if score > 3 and number % 2 == 0
        }
        best = table.search("the cats", ["id"], limit=20, **where)
        first = dict(list(whole.items())[:20])
        expected = {number: score for number, score in first.items() if number % 2}
        assert scores_of(best.where("id % 2 = 1")) == expected
        after = table.search(
            "the cats", ["id"], k=20, filter="id % 2 = 1", prefilter=False, **where
        )
        assert scores_of(after) == expected
        before = table.search("the cats", ["id"], k=20, filter="id % 2 = 1", **where)
        assert len(scores_of(before)) == 20
        assert best.count() == 20
        assert every.count() == len(whole)
        assert every.groupBy().max("_score").head()[0] == max(whole.values())
        assert every.groupBy("id").count().where("count > 1").count() == 0
        assert best.join(spark.range(2000), "id").count() == sum(n < 2000 for n in first)


def test_reads_with_the_option(
    spark: Any, changed: Path, read: Callable[..., Any], tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    lance_spark.enable(spark)
    whole = scores_of(LanceTable.forPath(spark, str(changed)).search("the cats", ["id"]))
    for where in ({}, IN_TASKS):
        frame = read(str(changed), full_text_query="the cats", **where)
        assert frame.columns == ["id", "s", "t", "u", "_score"]
        assert {row.id: row._score for row in frame.collect()} == whole
        ordered = frame.orderBy(f.desc("_score"), "id").limit(6)
        expected = sorted(whole.items(), key=lambda pair: (-pair[1], pair[0]))[:6]
        assert [(row.id, row._score) for row in ordered.collect()] == expected
        assert [row.id for row in frame.orderBy("id").limit(2).collect()] == sorted(whole)[:2]
        assert frame.limit(4).count() == 4
        assert len(frame.select("t").take(4)) == 4
    named = read(
        str(changed), fullTextQuery='{"query": "cats", "columns": ["t"]}', columns="_score,id"
    )
    assert named.columns == ["_score", "id"]
    assert named.where("id < 2000").count() > 0
    both = q.MatchQuery("cats Running", "s", operator="AND")
    json = '{"match": {"column": "s", "terms": "cats Running", "operator": "And"}}'
    assert {row.id for row in read(str(changed), full_text_query=json).collect()} == set(
        oracle_scores(changed, both)
    )
    spark.sql(
        f"CREATE TEMPORARY VIEW found USING lance OPTIONS (path '{changed}', full_text_query 'cats')"
    )
    try:
        assert spark.table("found").count() == len(oracle_scores(changed, "cats"))
    finally:
        spark.catalog.dropTempView("found")


def test_plans_show_the_index_and_the_tasks(spark: Any, changed: Path) -> None:
    lance_spark.enable(spark)
    table = LanceTable.forPath(spark, str(changed))
    query = q.MatchQuery("the cats", "s")
    frame = table.search(query, ["id"], limit=7, driver_read_bytes=0, target_rows_per_partition=1)
    frame.collect()
    plan = plan_of(frame)
    assert 'full_text_query={"match": {"column": "s", "terms": "the cats"' in plan
    assert "indexes=[s_idx (INVERTED): " in plan
    assert 'top={"rows":7,"order":[{"col":["_score"],"descending":true' in plan
    # A task for each part of the index, and one for the texts that it does not cover.
    search = lance_spark.open_dataset(str(changed))._reader.plan_text(query, fast_search=False)
    num_parts = sum(len(segment.parts) for segment in search.columns["s"].segments)
    assert num_parts >= 3
    assert f" partitions={num_parts + 1} " in plan
    assert "columns=[id:bigint,_score:float,_rowaddr:bigint]" in plan
    assert "LocalTableScan" in plan_of(table.search(query, ["id"], limit=7))


def test_versions_branches_and_row_columns(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    texts = pa.table({"id": [1, 2], "st": [{"a": "red fox"}, {"a": "blue fox"}]})
    lance.write_dataset(texts, path)
    lance_spark.open_dataset(path).create_scalar_index("st.a", "INVERTED")
    table = LanceTable.forPath(spark, path)
    table.create_branch("b")
    lance.write_dataset(pa.table({"id": [3], "st": [{"a": "green fox"}]}), path, mode="append")
    assert table.search("fox").columns == ["id", "st", "_score"]
    assert {row.id for row in table.search("fox").collect()} == {1, 2, 3}
    assert {row.id for row in table.search("fox", fast_search=True).collect()} == {1, 2}
    for options in ({"version": 2}, {"branch": "b"}):
        at = LanceTable.forPath(spark, path, **options)
        assert {row.id for row in at.search("fox").collect()} == {1, 2}
        assert {row.id for row in table.search("fox", **options).collect()} == {1, 2}
    columns = table.search("red", ["st.a", "_rowid"], with_row_address=True)
    assert columns.columns == ["st", "_rowid", "_score", "_rowaddr"]
    assert columns.collect()[0].st.a == "red fox"
    assert table.alias("x").search("red").select("x.id").collect()[0].id == 1
    assert table.search("fox", limit=0).collect() == []
    assert table.search("nothing").collect() == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: t.search(3), "query must be a string"),
        (lambda t: t.search({"words": "x"}), "'words'"),
        (lambda t: t.search("x", limit=-1), "limit"),
        (lambda t: t.search("x", limit=1, k=1), "not k"),
        (lambda t: t.search("x", "id"), "columns"),
    ],
)
def test_wrong_arguments(spark: Any, changed: Path, call: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        call(LanceTable.forPath(spark, str(changed)))


def test_refusals(spark: Any, changed: Path, tmp_path: Path, read: Callable[..., Any]) -> None:
    table = LanceTable.forPath(spark, str(changed))
    assert "'nope'" in refusal(lambda: table.search(q.MatchQuery("x", "nope")).collect())
    assert "is not text" in refusal(lambda: table.search(q.MatchQuery("x", "id")).collect())
    assert "must be words or JSON" in refusal(
        lambda: read(str(changed), full_text_query="{").collect()
    )
    for name, value in (("fragment_ids", "0"), ("whole_fragments", "true")):
        options = {name: value, "full_text_query": "x"}
        assert name in refusal(lambda o=options: read(str(changed), **o).collect())
    assert "full_text_query" in refusal(
        lambda: read(
            str(changed), full_text_query="x", readChangeFeed="true", startingVersion=1
        ).collect()
    )
    with pytest.raises(InvalidOptionError, match="full_text_query"):
        LanceTable.forPath(spark, str(changed), full_text_query="x")
    path = str(tmp_path / "scores")
    lance.write_dataset(pa.table({"_score": [1.0], "s": ["x"]}), path)
    assert "'_score'" in refusal(lambda: LanceTable.forPath(spark, path).search("x").collect())


def test_sql(spark: Any, tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "found", tmp_path)
    catalog.run(
        [
            "CREATE TABLE CAT.t AS SELECT * FROM VALUES (1, 'the quick brown fox'), "
            "(2, 'a quick note'), (3, 'brown bread'), (4, 'a fox and a quick dog') AS t(id, text)",
            "ALTER TABLE CAT.t CREATE INDEX i USING inverted (text) WITH (with_position = true)",
            "INSERT INTO CAT.t VALUES (5, 'quick')",
            "ALTER TABLE CAT.t CREATE TAG first AS OF VERSION 2",
        ]
    )
    path = tmp_path / "t.lance"
    scores = oracle_scores(path, "quick fox")

    def searched_ids(arguments: str, function: str = "lance_search", more: str = "") -> list[int]:
        return [row.id for row in catalog.sql(f"SELECT id FROM {function}({arguments}){more}")]

    rows = catalog.sql("SELECT * FROM lance_search('found.t', 'quick fox')")
    assert {row.id: row._score for row in rows} == pytest.approx(scores, rel=1e-6)
    order = [row.id for row in rows]
    assert rows[0].asDict().keys() == {"id", "text", "_score"}
    named = "table => 'found.t', query => 'quick fox', search_columns => array('text')"
    for function in ("lance_search", "SEARCH"):
        assert searched_ids(named, function) == order
    assert searched_ids(f"'{path}', 'quick fox'") == order
    assert searched_ids("'found.t', 'quick fox', 2") == order[:2]
    assert searched_ids(f"{named}, k => 2, offset => 1") == order[1:3]
    assert searched_ids(f"{named}, num_results => 2") == order[:2]
    assert searched_ids("'found.t', 'quick fox', NULL") == order
    assert searched_ids("'found.t', 'quick fox', filter => 'id > 1', limit => 1") == order[1:2]
    after = "'found.t', 'quick fox', filter => 'id > 1', prefilter => false, limit => 1"
    assert searched_ids(after) == []
    assert (
        searched_ids("'found.t', 'quick', fast_search => true, limit => 9", more=" WHERE id > 4")
        == []
    )
    assert set(searched_ids("'found.t', 'quick', version => 2")) == {1, 2, 4}
    assert set(searched_ids("'found.t', 'quick', version => 'first'")) == {1, 2, 4}
    assert searched_ids("""'found.t', '"quick brown"'""") == [1]
    query = '{"match": {"column": "text", "terms": "quick fox", "operator": "And"}}'
    assert set(searched_ids(f"'found.t', '{query}'")) == {1, 4}
    assert [
        list(row.asDict())
        for row in catalog.sql(
            "SELECT * FROM lance_search('found.t', 'bread', columns => array('id'), "
            "with_row_id => true, with_row_address => true)"
        )
    ] == [["id", "_score", "_rowid", "_rowaddr"]]
    joined = catalog.sql(
        "SELECT t.id, s._score FROM CAT.t t JOIN lance_search('found.t', 'quick fox') s "
        "ON t.id = s.id ORDER BY s._score DESC, s.id"
    )
    assert {row.id: row._score for row in joined} == pytest.approx(scores, rel=1e-6)
    assert catalog.sql("SELECT count(*) AS n FROM lance_search('found.t', 'quick')")[0].n == 4


def test_refusals_of_sql(spark: Any, tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "refused", tmp_path)
    catalog.sql("CREATE TABLE CAT.t AS SELECT 1 AS id, 'x' AS text")
    for call, says in (
        ("lance_search('refused.t')", "argument query is missing"),
        ("search('refused.t', 'x', 1, 2)", "search: arguments after table, query, limit"),
        ("lance_search('refused.t', 'x', y => 1)", "has no parameter y"),
        ("lance_search('refused.t', 'x', k => 1, limit => 1)", "argument limit is given twice"),
        ("lance_search('refused.t', 'x', -1)", "limit must be a number of rows"),
        ("lance_search('refused.t', 'x', columns => 'id')", "columns must be an array of names"),
        ("lance_search('refused.t', 'x', filter => 'id +')", "id +"),
        ("lance_search('refused.t', 'x', search_columns => array('y'))", "'y'"),
        ("lance_search('refused.t', 'x', limit => NULL, offset => 1)", "offset needs a limit"),
        ("lance_search('refused.none', 'x')", "none"),
    ):
        with pytest.raises(Exception, match=re.escape(says)) as caught:
            catalog.sql(f"SELECT * FROM {call}")
        assert "Traceback" not in str(caught.value)
