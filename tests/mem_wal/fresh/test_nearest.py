"""Hidden rows in vector searches by an index: equal to a search after the MemWAL was compacted."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import EvaluationError
from lance_spark.indexes.vectors.search import VectorScanTask
from lance_spark.mem_wal.fresh.key_sets import KeySet
from lance_spark.mem_wal.fresh.searches import FreshNearestTask
from tests.support.cells import number_of

ROWS, DIMENSION = 3000, 8
KEYS = ("integer", "string", "pair")
#: Parts of the rows that are changed: with most, too few rows that an index finds are not hidden.
SHARES = (0.002, 0.1, 0.95)
INDEXES: Sequence[Mapping[str, Any]] = (
    {"index_type": "IVF_FLAT"},
    {"index_type": "IVF_PQ", "num_sub_vectors": 4},
    {"index_type": "IVF_SQ"},
    {"index_type": "IVF_RQ"},
)


class RandomTable:
    """A table with an index of vectors, some rows that it lacks, and deleted rows."""

    def __init__(self, path: Path, seed: int, index: Mapping[str, Any]) -> None:
        self.path = str(path / "t.lance")
        self.random = np.random.default_rng(seed)
        self._shard = str(uuid.uuid4())
        self._share = SHARES[seed // 2 % len(SHARES)]
        self._key = KEYS[seed % len(KEYS)]
        self._cells = self.random.normal(size=(12, DIMENSION)).astype(np.float32)
        dataset = lance_spark.write_dataset(
            self.rows(np.arange(ROWS)),
            self.path,
            max_rows_per_file=1100,
            enable_stable_row_ids=bool(seed % 2),
        )
        dataset = dataset.create_index("v", num_partitions=9, **index)
        if self.random.random() < 0.5:
            dataset = lance_spark.write_dataset(
                self.rows(np.arange(ROWS, ROWS + 60)), self.path, mode="append"
            )
        if self.random.random() < 0.5:
            dataset = dataset.delete("s = 7")
        self.dataset = dataset.initialize_mem_wal(unsharded=True)

    def rows(self, numbers: npt.NDArray[np.int64], shift: int = 0) -> pa.Table:
        """Return rows of the keys of some numbers, with random vectors."""
        vectors = self._cells[self.random.integers(0, len(self._cells), len(numbers))]
        vectors = vectors + self.random.normal(size=vectors.shape).astype(np.float32)
        keys = self.keys(numbers)
        columns = {
            **{name: keys[name] for name in keys.column_names},
            "s": pa.array((numbers + shift) % 10, pa.int32()),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), DIMENSION),
        }
        fields = [*keys.schema, pa.field("s", pa.int32())]
        fields.append(pa.field("v", columns["v"].type))
        return pa.table(columns, pa.schema(fields))

    def keys(self, numbers: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the key of some numbers; they do not increase with these."""
        mixed = pa.array((numbers * 7919) % 100_003)
        columns = {
            "integer": {"id": mixed},
            "string": {"id": mixed.cast(pa.string())},
            "pair": {"id": pa.array(numbers % 50), "name": mixed.cast(pa.string())},
        }[self._key]
        fields = []
        for place, (name, column) in enumerate(columns.items()):
            metadata = {"lance-schema:unenforced-primary-key:position": str(place + 1)}
            metadata["lance-schema:unenforced-primary-key"] = "true"
            fields.append(pa.field(name, column.type, False, metadata))
        return pa.table(columns, pa.schema(fields))

    def change(self) -> None:
        """Give some rows new values, insert and delete others, in a log and in SSTables."""
        deleted = self.random.permutation(ROWS)[: int(ROWS * self._share)]
        for part in np.array_split(deleted, self.random.integers(1, 4)):
            writer = self.dataset.mem_wal_writer(self._shard)
            writer.delete(self.keys(part))
            count = len(part) // 8 + 2
            writer.put(self.rows(self.random.choice(ROWS + 90, count, replace=False)))
            if self.random.random() < 0.6:
                writer.close()
        self.put(np.arange(ROWS - 3, ROWS))

    def put(self, numbers: npt.NDArray[np.int64], shift: int = 0) -> None:
        """Give some rows new values in a log."""
        self.dataset.mem_wal_writer(self._shard).put(self.rows(numbers, shift))

    def search(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the query of a random search, and its other arguments."""
        random = self.random
        count = int(random.choice([1, 1, 1, 3, 40]))
        vectors = self._cells[random.integers(0, len(self._cells), count)]
        vectors = vectors + random.normal(size=vectors.shape).astype(np.float32)
        nearest: dict[str, Any] = {
            "column": "v",
            "q": vectors if count > 1 else vectors[0],
            "k": int(random.choice([1, 10, 10, 60, 500])),
        }
        if random.random() < 0.6:
            nearest["nprobes"] = int(random.choice([1, 3, 9]))
        elif random.random() < 0.4:
            nearest["maximum_nprobes"] = int(random.choice([1, 4]))
        if random.random() < 0.3:
            nearest["refine_factor"] = int(random.choice([1, 3]))
        if random.random() < 0.3:
            bounds = [(None, 9.0), (4.0, None), (3.0, 12.0)]
            nearest["distance_range"] = bounds[random.integers(len(bounds))]
        options: dict[str, Any] = {}
        if random.random() < 0.4:
            options = {"filter": str(random.choice(["s = 3", "s <> 4"])), "prefilter": True}
        return nearest, options


def answer(table: Any, nearest: dict[str, Any], options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a search, without their vectors."""
    rows: pa.Table = table.to_table(nearest=nearest, **options)
    return rows.drop_columns(["v"]).to_pylist()


@pytest.mark.parametrize("seed", range(number_of(4, 200)))
def test_equal_to_a_search_after_a_compaction(tmp_path: Path, seed: int) -> None:
    table = RandomTable(tmp_path, seed, INDEXES[seed % len(INDEXES)])
    table.change()
    fresh = lance_spark.open_dataset(table.path).fresh()
    searches = [table.search() for _ in range(12)]
    answers = [answer(fresh, *search) for search in searches]
    compacted = lance_spark.open_dataset(table.path).compact_mem_wal(flush=True)
    assert compacted.fresh().num_shards == 0
    for search, rows in zip(searches, answers, strict=True):
        assert rows == answer(compacted, *search), search


@pytest.mark.parametrize("seed", range(number_of(2, 50)))
def test_equal_to_a_search_without_the_hidden_rows(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    # A graph finds other rows if some are left out before.
    table = RandomTable(tmp_path, seed, {"index_type": "IVF_HNSW_SQ"})
    table.change()
    fresh = lance_spark.open_dataset(table.path).fresh()
    searches = [table.search() for _ in range(6)]
    answers = [answer(fresh, *search) for search in searches]
    monkeypatch.setattr(FreshNearestTask, "_passing", VectorScanTask._passing)
    for search, rows in zip(searches, answers, strict=True):
        assert rows == answer(fresh, *search), search


@pytest.mark.parametrize("condition", [None, "s <> 4"])
def test_few_keys_are_read(
    tmp_path: Path, condition: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = RandomTable(tmp_path, 4, INDEXES[0])
    table.put(np.arange(40))
    fresh = lance_spark.open_dataset(table.path).fresh()
    num_keys = []

    def has(keys: KeySet, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        num_keys.append(batch.num_rows)
        return known(keys, batch)

    known = KeySet.has
    monkeypatch.setattr(KeySet, "has", has)
    nearest = {"column": "v", "q": np.zeros(DIMENSION, np.float32), "k": 5}
    fresh.to_table(nearest=nearest, filter=condition, prefilter=True)
    # Those of rows that no index covers, and twice as many as are wanted, and 64.
    uncovered = sum(part.num_rows for part in table.dataset.fragments[3:])
    assert 0 < sum(num_keys) <= uncovered + 2 * 5 + 64


def test_a_condition_that_fails_for_a_hidden_row(tmp_path: Path) -> None:
    table = RandomTable(tmp_path, 3, INDEXES[0])
    numbers = np.arange(0, ROWS + 60, 10)
    assert table.dataset.count_rows("s = 0") <= len(numbers)
    table.put(numbers, shift=1)
    fresh = lance_spark.open_dataset(table.path).fresh()
    nearest = {"column": "v", "q": np.zeros(DIMENSION, np.float32), "k": 20}
    search = {"nearest": nearest, "filter": "60 / s = 60", "prefilter": True}
    assert set(fresh.to_table(**search)["s"].to_pylist()) == {1}
    with pytest.raises(EvaluationError):
        table.dataset.to_table(**search)
