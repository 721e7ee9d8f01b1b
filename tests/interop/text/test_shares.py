"""Shares of a search: together they have the rows and scores of the whole, which are pylance's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark import query as q
from lance_spark.indexes.text.scoring import Hits
from lance_spark.indexes.text.search import TextSearch
from lance_spark.scan.metrics import ScanMetrics
from tests.interop.text.tables import (
    change,
    oracle_scores,
    random_query,
    read_tasks,
    tasks_of,
    vocabulary,
    write_indexed,
)
from tests.support.cells import number_of

QUERIES = number_of(6, 20)


@pytest.mark.parametrize(("stable_row_ids", "merge"), [(False, 0), (True, 0), (False, 1)])
def test_shares_have_all_rows(stable_row_ids: bool, merge: int, tmp_path: Path) -> None:
    rng = random.Random(str((stable_row_ids, merge)))
    words, path = vocabulary(rng), tmp_path / "t.lance"
    write_indexed(path, rng, words, stable_row_ids=stable_row_ids)
    change(path, rng, words, merge)
    dataset = lance_spark.open_dataset(str(path))
    counts = set()
    for _ in range(QUERIES):
        query = random_query(rng, words)
        options: dict[str, Any] = rng.choice(
            [{}, {}, {"filter": "id % 3 = 0"}, {"fast_search": True}]
        )
        expected = oracle_scores(path, query, **options)
        whole = read_tasks(tasks_of(dataset, query, 1 << 60, **options))
        assert whole == pytest.approx(expected, rel=3e-6, abs=1e-5), query
        tasks = tasks_of(dataset, query, 1, **options)
        counts.add(len(tasks))
        # The same bits.
        assert read_tasks(tasks) == whole, query
        best = dataset.to_table(["id", "_score"], full_text_query=query, limit=9, **options)
        limited = read_tasks(tasks_of(dataset, query, 300, limit=9, **options))
        assert set(zip(best["id"].to_pylist(), best["_score"].to_pylist(), strict=True)) <= set(
            limited.items()
        )
    assert max(counts) >= (4 if merge == 0 else 2)


def test_columns_are_searched_together(tmp_path: Path) -> None:
    """A row is in one share for all columns, although their segments have other fragments."""
    table = pa.table({"id": range(8), "a": ["x"] * 8, "b": ["y x"] * 8, "c": ["x", "y"] * 4})
    path = tmp_path / "t.lance"
    lance.write_dataset(table, str(path), max_rows_per_file=1)
    dataset = lance_spark.open_dataset(str(path))
    dataset = dataset.create_scalar_index("a", "INVERTED", num_segments=4)
    dataset = dataset.create_scalar_index("b", "INVERTED", num_segments=2)

    def shares(query: q.FullTextQuery) -> list[TextSearch]:
        return dataset._reader.plan_text(query, fast_search=False).shares(1)

    assert len(shares(q.MatchQuery("x", "a"))) == 4
    both = q.MatchQuery("x", "a") & q.MatchQuery("y", "b")
    fragments = [sorted(share.fragments) for share in shares(both)]
    assert sorted(map(len, fragments)) == [4, 4]
    assert sorted(number for share in fragments for number in share) == list(range(8))
    # No index covers c: its statistics need all rows in one share.
    assert len(shares(both | q.MatchQuery("x", "c"))) == 1
    assert len(read_tasks(tasks_of(dataset, both, 1))) == 8


def test_ties() -> None:
    addresses = np.arange(6, dtype=np.uint64)
    # Equal as 32-bit numbers.
    scores = np.array([1.0, 2.0, 1.0 + 1e-12, 3.0, 1.0, 0.5])
    hits = Hits(addresses, scores)
    assert hits.best(None).addresses.tolist() == [3, 1, 0, 2, 4, 5]
    assert [hits.best(n).addresses.tolist() for n in range(4)] == [[], [3], [3, 1], [3, 1, 0]]
    assert hits.best(3, keeps_ties=True).addresses.tolist() == [3, 1, 0, 2, 4]
    assert hits.best(9).addresses.tolist() == [3, 1, 0, 2, 4, 5]


def test_columns_of_tasks(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    table = pa.table({"id": range(4), "a": ["x", "y", "x x", "x y"]})
    lance.write_dataset(table, str(path), max_rows_per_file=2)
    dataset = lance_spark.open_dataset(str(path)).create_scalar_index("a", "INVERTED")
    dataset.delete("id = 0")
    dataset = lance_spark.open_dataset(str(path))
    search = dataset._reader.plan_text("x", fast_search=False)
    for columns in (
        ["_score"],
        ["_rowaddr", "_score", "_rowoffset"],
        ["_score", "a", "_rowid", "_fragid"],
        [],
    ):
        schema = dataset._reader.text_schema(columns, adds=False)
        task = dataset._reader.text_task(search, schema, (), ())
        metrics = ScanMetrics()
        batches = list(task.batches(metrics))
        assert sum(batch.num_rows for batch in batches) == 2
        assert all(batch.schema.names == columns for batch in batches)
    expected = dataset.to_table(["_rowoffset", "_score"], full_text_query="x")
    assert sorted(expected["_rowoffset"].to_pylist()) == [1, 2]
