"""Full-text searches of fresh rows: equal to those of pylance after the rows were brought in.

Rows of a MemWAL are scored as rows that no index covers. So the oracle is a copy of the table with
the old rows of the keys deleted, and the new rows appended.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
import uuid
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.query import BooleanQuery, BoostQuery, MatchQuery, MultiMatchQuery, Occur, PhraseQuery

import lance_spark
from lance_spark import query as own_queries
from tests.interop.mem_wal.shards import PylanceWriter, key_field

WORDS = ["red", "green", "blue", "fox", "dog", "house", "tree", "river"]
SCHEMA = pa.schema(
    [
        key_field("id", pa.int64()),
        pa.field("t", pa.string()),
        pa.field("u", pa.string()),
        pa.field("n", pa.int32()),
    ]
)


def rows_of(ids: list[int], seed: int) -> pa.Table:
    pick = random.Random(seed)

    def text() -> str | None:
        return (
            " ".join(pick.choices(WORDS, k=pick.randrange(1, 9))) if pick.random() > 0.05 else None
        )

    columns = [ids, [text() for _ in ids], [text() for _ in ids], [pick.randrange(9) for _ in ids]]
    return pa.table(columns, schema=SCHEMA)


class Tables:
    """A table with a MemWAL, and one that has the rows without it."""

    def __init__(self, folder: Path, *, indexed: bool, stable: bool) -> None:
        self.path, self.copy = str(folder / "t.lance"), str(folder / "copy.lance")
        options: dict[str, Any] = {"max_rows_per_file": 60, "enable_stable_row_ids": stable}
        dataset = lance.write_dataset(rows_of(list(range(150)), 1), self.path, **options)
        if indexed:
            for column in ("t", "u"):
                dataset.create_scalar_index(column, "INVERTED", with_position=True)
        # Rows that no index covers.
        dataset = lance.write_dataset(rows_of(list(range(150, 180)), 2), self.path, mode="append")
        shutil.copytree(self.path, self.copy)
        dataset.initialize_mem_wal(unsharded=True, maintained_indexes=[])
        shard = str(uuid.uuid4())
        first, second = rows_of([*range(0, 40, 2), 160, 500], 3), rows_of([*range(10, 30), 501], 4)
        writer = PylanceWriter(self.path, shard)
        writer.put(first)
        writer.delete(pa.table({"id": pa.array([50, 51], pa.int64())}))
        writer.close()
        writer = PylanceWriter(self.path, shard)
        writer.put(second)
        writer.delete(pa.table({"id": pa.array([0, 170], pa.int64())}))
        copy = lance.dataset(self.copy)
        gone = [*first["id"].to_pylist(), *second["id"].to_pylist(), 50, 51, 0, 170]
        copy.delete(f"id IN ({', '.join(map(str, gone))})")
        fresh = lance_spark.open_dataset(self.path).fresh()
        new = fresh.to_table(filter=f"id IN ({', '.join(map(str, gone))})")
        lance.write_dataset(new.cast(SCHEMA), self.copy, mode="append")


@pytest.fixture(scope="module", params=["indexed", "flat"])
def tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    folder = tmp_path_factory.mktemp("text")
    is_indexed = request.param == "indexed"
    return Tables(folder, indexed=is_indexed, stable=is_indexed)


def scores(rows: pa.Table) -> dict[int, float]:
    assert len(set(rows["id"].to_pylist())) == rows.num_rows
    return dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))


def assert_same(actual: dict[int, float], wanted: dict[int, float]) -> None:
    assert actual.keys() == wanted.keys()
    order = sorted(actual)
    np.testing.assert_allclose(
        [actual[key] for key in order], [wanted[key] for key in order], rtol=1e-5
    )


QUERIES: list[tuple[Any, Any]] = [
    (MatchQuery("fox", "t"), own_queries.MatchQuery("fox", "t")),
    (MatchQuery("red river", "t"), own_queries.MatchQuery("red river", "t")),
    (PhraseQuery("red fox", "t"), own_queries.PhraseQuery("red fox", "t")),
    (
        MultiMatchQuery("blue dog", ["t", "u"]),
        own_queries.MultiMatchQuery("blue dog", ["t", "u"]),
    ),
    (
        BoostQuery(MatchQuery("red", "t"), MatchQuery("fox", "t"), negative_boost=0.3),
        own_queries.BoostQuery(
            own_queries.MatchQuery("red", "t"), own_queries.MatchQuery("fox", "t"), 0.3
        ),
    ),
    (
        BooleanQuery(
            [
                (Occur.MUST, MatchQuery("tree", "t")),
                (Occur.SHOULD, MatchQuery("dog", "u")),
                (Occur.MUST_NOT, MatchQuery("blue", "t")),
            ]
        ),
        own_queries.BooleanQuery(
            [
                (own_queries.Occur.MUST, own_queries.MatchQuery("tree", "t")),
                (own_queries.Occur.SHOULD, own_queries.MatchQuery("dog", "u")),
                (own_queries.Occur.MUST_NOT, own_queries.MatchQuery("blue", "t")),
            ]
        ),
    ),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_scores_are_those_of_pylance_after_the_rows_were_brought_in(
    tables: Tables, number: int
) -> None:
    theirs, own = QUERIES[number]
    fresh = lance_spark.open_dataset(tables.path).fresh()
    brought = lance_spark.open_dataset(tables.copy)
    for condition in (None, "id >= 20 AND n < 5"):
        table = fresh.to_table(["id"], full_text_query=own, filter=condition)
        assert_same(
            scores(table), scores(brought.to_table(["id"], full_text_query=own, filter=condition))
        )
        try:
            wanted = lance.dataset(tables.copy).to_table(
                ["id", "_score"],
                full_text_query=theirs,
                filter=condition,
                prefilter=True,
                limit=1000,
            )
        except (ValueError, OSError):
            # A phrase needs an index.
            continue
        assert_same(scores(table), scores(wanted))
        values = table["_score"].to_pylist()
        assert values == sorted(values, reverse=True)
        for limit in (0, 5):
            best = fresh.to_table(["id"], full_text_query=own, filter=condition, limit=limit)
            assert best["_score"].to_pylist() == values[:limit]


def test_columns_of_the_rows(tables: Tables) -> None:
    fresh = lance_spark.open_dataset(tables.path).fresh()
    rows = {row["id"]: row for row in fresh.to_table().to_pylist()}
    table = fresh.to_table(full_text_query=own_queries.MatchQuery("fox house", "t"))
    assert table.column_names == ["id", "t", "u", "n", "_score"]
    for row in table.drop_columns("_score").to_pylist():
        assert row == rows[row["id"]]
    named = fresh.to_table(
        ["n", "_score", "t"], full_text_query=own_queries.MatchQuery("fox house", "t")
    )
    assert named.column_names == ["n", "_score", "t"]
    assert named["t"].to_pylist() == table["t"].to_pylist()


def test_tasks_of_shares(tables: Tables) -> None:
    """What Spark runs: conditions after the search, shares, and tasks that were pickled."""
    fresh = lance_spark.open_dataset(tables.path).fresh()
    query = own_queries.MatchQuery("fox river", "t")
    (after,) = fresh._reader.conditions(None, "n < 5")
    wanted = scores(fresh.to_table(full_text_query=query))
    kept = set(fresh.to_table(["id"], filter="n < 5")["id"].to_pylist())
    search = fresh._reader.plan_text(query, fast_search=False)
    schema = fresh._reader.text_schema(["id"])
    for limit in (None, 4):
        parts = [
            fresh._reader.text_task(share, schema, (), (after,), limit=limit)
            for share in search.shares(1)
        ]
        assert len(parts) > 1 or not search.indexes
        rows = pa.concat_tables(
            pa.Table.from_batches(pickle.loads(pickle.dumps(task)).batches(), task.schema)
            for task in parts
        )
        result = scores(rows)
        expected = {key: score for key, score in wanted.items() if key in kept}
        if limit is None:
            assert_same(result, expected)
        else:
            best = sorted(expected.values(), reverse=True)[:limit]
            np.testing.assert_allclose(
                sorted(result.values(), reverse=True)[:limit], best, rtol=1e-5
            )
        empty = fresh._reader.text_schema([], adds=False)
        counted = [
            batch.num_rows
            for share in search.shares(1)
            for batch in fresh._reader.text_task(share, empty, (), (after,)).batches()
        ]
        assert sum(counted) == len(expected)


def test_filters_after_the_search(tables: Tables) -> None:
    fresh = lance_spark.open_dataset(tables.path).fresh()
    query = own_queries.MatchQuery("fox river", "t")
    every = fresh.to_table(["id", "n"], full_text_query=query)
    for limit in (None, 25):
        table = fresh.to_table(
            ["id", "n"], full_text_query=query, filter="n < 5", prefilter=False, limit=limit
        )
        kept = [row for row in every.slice(0, limit).to_pylist() if row["n"] < 5]
        assert sorted(row["id"] for row in table.to_pylist()) == sorted(row["id"] for row in kept)
        assert table["_score"].to_pylist() == [row["_score"] for row in kept]


def test_combined_fields(tables: Tables) -> None:
    fresh, brought = (
        lance_spark.open_dataset(tables.path).fresh(),
        lance_spark.open_dataset(tables.copy),
    )
    query = own_queries.CombinedFieldsQuery("fox river", ["t", "u"])
    if not fresh._reader.plan_text(own_queries.MatchQuery("fox", "t"), fast_search=False).indexes:
        pytest.skip("needs an index")
    for condition in (None, "n < 4"):
        table = fresh.to_table(["id"], full_text_query=query, filter=condition)
        wanted = brought.to_table(["id"], full_text_query=query, filter=condition)
        assert_same(scores(table), scores(wanted))


@pytest.mark.parametrize("is_json", [False, True], ids=["list", "json"])
def test_lists_and_json(tmp_path: Path, is_json: bool) -> None:
    path = str(tmp_path / "t.lance")
    column = pa.field("t", pa.list_(pa.string()))
    if is_json:
        column = pa.field("t", pa.string(), metadata={"ARROW:extension:name": "arrow.json"})
    schema = pa.schema([key_field("id", pa.int64()), column])

    def rows(ids: list[int], texts: list[str]) -> pa.Table:
        values = [json.dumps({"a": text}) if is_json else [text, "x"] for text in texts]
        return pa.table([ids, values], schema=schema)

    base = rows([1, 2, 3], ["fox", "dog", "fox dog"])
    lance_spark.write_dataset(base, path, data_storage_version="2.2")
    lance_spark.open_dataset(path).create_scalar_index("t", "INVERTED")
    opened = lance_spark.open_dataset(path).initialize_mem_wal(unsharded=True)
    with opened.mem_wal_writer() as writer:
        writer.put(rows([1, 9], ["cat", "fox"]))
    writer = opened.mem_wal_writer()
    writer.put(rows([2], ["fox"]))
    writer.close(flush=False)
    query = own_queries.MatchQuery("a,str,fox" if is_json else "fox", "t")
    fresh = lance_spark.open_dataset(path).fresh()
    table = fresh.to_table(full_text_query=query)
    assert table.num_rows == 3
    compacted = lance_spark.open_dataset(path).compact_mem_wal(flush=True)
    wanted = compacted.to_table(full_text_query=query)
    assert_same(scores(table), scores(wanted))
    assert {row["id"]: row["t"] for row in table.to_pylist()} == {
        row["id"]: row["t"] for row in wanted.to_pylist()
    }
    assert_same(scores(fresh.to_table(["id"], full_text_query=query)), scores(wanted))
