"""A search with a limit returns the first rows of the search without one, ties included."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.indexes.text import columns, scoring, wand
from lance_spark.indexes.text import search as task
from lance_spark.indexes.text.files import TextIndexPart, TokenBlocks
from lance_spark.indexes.text.scoring import greatest
from lance_spark.scan.metrics import ScanMetrics
from tests.interop.text.tables import (
    change,
    oracle_scores,
    random_query,
    rows,
    vocabulary,
    write_indexed,
)
from tests.support.cells import number_of

QUERIES = number_of(7, 25)
LIMITS = (0, 1, 2, 7, 40, 5000)


def expected_rows(dataset: Any, query: Any, **options: Any) -> list[tuple[float, int]]:
    """Return minus the score and the address of each row, sorted."""
    table = dataset.to_table(["_rowaddr", "_score"], full_text_query=query, **options)
    negative = [-score for score in table["_score"].to_pylist()]
    return sorted(zip(negative, table["_rowaddr"].to_pylist(), strict=True))


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("stable_row_ids", "merge", "compacted"),
    [
        (False, None, None),
        (False, 0, "deferred"),
        (False, 1, "at once"),
        (True, 0, "at once"),
        (True, 1, None),
    ],
)
def test_first_rows(
    stable_row_ids: bool,
    merge: int | None,
    compacted: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(str((stable_row_ids, merge, compacted)))
    # Few words, so that many scores are equal.
    words, path = vocabulary(rng)[:200], tmp_path / "t.lance"
    write_indexed(path, rng, words, stable_row_ids=stable_row_ids)
    change(path, rng, words, merge)
    # Most of the best rows are dead.
    lance.dataset(str(path)).delete("id % 4 > 0 AND id < 2000")
    if compacted is not None:
        lance.dataset(str(path)).optimize.compact_files(
            target_rows_per_fragment=900, defer_index_remap=compacted == "deferred"
        )
    monkeypatch.setattr(columns, "_MORE_DOCUMENTS", 0)
    monkeypatch.setattr(columns, "_GROWTH", 2)
    monkeypatch.setattr(wand, "_FEW_BLOCKS", 1)
    monkeypatch.setattr(wand, "_FIRST_ROUND", 1)
    dataset = lance_spark.open_dataset(str(path))
    for number in range(QUERIES):
        query = random_query(rng, words)
        options: dict[str, Any] = rng.choice(
            [{}, {}, {"filter": "id % 3 = 0"}, {"fast_search": True}]
        )
        expected = expected_rows(dataset, query, **options)
        if number % 5 == 0:
            oracle = sorted(-score for score in oracle_scores(path, query, **options).values())
            assert [score for score, _ in expected] == pytest.approx(oracle, rel=3e-6, abs=1e-5)
        monkeypatch.setattr(scoring, "_STEP", rng.choice([64, 700, 1 << 15]))
        monkeypatch.setattr(task, "_TRIED", rng.choice([1, 16]))
        monkeypatch.setattr(wand, "_MOST", rng.choice([0.25, 1, 1]))
        # The query without a limit decoded all postings, with which no block is skipped.
        monkeypatch.setattr(TextIndexPart, "has_decoded", lambda part, tokens: False)
        for limit in LIMITS:
            best = dataset.to_table(
                ["_rowaddr", "_score"], full_text_query=query, limit=limit, **options
            )
            addresses, scores = best["_rowaddr"].to_pylist(), best["_score"].to_pylist()
            assert list(zip(scores, addresses, strict=True)) == [
                (-score, address) for score, address in expected[:limit]
            ], query


def test_ties_in_shares(tmp_path: Path) -> None:
    rng = random.Random(5)
    words, path = ["x"] * 5 + ["y", "z"], tmp_path / "t.lance"
    lance.write_dataset(rows(rng, 0, 2000, words), str(path), max_rows_per_file=300)
    dataset = lance_spark.open_dataset(str(path))
    dataset = dataset.create_scalar_index("s", "INVERTED", num_segments=4)
    dataset.delete("id % 3 = 0")
    dataset = lance_spark.open_dataset(str(path))
    schema = dataset._reader.text_schema(["id"])
    for query in ("x", "y", "y z"):
        for share in dataset._reader.plan_text(query, fast_search=False).shares(1):
            every = dataset._reader.text_task(share, schema, (), ()).best(
                ScanMetrics(), dataset._reader.opened_rows()
            )
            assert len(every.addresses)
            for limit in (1, 5, 100):
                search = dataset._reader.text_task(
                    share, schema, (), (), limit=limit, keeps_ties=True
                )
                best = search.best(ScanMetrics(), search.opened())
                last = every.scores[min(limit, len(every.scores)) - 1]
                count = int((every.scores >= last).sum())
                assert best.addresses.tolist() == every.addresses[:count].tolist()
                assert best.scores.tolist() == every.scores[:count].tolist()


def test_greatest_scores() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 5, 63, 64, 65, 1000, 5000):
        for distinct in (1, 3, 100, 1 << 30):
            scores = rng.integers(0, distinct, size).astype(np.float32)
            scores[rng.random(size) < 0.1] = -np.inf
            order = np.argsort(-scores, kind="stable")
            for limit in {1, 2, size // 2, size}:
                if not 0 < limit <= size:
                    continue
                chosen = greatest(scores, limit, keeps_ties=False)
                assert chosen.tolist() == sorted(order[:limit].tolist())
                ties = greatest(scores, limit, keeps_ties=True)
                assert ties.tolist() == np.flatnonzero(scores >= scores[order[limit - 1]]).tolist()


def test_postings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    of_blocks = TokenBlocks.of

    def counted(blocks: Any, *arguments: Any) -> Any:
        reads.append(len(blocks.lengths))
        return of_blocks(blocks, *arguments)

    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": range(4), "a": ["x y", "y", "x x", "z"]}), str(path))
    dataset = lance_spark.open_dataset(str(path)).create_scalar_index("a", "INVERTED")
    monkeypatch.setattr(TokenBlocks, "of", counted)
    ids = [
        dataset.to_table(["id"], full_text_query=query, limit=3)["id"].to_pylist()
        for query in ("x", "x", "z y x", "y z", "none")
    ]
    assert ids == [[2, 0], [2, 0], [3, 0, 2], [3, 1, 0], []]
    # The second query reads nothing, and the third one other words at once.
    assert reads == [1, 2]
