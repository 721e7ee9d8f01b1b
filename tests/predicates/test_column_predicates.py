"""Predicates on columns: disjunctions of comparisons become sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lance_spark
from lance_spark.predicates.columns import In, any_of, is_in
from lance_spark.predicates.sql import parse_local
from lance_spark.predicates.tree import Or


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


def test_large_sets_of_integers() -> None:
    """A table of places or a hash table, at both ends of each type: as Arrow, but null for null."""
    rng = np.random.default_rng(0)
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64):
        limits = np.iinfo(dtype)
        for low in (limits.min, max(limits.min, -100), limits.max - min(1000, limits.max)):
            for step in (1, 1 << 20):
                numbers = [low + int(place) * step for place in rng.integers(0, 1000, 3400)]
                allowed = [n for n in numbers if n <= limits.max] + [limits.min, limits.max] * 200
                values = pa.array(np.array(allowed[:400], dtype))
                tested = pa.array(np.array(allowed, dtype), mask=rng.random(len(allowed)) < 0.1)
                expected = pc.if_else(
                    tested.is_valid(),
                    pc.is_in(tested, value_set=values),
                    pa.scalar(None, pa.bool_()),
                )
                assert is_in(tested, values, has_null=False).equals(expected)
