"""Indexes of tables whose rows compactions moved, with their new addresses in the index or not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64

import lance_spark
from lance_spark import query as q
from lance_spark.errors import CorruptTableError
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.proto import table_pb2
from tests.interop.text.tables import (
    oracle_scores,
    own_scores,
    random_query,
    read_tasks,
    rows,
    tasks_of,
    vocabulary,
)
from tests.support.cells import number_of

QUERIES = number_of(5, 12)


@pytest.mark.sample(5)
@pytest.mark.parametrize("stable_row_ids", [False, True])
@pytest.mark.parametrize("who", ["own", "pylance"])
def test_changes_after_an_index(who: str, stable_row_ids: bool, tmp_path: Path) -> None:
    rng = random.Random(f"{who} {stable_row_ids}")
    words, path = vocabulary(rng), tmp_path / "t.lance"

    def compare() -> None:
        for _ in range(QUERIES):
            query = random_query(rng, words)
            arguments = rng.choice([{}, {"filter": "id % 3 = 0"}, {"fast_search": True}])
            expected = oracle_scores(path, query, **arguments)
            scores = own_scores(path, query, **arguments)
            assert scores == pytest.approx(expected, rel=3e-6, abs=1e-5), query
            dataset = lance_spark.open_dataset(str(path))
            assert read_tasks(tasks_of(dataset, query, 1, **arguments)) == scores, query

    def append(first: int) -> None:
        lance.write_dataset(
            rows(rng, first, 600, words), str(path), mode="append", max_rows_per_file=300
        )

    lance.write_dataset(
        rows(rng, 0, 3000, words),
        str(path),
        max_rows_per_file=500,
        enable_stable_row_ids=stable_row_ids,
    )
    for column in "st":
        if who == "own":
            lance_spark.open_dataset(str(path)).create_scalar_index(
                column, "INVERTED", with_position=True, num_segments=3
            )
        else:
            lance.dataset(str(path)).create_scalar_index(column, "INVERTED", with_position=True)
    lance.dataset(str(path)).delete("id >= 500 AND id < 1000")
    lance.dataset(str(path)).delete("id % 5 = 2")
    compare()
    lance.dataset(str(path)).optimize.compact_files(target_rows_per_fragment=1200)
    append(3000)
    lance.dataset(str(path)).optimize.optimize_indices()
    compare()
    lance_spark.open_dataset(str(path)).delete("id % 6 = 1").compact_files(
        target_rows_per_fragment=5000
    )
    compare()
    if not stable_row_ids:
        # The segments keep the old addresses, and one gets the new fragments.
        append(3600)
        lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=0)
        lance.dataset(str(path)).delete("id % 11 = 1")
        lance.dataset(str(path)).optimize.compact_files(
            target_rows_per_fragment=9000, defer_index_remap=True
        )
        compare()


def moves(addresses: bytes, new_rows: list[int]) -> MovedRows:
    content = table_pb2.FragmentReuseIndexDetails.InlineContent()
    group = content.legacy_versions.add().groups.add(changed_row_addrs=addresses)
    group.old_fragments.add(id=1, physical_rows=10)
    group.old_fragments.add(id=2, physical_rows=10)
    for number, count in enumerate(new_rows):
        group.new_fragments.add(id=5 + number, physical_rows=count)
    return MovedRows(content)


def test_addresses_of_moved_rows() -> None:
    old = [(1 << 32) + 3, (1 << 32) + 7, 2 << 32, (2 << 32) + 9]
    moved = moves(BitMap64(old).serialize(), [3, 1])
    addresses = np.array([*old, (1 << 32) + 4, 8 << 32, 3 << 32], np.uint64)
    new, covered = moved.addresses(addresses, BitMap([1, 2, 3]))
    assert covered.tolist() == [True] * 4 + [False, False, True]
    assert new[covered].tolist() == [5 << 32, (5 << 32) + 1, (5 << 32) + 2, 6 << 32, 3 << 32]
    assert moved.fragments(BitMap([1, 2, 3])) == BitMap([3, 5, 6])
    # The bitmap may have the new fragments already.
    assert moved.addresses(addresses, BitMap([5, 6]))[1].tolist() == [True] * 4 + [False] * 3
    new, covered = MovedRows().addresses(addresses, BitMap([1]))
    assert covered.tolist() == [True, True, False, False, True, False, False]
    empty = moves(BitMap64().serialize(), [])
    assert not empty.addresses(addresses, BitMap([1, 2]))[1].any()


@pytest.mark.parametrize("addresses", [b"", b"\x05", b"\xff" * 40, BitMap64([1 << 32]).serialize()])
def test_damaged_moves(addresses: bytes) -> None:
    with pytest.raises(CorruptTableError, match="fragment reuse index"):
        moves(addresses, [3, 1]).addresses(np.array([1 << 32], np.uint64), BitMap([1]))


def test_segments_that_pylance_merged_with_old_texts(tmp_path: Path) -> None:
    """An updated row keeps its id, and pylance merges its old document with the new one."""
    path = str(tmp_path / "t.lance")
    table = pa.table({"id": range(300), "s": [f"old w{number % 5}" for number in range(300)]})
    dataset = lance.write_dataset(table, path, max_rows_per_file=100, enable_stable_row_ids=True)
    dataset.create_scalar_index("s", "INVERTED", with_position=True)
    dataset.update({"s": "'new w7'"}, where="id % 10 = 1")
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=2)
    dataset = lance_spark.open_dataset(path)
    (segment,) = [index for index in dataset.list_indices() if index["name"] == "s_idx"]
    assert segment["fragment_ids"] == {0, 1, 2, 3}

    def matching_ids(query: q.FullTextQuery, **options: Any) -> list[int]:
        return sorted(dataset.to_table(["id"], full_text_query=query, **options)["id"].to_pylist())

    changed = range(1, 300, 10)
    kept = [number for number in range(300) if number % 10 != 1]
    for options in ({}, {"fast_search": True}):
        assert matching_ids(q.MatchQuery("new", "s"), **options) == list(changed)
        assert matching_ids(q.MatchQuery("old", "s"), **options) == kept
        assert matching_ids(q.PhraseQuery("old w1", "s"), **options) == [
            number for number in kept if number % 5 == 1
        ]
        assert len(matching_ids(q.MatchQuery("w7 w1", "s"), **options)) == 60
    assert set(matching_ids(q.MatchQuery("ole", "s", fuzziness=1))) >= set(kept)


@pytest.mark.parametrize("text", [None, "", "the"])
def test_texts_that_lost_their_words_before_pylance_merged(
    text: str | None, tmp_path: Path
) -> None:
    """A row without words has no new document, and pylance keeps the old document."""
    path = str(tmp_path / "t.lance")
    words = [f"old w{number % 5}" for number in range(300)]
    table = pa.table({"id": range(300), "s": words})
    dataset = lance.write_dataset(table, path, max_rows_per_file=100, enable_stable_row_ids=True)
    dataset.create_scalar_index("s", "INVERTED", with_position=True)
    changed = list(range(1, 300, 10))
    rows = pa.table({"id": changed, "s": pa.array([text] * len(changed), pa.string())})
    dataset.merge_insert("id").when_matched_update_all().execute(rows)
    for merged in (0, 2):
        lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=merged)
    dataset = lance_spark.open_dataset(path)
    (segment,) = [index for index in dataset.list_indices() if index["name"] == "s_idx"]
    assert segment["fragment_ids"] == {0, 1, 2, 3}
    kept = [number for number in range(300) if number not in changed]
    for query, expected in (
        (q.MatchQuery("old", "s"), kept),
        (q.MatchQuery("ole", "s", fuzziness=1), kept),
        (q.PhraseQuery("old w1", "s"), [number for number in kept if number % 5 == 1]),
    ):
        ids = dataset.to_table(["id"], full_text_query=query)["id"].to_pylist()
        assert sorted(ids) == expected
        best = dataset.to_table(["id"], full_text_query=query, limit=20)["id"].to_pylist()
        assert len(best) == 20
        assert set(best) <= set(expected)
    # Such an index is wrong for all that.
    assert not dataset.check_index("s_idx").is_valid
    dataset = dataset.optimize_indices(index_names=["s_idx"], retrain=True)
    assert dataset.check_index("s_idx").is_valid
