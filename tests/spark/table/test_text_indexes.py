"""INVERTED indexes that tasks of Spark write: pylance uses them, with the scores of its own."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import pytest

import lance_spark
from lance_spark import query as q
from lance_spark.errors import InvalidOptionError
from lance_spark.spark.table import LanceTable
from tests.interop.text.tables import flat_plan, oracle_scores, own_scores, rows, vocabulary
from tests.spark.sql.catalogs import TestCatalog


def test_tasks_write_segments(spark: Any, tmp_path: Path) -> None:
    rng = random.Random(1)
    words, path, other = vocabulary(rng), tmp_path / "t.lance", tmp_path / "other.lance"
    table = rows(rng, 0, 2000, words)
    for target in (path, other):
        lance.write_dataset(table, str(target), max_rows_per_file=400)
    options = {"with_position": True, "language": "French", "max_token_length": None}
    lance.dataset(str(other)).create_scalar_index("s", "INVERTED", **options)
    spark_table = LanceTable.forPath(spark, str(path))
    spark_table.create_index("s", "inverted", num_segments=3, memory_limit=64, **options)
    assert described(path) == [("s_idx", "Inverted", 3)]
    queries = (q.MatchQuery(f"{words[0]} {words[-4]}", "s"), q.PhraseQuery("d é", "s", slop=1))
    # Scores depend on the documents of all segments.
    for query in queries:
        expected = oracle_scores(other, query)
        assert oracle_scores(path, query) == pytest.approx(expected, rel=3e-6)
        assert own_scores(path, query) == pytest.approx(expected, rel=3e-6)
    assert [row.is_valid for row in spark_table.check_index("s_idx").collect()] == [True] * 3
    lance.write_dataset(rows(rng, 2000, 300, words), str(path), mode="append")
    assert flat_plan(path, "s")
    spark_table.optimize_indices(num_indices_to_merge=2, num_segments=1)
    assert not flat_plan(path, "s")
    assert described(path) == [("s_idx", "Inverted", 2)]
    assert spark_table.check_index("s_idx").where("NOT is_valid").count() == 0
    for query in queries:
        assert own_scores(path, query) == pytest.approx(oracle_scores(path, query), rel=3e-6)
    with pytest.raises(InvalidOptionError, match="block_size must be 128, not 256"):
        spark_table.create_index("s", "INVERTED", block_size=256)


def described(path: Path) -> list[tuple[str, str, int]]:
    described = lance_spark.open_dataset(str(path)).describe_indices()
    return [(index.name, index.index_type, index.num_segments) for index in described]


def test_statements(spark: Any, tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "texts", tmp_path)
    catalog.sql(
        "CREATE TABLE CAT.t AS SELECT id, concat('Running word', id % 50) AS text "
        "FROM range(0, 3000, 1, 3)"
    )
    created = catalog.sql(
        "ALTER TABLE CAT.t CREATE INDEX i USING inverted (text) "
        "WITH (base_tokenizer = 'whitespace', stem = false, with_position = true)"
    )
    assert created == [(3, "i")]
    assert catalog.sql("CALL CAT.system.create_index('t', 'j', 'fts', array('text'))") == [(3, "j")]
    assert catalog.sql("ALTER TABLE CAT.t DROP INDEX j") == [("j", "dropped")]
    catalog.sql("INSERT INTO CAT.t SELECT id, 'a new row' FROM range(3000, 3010, 1, 1)")
    assert catalog.sql("ALTER TABLE CAT.t OPTIMIZE INDEX i") == [(4, "i")]
    (shown,) = catalog.sql("SHOW INDEXES IN CAT.t")
    assert tuple(shown)[:6] == ("i", ["text"], "Inverted", 4, 3010, 0)
    checked = catalog.sql("CALL CAT.system.check_index('t', 'i')")
    assert all(row[1] for row in checked)
    dataset = catalog.pylance("t")
    for query, count in (("new", 10), ('"running word7"', 60), ("word7 word8", 120)):
        table = dataset.to_table(full_text_query={"query": query, "columns": ["text"]})
        assert table.num_rows == count
