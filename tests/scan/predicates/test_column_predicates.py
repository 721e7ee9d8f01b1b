"""Predicates on columns: disjunctions of comparisons become sets."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import lance_spark
from lance_spark.scan.predicates.column_predicates import In, any_of
from lance_spark.scan.predicates.sql import parse_local
from lance_spark.scan.predicates.tree import Or


def test_comparisons_of_one_column_become_a_set(tmp_path: Path) -> None:
    nan = float("nan")
    rows = pa.table({"i": [1, 2, 3, None], "f": [0.0, -0.0, nan, None], "t": ["a", "b", "c", "d"]})
    made = lance_spark.write_dataset(rows, tmp_path / "t")
    schema = made._table.schema
    texts = ("i = 1", "t = 'c'", "i IN (2, 9)", "3 = i")
    both = parse_local(" OR ".join(texts), schema)
    assert isinstance(both, Or)
    assert [len(part.values) for part in both.parts if isinstance(part, In)] == [4]
    # A condition between that may fail is not evaluated for rows that are true already.
    between = parse_local("i = 3 OR 1 / (i - 3) < 0 OR i = 2", schema)
    assert isinstance(between, Or)
    assert len(between.parts) == 3
    assert made.count_rows("i = 3 OR 1 / (i - 3) < -1 OR i = 2") == 2
    for text, count in (
        (" OR ".join(texts), 3),
        ("f = 0 OR f = double('nan')", 3),
        ("NOT (f = 0 OR f = 1)", 1),
        ("(i = 1 OR i = 2) IS NULL", 1),
        ("NOT (i = 1 OR i IN (2, NULL))", 0),
        ("i = 1 OR i <> 2 OR i = 3", 2),
    ):
        assert made.count_rows(text) == count, text
    part = parse_local("i = 1", schema)
    assert any_of([part]) is part


def test_an_index_searches_many_values_at_once(tmp_path: Path) -> None:
    rows = pa.table({"id": range(2_000)})
    made = lance_spark.write_dataset(rows, tmp_path / "t").create_scalar_index("id", "BTREE")
    text = " OR ".join(f"id = {3 * number}" for number in range(3_000))
    assert made.count_rows(text) == 667
    assert "rows to look at: 667 of" in made.explain(filter=text)
