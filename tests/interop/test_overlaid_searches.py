"""Searches of text and vectors beside overlays: the index answers for the other rows alone."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark import query as q
from lance_spark.dataset import Dataset
from tests.interop.text.tables import read_tasks, tasks_of
from tests.support.cells import number_of

SEEDS = number_of(2, 40)
ROWS, DIMENSION = 120, 4
VECTOR = pa.list_(pa.float32(), DIMENSION)
WORDS = [f"zork{number}" for number in range(7)]


def texts(rng: np.random.Generator, count: int) -> list[str | None]:
    return [
        None if rng.random() < 0.1 else " ".join(rng.choice(WORDS, rng.integers(1, 5)))
        for _ in range(count)
    ]


def vectors(rng: np.random.Generator, count: int) -> list[list[float] | None]:
    return [
        None if rng.random() < 0.1 else rng.normal(size=DIMENSION).tolist() for _ in range(count)
    ]


def changed(path: str, rng: np.random.Generator) -> Dataset:
    """Write a table with both indexes; give rows new values by overlays, and delete rows."""
    data = pa.table(
        {
            "id": range(ROWS),
            "s": pa.array(texts(rng, ROWS), pa.string()),
            "v": pa.array(vectors(rng, ROWS), VECTOR),
        }
    )
    lance.write_dataset(
        data, path, max_rows_per_file=30, enable_stable_row_ids=bool(rng.random() < 0.5)
    )
    dataset = lance_spark.open_dataset(path)
    dataset = dataset.create_scalar_index("s", "INVERTED", with_position=True)
    dataset = dataset.create_index("v", "IVF_FLAT", num_partitions=3)
    for _ in range(3):
        ids = rng.choice(ROWS, rng.integers(1, 9), replace=False).tolist()
        value: dict[str, Any] = {}
        if rng.random() < 0.7:
            value["s"] = lambda batch: pa.array(texts(rng, batch.num_rows), pa.string())
        if not value or rng.random() < 0.7:
            value["v"] = lambda batch: pa.array(vectors(rng, batch.num_rows), VECTOR)
        where = f"id IN ({', '.join(map(str, ids))})"
        dataset = dataset.update(value, where, mode="overlay")
        dataset = dataset.delete(f"id IN ({', '.join(map(str, rng.choice(ROWS, 3).tolist()))})")
    # All rows of a fragment.
    return dataset.update({"s": "zork1 other"}, "id >= 90", mode="overlay")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_equal_to_a_scan(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    rng = np.random.default_rng(seed)
    dataset = changed(str(tmp_path / "t"), rng)
    pylance = lance.dataset(dataset.uri)
    rows = dataset.to_table().to_pylist()
    for _ in range(4):
        first, second = rng.choice(WORDS, 2, replace=False).tolist()
        both = f"{first} {second}"
        for query, least in (
            (q.MatchQuery(both, "s"), 1),
            (q.MatchQuery(both, "s", operator=q.FullTextOperator.AND), 2),
            (q.PhraseQuery(both, "s"), 0),
        ):
            expected = {
                row["id"]
                for row in rows
                for own in [(row["s"] or "").split()]
                if (len({first, second}.intersection(own)) >= least)
                and (least or (first, second) in pairwise(own))
            }
            table = dataset.to_table(["id", "_score"], full_text_query=query)
            assert sorted(table["id"].to_pylist()) == sorted(expected), query
            whole = dict(zip(table["id"].to_pylist(), table["_score"].to_pylist(), strict=True))
            assert read_tasks(tasks_of(dataset, query, 1)) == whole
            best = dataset.to_table(["id", "_score"], full_text_query=query, limit=5)
            assert best["_score"].to_pylist() == sorted(whole.values(), reverse=True)[:5]
            some = dataset.to_table(["id"], full_text_query=query, filter="id % 3 = 1")
            assert set(some["id"].to_pylist()) == {key for key in expected if key % 3 == 1}
        (vector,) = rng.normal(size=(1, DIMENSION)).astype(np.float32)
        nearest = {"column": "v", "q": vector, "k": int(rng.integers(1, 20)), "nprobes": 3}
        for condition in (None, "id % 3 = 1"):
            arguments: dict[str, Any] = {"filter": condition, "prefilter": condition is not None}
            ours = dataset.to_table(["id"], nearest=nearest, **arguments)
            exact = dataset.to_table(["id"], nearest={**nearest, "use_index": False}, **arguments)
            assert ours["id"].to_pylist() == exact["id"].to_pylist()
            np.testing.assert_allclose(ours["_distance"], exact["_distance"], rtol=1e-5)
            theirs = pylance.to_table(["id"], nearest=nearest, **arguments)
            assert ours["id"].to_pylist() == theirs["id"].to_pylist()


def test_only_overlaid_rows_are_read(tmp_path: Path) -> None:
    data = pa.table(
        {
            "i": range(100),
            "s": [f"zork{number % 5}" for number in range(100)],
            "v": pa.array(
                [[float(number)] * 2 for number in range(100)], pa.list_(pa.float32(), 2)
            ),
        }
    )
    dataset = lance_spark.write_dataset(data, str(tmp_path / "t"), max_rows_per_file=50)
    dataset = dataset.create_scalar_index("s", "INVERTED")
    dataset = dataset.create_index("v", "IVF_FLAT", num_partitions=1)
    dataset = dataset.update({"s": "zork9"}, "s = 'zork0' AND i < 11", mode="overlay")
    search = dataset._reader.plan_text(q.MatchQuery("zork9", "s"), fast_search=False)
    assert dict(search.columns["s"].uncovered) == {0: 3}
    table = dataset.to_table(["s"], full_text_query=q.MatchQuery("zork9", "s"))
    assert table.num_rows == 3
    left = dataset.to_table(["s"], full_text_query=q.MatchQuery("zork0 zork9", "s"))
    assert left.num_rows == 20
    fast = dataset.to_table(
        ["s"], full_text_query=q.MatchQuery("zork0 zork9", "s"), fast_search=True
    )
    assert fast["s"].to_pylist() == ["zork0"] * 17
