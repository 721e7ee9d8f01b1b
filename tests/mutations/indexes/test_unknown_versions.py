"""Segments of index versions that this release does not know; type URLs in other case."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyroaring import BitMap

import lance_spark
from lance_spark.errors import UnsupportedFeatureError
from lance_spark.proto import table_pb2
from lance_spark.table.indexes import sections
from tests.support.tables.damaged import rewrite_manifest

TYPES = ["BTREE", "BITMAP", "NGRAM", "ZONEMAP"]


def build(path: Path, index_type: str, *, stable: bool) -> table_pb2.IndexMetadata:
    values = [f"{n:05d}" for n in range(40)] if index_type == "NGRAM" else list(range(40))
    rows = pa.table({"a": values, "b": ["x"] * 40})
    dataset = lance_spark.write_dataset(
        rows, path, max_rows_per_file=10, enable_stable_row_ids=stable
    )
    dataset.create_scalar_index("a", index_type)
    return segment_of(path)


def segment_of(path: Path) -> table_pb2.IndexMetadata:
    section = sections.section_of(lance_spark.open_dataset(path)._table.manifest)
    return next(index for index in section.indices if index.name == "a_idx")


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("index_type", TYPES)
def test_they_are_carried_over_and_cover_no_new_fragment(
    index_type: str, stable: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t"
    build(path, index_type, stable=stable)

    def make_newer(section: table_pb2.IndexSection) -> None:
        section.indices[0].index_version = 99

    rewrite_manifest(path, change_indexes=make_newer)
    before = segment_of(path)
    lance_spark.open_dataset(path).update({"b": "y"}, "b = 'x' AND _rowid < 3")
    lance_spark.open_dataset(path).compact_files()
    with caplog.at_level("WARNING"):
        dataset = lance_spark.open_dataset(path).optimize_indices()
    assert "a_idx' has segments of version 99, which this release does not read" in caplog.text
    after = segment_of(path)
    bitmap = sections.fragment_bitmap(after)
    assert bitmap is not None
    assert not bitmap & BitMap(fragment.id for fragment in dataset.fragments)
    after.fragment_bitmap = before.fragment_bitmap
    assert after == before
    with pytest.raises(UnsupportedFeatureError, match="version 99"):
        dataset.optimize_indices(["a_idx"])
    assert lance.dataset(path).count_rows() == dataset.count_rows() == 40
    dataset.drop_index("a_idx")


@pytest.mark.parametrize("index_type", TYPES)
def test_type_urls_are_compared_without_case(index_type: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    build(path, index_type, stable=True)

    def shout(section: table_pb2.IndexSection) -> None:
        details = section.indices[0].index_details
        details.type_url = details.type_url.upper()

    rewrite_manifest(path, change_indexes=shout)
    dataset = lance_spark.open_dataset(path)
    condition = "contains(a, '00005')" if index_type == "NGRAM" else "a = 5"
    assert "index: a_idx" in dataset.explain(filter=condition)
    dataset.compact_files()
    for opened in (lance_spark.open_dataset(path), lance.dataset(path)):
        assert opened.count_rows(condition) == 1
