"""Reports about indexes: coverage, size, age and stale entries."""

from __future__ import annotations

import datetime
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.inspect import IndexFacts, as_html, as_text, facts_of
from lance_spark.inspect.formatting import duration


def facts(path: Path) -> dict[str, IndexFacts]:
    dataset = lance_spark.open_dataset(str(path))
    return {index.name: index for index in facts_of(dataset).indexes}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t.lance"
    table = pa.table({"a": range(1_000), "s": [f"word {n}" for n in range(1_000)]})
    lance.write_dataset(table, str(path), max_rows_per_file=100)
    lance_spark.open_dataset(str(path)).create_scalar_index("a", "BTREE")
    lance.dataset(str(path)).create_scalar_index("s", "INVERTED")
    return path


def test_rows_fragments_and_sizes(path: Path) -> None:
    lance.dataset(str(path)).insert(pa.table({"a": range(1_000, 1_200), "s": ["x"] * 200}))
    lance_spark.open_dataset(str(path)).delete("a < 150 OR a = 1100")
    index = facts(path)["a_idx"]
    assert (index.kind, index.columns, index.num_segments) == ("BTree", ("a",), 1)
    assert (index.num_fragments, index.num_rows) == (9, 850)
    assert (index.num_uncovered_fragments, index.num_uncovered_rows) == (1, 199)
    # The first fragment is gone, and half of the second one.
    assert (index.num_deleted_rows, index.num_removed_fragments) == (50, 1)
    assert index.num_moved_fragments == 0
    (segment,) = index.segments
    (folder,) = [file.parent for file in path.glob("_indices/*/page_data.lance") if file.is_file()]
    assert segment.uuid == folder.name
    assert segment.num_bytes == sum(file.stat().st_size for file in folder.iterdir())
    assert (segment.dataset_version, segment.index_version) == (1, 0)
    assert segment.created_at is not None
    assert segment.age is not None
    assert datetime.timedelta() <= segment.age < datetime.timedelta(hours=1)


def test_segments_and_moved_rows(path: Path) -> None:
    lance.dataset(str(path)).insert(pa.table({"a": range(1_000, 1_200), "s": ["x"] * 200}))
    lance_spark.open_dataset(str(path)).optimize_indices(["a_idx"], num_indices_to_merge=0)
    first, second = facts(path)["a_idx"].segments
    assert (first.num_fragments, second.num_fragments) == (10, 1)
    assert first.dataset_version < second.dataset_version
    lance_spark.open_dataset(str(path)).compact_files(
        target_rows_per_fragment=500, defer_index_remap=True
    )
    facts_of = facts(path)
    assert facts_of["a_idx"].num_moved_fragments == 10
    assert facts_of["a_idx"].num_removed_fragments == 0
    assert facts_of["a_idx"].num_uncovered_rows == 0
    assert facts_of["s_idx"].num_uncovered_rows == 200
    reuse = facts_of["__lance_frag_reuse"]
    assert (reuse.kind, reuse.columns, reuse.num_uncovered_rows) == ("FragmentReuse", (), 0)


def test_reports(path: Path) -> None:
    lance_spark.open_dataset(str(path)).delete("a < 150")
    report = facts_of(lance_spark.open_dataset(str(path)))
    lines = as_text(report).split("\n")
    (line,) = [line for line in lines if line.startswith("  a_idx")]
    assert line.split()[:7] == ["a_idx", "BTree", "a", "1", "9", "of", "9"]
    assert "850" in line
    assert line.endswith("50 deleted rows, 1 removed fragment")
    (heading,) = [line for line in lines if "not covered" in line]
    assert heading.split()[:3] == ["name", "type", "columns"]
    page = as_html(report)
    assert "50 deleted rows, 1 removed fragment" in page
    for index in report.indexes:
        assert f"{index.name}: 1 segment" in page
        assert index.segments[0].uuid in page


def test_indexes_that_cover_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"a": range(10)}), str(path))
    lance_spark.open_dataset(str(path)).create_scalar_index("a", "BTREE", train=False)
    index = facts(path)["a_idx"]
    assert (index.num_fragments, index.num_rows, index.num_uncovered_rows) == (0, 0, 10)
    assert "0 of 1" in as_text(facts_of(lance_spark.open_dataset(str(path))))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 seconds"), (59, "59 seconds"), (60, "1 minute"), (7_300, "2 hours"), (90_000, "1 day")],
)
def test_durations(seconds: int, text: str) -> None:
    assert duration(datetime.timedelta(seconds=seconds)) == text


def test_partitions_of_vector_indexes(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(600, 8)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), 8)
    dataset = lance.write_dataset(pa.table({"v": column}), str(tmp_path / "t"))
    dataset.create_index("v", "IVF_FLAT", metric="cosine", num_partitions=5)
    index = facts(tmp_path / "t")["v_idx"]
    partitions = index.segments[0].partitions
    assert partitions is not None
    statistics = dataset.stats.index_stats("v_idx")["indices"][0]
    assert partitions.metric == statistics["metric_type"] == "cosine"
    assert list(partitions.rows) == [item["size"] for item in statistics["partitions"]]
    assert partitions.loss == pytest.approx(statistics["loss"])
    page = as_html(facts_of(lance_spark.open_dataset(str(tmp_path / "t"))))
    assert "cosine: rows of 5 partitions, 600 in all; 0 are empty; loss " in page
    assert f"<title>{max(partitions.rows)} rows</title>" in page


def test_vector_index_with_a_damaged_file(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(100, 8)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), 8)
    dataset = lance.write_dataset(pa.table({"v": column}), str(tmp_path / "t"))
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    (file,) = (tmp_path / "t").glob("_indices/*/index.idx")
    file.write_bytes(file.read_bytes()[:100])
    report = facts_of(lance_spark.open_dataset(str(tmp_path / "t")))
    (index,) = report.indexes
    assert index.segments[0].partitions is None
    assert any("index.idx" in problem for problem in report.problems)
