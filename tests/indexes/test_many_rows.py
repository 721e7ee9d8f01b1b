"""Segments of indexes that leave many rows: tasks search them, or they are scanned."""

from __future__ import annotations

import pickle
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset.dataset import Dataset
from lance_spark.indexes import candidates
from lance_spark.indexes import candidates as column_indexes
from lance_spark.indexes.candidates import CandidateSearch
from lance_spark.proto import table_pb2

TEXT = "a BETWEEN 100 AND 119"
ROWS = 6_000
#: Conditions that indexes answer alone, together, and beside a column without an index.
TEXTS = (
    "a = 77",
    "a BETWEEN 100 AND 140",
    "a IN (3, 500, 1999, 77)",
    "a BETWEEN 100 AND 140 AND g < 3",
    "a BETWEEN 100 AND 140 OR g = 4",
    "a BETWEEN 100 AND 140 AND id < 4000",
    "a < 50 AND NOT (g = 3)",
    "a IS NULL",
    "word LIKE 'w01%'",
    "contains(word, '177')",
    "g = 4 OR contains(word, '0177')",
    "array_has_any(list, [7, 9])",
)


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave all segments with more than 5 rows to tasks."""
    monkeypatch.setattr(column_indexes, "MAX_ROWS_OF_DRIVER", 5)
    # Tables of a few thousand rows are less than the rows that are always read by an index.
    monkeypatch.setattr(column_indexes, "_FEW_SCATTERED", 1 << 20)
    monkeypatch.setattr(candidates, "_MANY", 1 << 20)


def rows(ids: np.ndarray) -> pa.Table:
    numbers = ids.tolist()
    return pa.table(
        {
            "id": ids,
            "a": pa.array(ids * 7 % 2_000, mask=ids % 97 == 0),
            "g": ids % 60,
            "word": [f"w{number % 2_100:04}" for number in numbers],
            "list": pa.array([[number % 300, number % 17] for number in numbers]),
        }
    )


def made(path: Path, *, stable: bool, version: str = "2.2", segments: int = 3) -> Dataset:
    data = rows(np.random.default_rng(3).permutation(ROWS))
    lance.write_dataset(
        data,
        str(path),
        max_rows_per_file=ROWS // 3,
        enable_stable_row_ids=stable,
        data_storage_version=version,  # type: ignore[arg-type]
    )
    dataset = lance_spark.open_dataset(str(path))
    index_types = {"a": "BTREE", "g": "BITMAP", "word": "BTREE", "list": "LABEL_LIST"}
    for column, index_type in index_types.items():
        dataset = dataset.create_scalar_index(column, index_type, num_segments=segments)
    return dataset.create_scalar_index("word", "NGRAM", "parts", num_segments=segments)


def check(dataset: Dataset) -> int:
    """Compare answers with those of a scan; return the number of tasks that search."""
    searches = 0
    for text in TEXTS:
        expected = dataset.to_table(filter=text, use_scalar_index=False)
        # As a worker gets them.
        tasks = pickle.loads(pickle.dumps(dataset.plan(filter=text, rows_per_task=1_500)))
        batches = [batch for task in tasks for batch in task.batches()]
        assert pa.Table.from_batches(batches, expected.schema) == expected, text
        assert dataset.count_rows(text) == len(expected), text
        searches += sum(task.index_search is not None for task in tasks)
    return searches


@pytest.mark.sample(3)
@pytest.mark.parametrize(("stable", "version"), [(False, "2.0"), (True, "2.2")])
def test_tasks_find_the_rows_of_a_scan(tmp_path: Path, stable: bool, version: str) -> None:
    dataset = made(tmp_path / "t", stable=stable, version=version)
    assert check(dataset) >= 10
    dataset.delete("id % 13 = 5")
    dataset = lance_spark.open_dataset(dataset.uri)
    dataset.update({"a": 105}, "id % 700 = 7")
    lance.dataset(dataset.uri).insert(rows(np.arange(ROWS, ROWS + 500)))
    dataset = lance_spark.open_dataset(dataset.uri)
    assert check(dataset) >= 10
    table = lance.dataset(dataset.uri)
    table.optimize.compact_files(target_rows_per_fragment=3_000, defer_index_remap=not stable)
    dataset = lance_spark.open_dataset(dataset.uri)
    assert check(dataset) >= 10
    lance.dataset(dataset.uri).optimize.optimize_indices()
    assert check(lance_spark.open_dataset(dataset.uri)) >= 8


def test_tasks_read_only_what_they_find(tmp_path: Path) -> None:
    dataset = made(tmp_path / "t", stable=False)
    tasks = dataset.plan(filter=TEXT, rows_per_task=500)
    # A quarter of the rows is expected to be read, so that fewer tasks search.
    assert len(tasks) == 3
    num_rows = 0
    for task in tasks:
        assert isinstance(task.index_search, CandidateSearch)
        paths = dataset._table.paths
        narrowed = task.index_search.narrowed(paths, task.slices, task.filters)
        num_rows += sum(piece.num_rows for piece in narrowed)
    assert num_rows == dataset.count_rows(TEXT) > 0
    assert "a_idx (BTREE): tasks search 3 of its segments" in dataset.explain(filter=TEXT)
    # A task has the segments of its own fragments, and its indexes only.
    search = tasks[0].index_search
    assert isinstance(search, CandidateSearch)
    section = table_pb2.IndexSection.FromString(search.section)
    assert {index.name for index in section.indices} == {"a_idx"}
    assert len(section.indices) == 1


def test_few_rows_are_found_by_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = made(tmp_path / "t", stable=False)
    monkeypatch.setattr(column_indexes, "MAX_ROWS_OF_DRIVER", 20)
    monkeypatch.setattr(candidates, "_MANY", 16)
    # The condition on `g` alone is left to tasks, but `a` leaves few rows for them.
    for text, searches in (("g = 5", True), ("g = 5 AND a = 77", False)):
        tasks = dataset.plan(filter=text)
        assert [task.index_search is not None for task in tasks] == [searches]
        assert ("tasks search" in dataset.explain(filter=text)) is searches
        assert sum(task.num_rows for task in tasks) == (ROWS if searches else 3)


def test_a_damaged_index_is_left_out_by_tasks(tmp_path: Path) -> None:
    dataset = made(tmp_path / "t", stable=False)
    tasks = dataset.plan(filter=TEXT)
    for file in (tmp_path / "t" / "_indices").glob("*/page_data.lance"):
        file.write_bytes(b"x" * 200)
    expected = dataset.to_table(filter=TEXT, use_scalar_index=False)
    batches = [batch for task in tasks for batch in task.batches()]
    assert pa.Table.from_batches(batches, expected.schema) == expected


def test_rows_everywhere_are_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t")
    ids = np.random.default_rng(4).permutation(300_000)
    lance_spark.write_dataset(pa.table({"a": ids, "b": np.arange(300_000)}), path)
    dataset = lance_spark.open_dataset(path)
    for column in ("a", "b"):
        dataset = dataset.create_scalar_index(column, "BTREE")
    monkeypatch.setattr(column_indexes, "_FEW_SCATTERED", 1_000)
    monkeypatch.setattr(column_indexes, "MAX_ROWS_OF_DRIVER", 1_000)

    def searches(text: str) -> list[bool]:
        return [task.index_search is not None for task in dataset.plan(filter=text)]

    # The first page of the answer shows that its rows are in all chunks.
    assert searches("a BETWEEN 10000 AND 29999") == [False]
    assert searches("b BETWEEN 10000 AND 29999") == [True]
    # An index that leaves more than one row in 16 is not used.
    assert searches("b BETWEEN 10000 AND 99999") == [False]


def test_segments_past_the_limit_of_a_process_are_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t")
    for start in range(4):
        # The values of each fragment are spread over all of them.
        part = pa.table({"a": np.arange(2000) * 4 % 2000 + start})
        lance_spark.write_dataset(part, path, mode="append" if start else "create")
    dataset = lance_spark.open_dataset(path).create_scalar_index("a", "BTREE", num_segments=4)
    expected = dataset.to_table(filter=TEXT, use_scalar_index=False)
    for limit in (1 << 20, 45, 25, 0):
        monkeypatch.setattr(column_indexes, "MAX_ROWS", limit)
        assert dataset.to_table(filter=TEXT) == expected
        monkeypatch.setattr(column_indexes, "MAX_ROWS_OF_DRIVER", limit)
        assert dataset.to_table(filter=TEXT) == expected
        counts = dataset.count_rows(TEXT)
        assert counts == len(expected) == 80
