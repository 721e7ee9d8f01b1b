"""Indexes that a compaction writes again: a task for each segment, by the runner of the caller."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import StorageError
from lance_spark.indexes.files import IndexFiles
from lance_spark.indexes.vectors.segment import open_segment
from lance_spark.mutations.compaction import remap
from lance_spark.mutations.compaction.options import CompactionOptions
from lance_spark.mutations.compaction.remap import GraphTask, RemapTask
from lance_spark.mutations.compaction.run import compact
from lance_spark.proto import table_pb2
from lance_spark.runner import Runner
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.indexes import sections as indexes
from tests.support.tables.damaged import rewrite_manifest

ROWS, DIMENSION = 1200, 8


class PicklingRunner(Runner):
    """Pickles tasks and results, as a cluster does; a task of some number can fail."""

    def __init__(self, fails: int | None = None, failing: type = RemapTask) -> None:
        self.tasks: list[Any] = []
        self._fails, self._failing = fails, failing

    def run(
        self, tasks: Sequence[Any], run: Callable[[Any], Any], undo: Callable[[Any], object]
    ) -> list[Any]:
        results = []
        for number, task in enumerate(tasks):
            if isinstance(task, RemapTask | GraphTask):
                if number == self._fails and isinstance(task, self._failing):
                    for result in results:
                        undo(result)
                    raise StorageError("the executor is lost")
                self.tasks.append(task)
            results.append(pickle.loads(pickle.dumps(run(pickle.loads(pickle.dumps(task))))))
        return results


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t.lance"
    values = np.random.default_rng(2).standard_normal((ROWS, DIMENSION)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIMENSION)
    table = pa.table({"id": range(ROWS), "v": column})
    lance.write_dataset(table, str(path), max_rows_per_file=ROWS // 6)
    dataset = lance_spark.open_dataset(str(path))
    dataset.create_index("v", "IVF_HNSW_SQ", num_partitions=2, num_segments=3)
    dataset.create_scalar_index("id", "BTREE")
    lance.dataset(str(path)).delete("id % 5 = 2")
    return path


def files_of_indexes(path: Path) -> set[str]:
    return {str(file) for file in (path / "_indices").rglob("*.*") if file.is_file()}


@pytest.mark.parametrize(
    ("own_bytes", "graph_rows", "num_tasks"), [(-1, 1 << 17, 4), (-1, 50, 10), (1 << 30, 50, 0)]
)
def test_tasks_of_segments_and_graphs(
    path: Path, monkeypatch: pytest.MonkeyPatch, own_bytes: int, graph_rows: int, num_tasks: int
) -> None:
    monkeypatch.setattr(remap, "_OWN_BYTES", own_bytes)
    monkeypatch.setattr(remap, "_GRAPH_ROWS", graph_rows)
    num_files = len(files_of_indexes(path))
    runner = PicklingRunner()
    table = lance_spark.open_dataset(str(path))._table
    compact(table, CompactionOptions(), CommitOptions(), runner)
    # This process writes small segments itself.
    assert len(runner.tasks) == num_tasks
    # The files of graphs do not stay.
    assert len(files_of_indexes(path)) == 2 * num_files
    dataset = lance_spark.open_dataset(str(path))
    for name in ("v_idx", "id_idx"):
        assert dataset.check_index(name).is_valid
    q = np.linspace(-1, 1, DIMENSION, dtype=np.float32)
    nearest = {"column": "v", "q": q, "k": 10, "nprobes": 2, "refine_factor": 10}
    exact = dataset.to_table(["id"], nearest={**nearest, "use_index": False})
    for client in (dataset, lance.dataset(str(path))):
        result = client.to_table(["id"], nearest=nearest)
        assert result["id"].to_pylist() == exact["id"].to_pylist()
        assert client.to_table(["id"], filter="id = 30")["id"].to_pylist() == [30]
    stats = lance.dataset(str(path)).stats.index_stats("v_idx")
    assert stats["num_unindexed_rows"] == 0
    assert stats["num_indices"] == 3


@pytest.mark.parametrize("index_type", ["IVF_FLAT", "IVF_PQ", "IVF_RQ", "IVF_HNSW_SQ"])
@pytest.mark.parametrize("has_details", [True, False])
def test_vector_indexes(tmp_path: Path, index_type: str, has_details: bool) -> None:
    """Also those of early releases, which recorded the type in the files only."""
    path = tmp_path / "t.lance"
    values = np.random.default_rng(2).standard_normal((400, DIMENSION)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), DIMENSION)
    lance.write_dataset(pa.table({"id": range(400), "v": column}), path, max_rows_per_file=100)
    sub_vectors = {"num_sub_vectors": 4} if "PQ" in index_type else {}
    lance.dataset(path).create_index("v", index_type, num_partitions=2, **sub_vectors)

    def forget_details(section: table_pb2.IndexSection) -> None:
        section.indices[0].index_details.value = b""

    if not has_details:
        rewrite_manifest(path, change_indexes=forget_details)
    lance_spark.open_dataset(path).delete("id % 5 = 2").compact_files()
    lance.dataset(path).delete("id < 20")
    lance.dataset(path).optimize.compact_files()
    (index,) = lance.dataset(path).describe_indices()
    assert index.num_rows_indexed == 304
    nearest = {"column": "v", "q": values[77] + 1, "k": 10, "nprobes": 2, "refine_factor": 40}
    exact = lance.dataset(path).to_table(["id"], nearest={**nearest, "use_index": False})["id"]
    for client in (lance_spark.open_dataset(path), lance.dataset(path)):
        assert client.to_table(["id"], nearest={**nearest, "ef": 400})["id"].equals(exact)


def test_graphs_are_the_same(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remap, "_OWN_BYTES", -1)
    graphs = []
    for number, graph_rows in enumerate((1, 1 << 17)):
        monkeypatch.setattr(remap, "_GRAPH_ROWS", graph_rows)
        copy = tmp_path / f"{number}.lance"
        shutil.copytree(path, copy)
        table = lance_spark.open_dataset(str(copy))._table
        compact(table, CompactionOptions(), CommitOptions(), PicklingRunner())
        dataset = lance_spark.open_dataset(str(copy))
        section = indexes.section_of(dataset._table.manifest)
        neighbors = []
        for index in section.indices:
            if index.name == "v_idx":
                segment = open_segment(IndexFiles(dataset._table.paths, index))
                assert segment is not None
                assert segment.graphs is not None
                ids = [rows.tolist() for rows, _ in segment.partitions([0, 1])]
                neighbors.append(
                    (ids, [pickle.dumps(graph) for graph in segment.graphs.open([0, 1])])
                )
        graphs.append(neighbors)
    assert len(graphs[0]) == 3
    assert graphs[0] == graphs[1]


@pytest.mark.parametrize("failing", [RemapTask, GraphTask])
def test_files_of_a_compaction_that_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch, failing: type
) -> None:
    monkeypatch.setattr(remap, "_OWN_BYTES", -1)
    monkeypatch.setattr(remap, "_GRAPH_ROWS", 50)
    before = files_of_indexes(path)
    version = lance.dataset(str(path)).latest_version
    table = lance_spark.open_dataset(str(path))._table
    with pytest.raises(StorageError, match="the executor is lost"):
        compact(table, CompactionOptions(), CommitOptions(), PicklingRunner(2, failing))
    assert files_of_indexes(path) == before
    assert len(lance.dataset(str(path)).get_fragments()) == 6
    assert lance.dataset(str(path)).count_rows() == 960
    # Only the ids of fragments were reserved.
    assert lance.dataset(str(path)).latest_version <= version + 1


@pytest.mark.parametrize(
    ("index_type", "file"),
    [
        ("BTREE", "page_data.lance"),
        ("NGRAM", "ngram_postings.lance"),
        ("INVERTED", "part_0_invert.lance"),
    ],
)
@pytest.mark.parametrize("is_missing", [False, True])
def test_damaged_indexes(tmp_path: Path, index_type: str, file: str, is_missing: bool) -> None:
    """The table is compacted, and the index does not cover the new fragments."""
    path = tmp_path / "t.lance"
    table = pa.table({"id": range(100), "s": [f"word{number % 5}" for number in range(100)]})
    dataset = lance_spark.write_dataset(table, path, mode="create", max_rows_per_file=20)
    dataset = dataset.create_scalar_index("s", index_type)
    (damaged,) = path.glob(f"_indices/*/{file}")
    if is_missing:
        damaged.unlink()
    else:
        damaged.write_bytes(bytes(300) + damaged.read_bytes()[300:])
    dataset.delete("id % 3 = 1")
    dataset, metrics = lance_spark.open_dataset(path).compact_files()
    assert metrics.fragments_removed == 5
    (index,) = dataset.describe_indices()
    assert index.num_rows_indexed == 0
    assert dataset.to_table(filter="contains(s, 'word2')").num_rows == 13
    assert dataset.to_table(filter="s = 'word2'").num_rows == 13
    if index_type == "INVERTED":
        assert dataset.to_table(["id"], full_text_query="word2").num_rows == 13
