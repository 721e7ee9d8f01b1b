"""Indexes that are extended keep their parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import LanceError, UnsupportedFeatureError
from lance_spark.indexes.builds import builder_of
from lance_spark.indexes.files import IndexFiles
from lance_spark.indexes.text.queries import PhraseQuery
from lance_spark.table.indexes import sections
from tests.support.tables.geometries import column, field

OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "BTREE": ("id", {"zone_size": 512}),
    "BITMAP": ("id", {}),
    "ZONEMAP": ("id", {"rows_per_zone": 1000}),
    "BLOOMFILTER": ("id", {"number_of_items": 500, "probability": 0.01}),
    "NGRAM": ("text", {}),
    "RTREE": ("point", {"page_size": 64}),
    "INVERTED": ("text", {"base_tokenizer": "whitespace", "with_position": True, "stem": False}),
}


def rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    points = [("POINT", (number % 50.0, number // 50.0)) for number in ids.tolist()]
    texts = pa.array([f"Word-{number} and more" for number in ids.tolist()])
    fields = [pa.field("id", pa.int64()), pa.field("text", pa.string()), field("point", "point")]
    return pa.table([ids, texts, column(points, "point")], schema=pa.schema(fields))


@pytest.mark.sample(8)
@pytest.mark.parametrize("retrain", [False, True])
@pytest.mark.parametrize("merged", [0, 1])
@pytest.mark.parametrize("index_type", list(OPTIONS))
def test_parameters_are_kept(tmp_path: Path, index_type: str, merged: int, retrain: bool) -> None:
    path = str(tmp_path / "t")
    name, options = OPTIONS[index_type]
    dataset = lance_spark.write_dataset(rows(0, 3000), path, mode="create")
    dataset = dataset.create_scalar_index(name, index_type, **options)
    lance_spark.write_dataset(rows(3000, 900), path, mode="append")
    dataset = lance_spark.open_dataset(path)
    dataset = dataset.optimize_indices(num_indices_to_merge=merged, retrain=retrain)
    segments = sections.read_section(dataset._table.manifest).indices
    assert len(segments) == (1 if merged or retrain else 2)
    for segment in segments:
        parameters = builder_of(index_type).parameters_of(IndexFiles(dataset._table.paths, segment))
        assert options.items() <= parameters.items()
    assert lance.dataset(path).count_rows("id = 3500") == 1
    if index_type != "INVERTED":
        assert dataset.check_index(f"{name}_idx").is_valid
    else:
        query = PhraseQuery("Word-3500 and", "text")
        assert dataset.to_table(["id"], full_text_query=query)["id"].to_pylist() == [3500]


@pytest.mark.sample(8)
@pytest.mark.parametrize("merged", [0, 1])
@pytest.mark.parametrize("index_type", list(OPTIONS))
def test_moved_rows_are_covered(tmp_path: Path, index_type: str, merged: int) -> None:
    """A segment covers the fragments to which its rows moved: they are not read again."""
    path = str(tmp_path / "t")
    column, options = OPTIONS[index_type]
    lance.write_dataset(rows(0, 3000), path, max_rows_per_file=500)
    lance_spark.open_dataset(path).create_scalar_index(column, index_type, **options)
    lance_spark.write_dataset(rows(3000, 900), path, mode="append")
    lance_spark.open_dataset(path).optimize_indices(num_indices_to_merge=0)
    lance_spark.write_dataset(rows(3900, 900), path, mode="append")
    dataset = lance_spark.open_dataset(path).delete("id % 9 = 2")
    dataset.compact_files(target_rows_per_fragment=1500, defer_index_remap=True)
    dataset = lance_spark.open_dataset(path).optimize_indices(num_indices_to_merge=merged)
    covered = [index["fragment_ids"] for index in dataset.list_indices() if index["fields"]]
    assert sorted(number for ids in covered for number in ids) == [
        fragment.id for fragment in dataset.fragments
    ]
    lance.dataset(path).validate()
    assert lance.dataset(path).count_rows("id = 3500") == 1


def _segments(path: str) -> set[str]:
    """Return the folders of indexes that have files."""
    files = Path(path, "_indices").rglob("*")
    return {str(file.parent) for file in files if file.is_file()}


def test_an_index_that_cannot_be_extended_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def table(first: int) -> pa.Table:
        ids = np.arange(first, first + 300)
        vectors = pa.FixedSizeListArray.from_arrays(
            np.random.default_rng(first).random(300 * 8, np.float32), 8
        )
        words = [f"word{number}" for number in ids.tolist()]
        kinds = pa.array([str(number % 3) for number in ids]).dictionary_encode()
        return pa.table({"id": ids, "note": words, "kind": kinds, "v": vectors})

    def missing(*_: Any) -> None:
        raise UnsupportedFeatureError("the package faiss is missing")

    path = str(tmp_path / "t")
    lance.write_dataset(table(0), path)
    other = lance.dataset(path)
    other.create_scalar_index("note", "INVERTED", base_tokenizer="icu")
    other.create_scalar_index("kind", "ZONEMAP")
    other.create_scalar_index("id", "BTREE")
    other.create_index("v", "IVF_HNSW_SQ", num_partitions=1)
    lance.write_dataset(table(300), path, mode="append")
    monkeypatch.setattr("lance_spark.indexes.vectors.hnsw_build.required_faiss", missing)
    monkeypatch.setattr("lance_spark.indexes.vectors.training.required_faiss", missing)
    dataset = lance_spark.open_dataset(path)
    before = _segments(path)
    extended = dataset.optimize_indices()
    covered = {index["name"]: len(index["fragment_ids"]) for index in extended.list_indices()}
    assert covered == {"id_idx": 2, "note_idx": 1, "kind_idx": 1, "v_idx": 1}
    # Only the segment of the B-tree is new.
    assert len(_segments(path) - before) == 1
    for name, reason in (("note_idx", "icu"), ("kind_idx", "ZONEMAP"), ("v_idx", "faiss")):
        assert f"index {name!r} stays as it is" in caplog.text
        assert reason in caplog.text
        with pytest.raises(LanceError, match=reason):
            extended.optimize_indices([name])
    assert lance.dataset(path).count_rows("id = 500") == 1
