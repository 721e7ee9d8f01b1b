"""Zone maps and Bloom filters: damaged, of unknown versions, after changes of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import Index

import lance_spark
from lance_spark.indexes import cache
from tests.interop.test_overlays import commit, overlay

KINDS = ["ZONEMAP", "BLOOMFILTER"]
SIZES = {"ZONEMAP": "rows_per_zone", "BLOOMFILTER": "number_of_items"}


def rows(ids: np.ndarray) -> pa.Table:
    return pa.table({"id": ids, "number": pa.array(ids, mask=ids % 10 == 0)})


def write(path: Path, index_type: str, who: str = "own", **options: Any) -> None:
    """Write fragments of 100 rows, with an index of zones of 40 rows."""
    lance.write_dataset(rows(np.arange(300)), str(path), max_rows_per_file=100, **options)
    size = {SIZES[index_type]: 40}
    if who == "own":
        lance_spark.open_dataset(str(path)).create_scalar_index("number", index_type, **size)
    else:
        config = lance.indices.IndexConfig(index_type.lower(), size)
        lance.dataset(str(path)).create_scalar_index("number", config)


def numbers_of(path: Path, text: str, **options: Any) -> list[int]:
    table = lance_spark.open_dataset(str(path)).to_table(["id"], filter=text, **options)
    return sorted(table["id"].to_pylist())


@pytest.mark.parametrize("index_type", KINDS)
def test_damaged_files_are_left_out(
    tmp_path: Path, index_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.lance"
    write(path, index_type)
    (file,) = path.glob("_indices/*/*.lance")
    data = file.read_bytes()
    rng = np.random.default_rng(3)
    for _ in range(40):
        flipped = bytearray(data)
        flipped[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        for worse in (bytes(flipped), data[: rng.integers(len(data))]):
            cache.CACHE.clear()
            file.write_bytes(worse)
            assert numbers_of(path, "number = 255") in ([255], [])
    caplog.clear()
    for worse in (b"", b"no index", data[:-30], data[: len(data) // 2]):
        cache.CACHE.clear()
        file.write_bytes(worse)
        assert numbers_of(path, "number = 255") == [255]
        assert numbers_of(path, "number IS NULL AND id > 280") == [290]
    assert "index 'number_idx' is ignored: " in caplog.text


@pytest.mark.parametrize("index_type", KINDS)
def test_only_the_damaged_segment_is_left_out(
    tmp_path: Path, index_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(rows(np.arange(300)), str(path), max_rows_per_file=100)
    dataset = lance_spark.open_dataset(str(path))
    dataset = dataset.create_scalar_index("number", index_type, num_segments=3)
    files = {
        number: path / "_indices" / index["uuid"]
        for index in dataset.list_indices()
        for number in index["fragment_ids"]
    }
    (file,) = files[1].iterdir()
    file.write_bytes(b"no index")
    plan = dataset.plan(filter="number = 255")
    assert [part.fragment.id for task in plan for part in task.slices] == [1, 2]
    assert f"{file.name}: the file does not end in LANC" in caplog.text


@pytest.mark.parametrize("index_type", KINDS)
def test_unknown_versions_are_left_out(
    tmp_path: Path, index_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.lance"
    write(path, index_type)
    dataset = lance.dataset(str(path))
    (described,) = dataset.describe_indices()
    (segment,) = described.segments
    own = lance_spark.open_dataset(str(path))
    assert "  index: " in own.explain(filter="number = 255")
    newer = Index(
        uuid=str(segment.uuid),
        name=described.name,
        fields=[1],
        dataset_version=segment.dataset_version_at_last_update,
        fragment_ids={0, 1, 2},
        index_version=7,
        index_details=_details(own),
    )
    operation = lance.LanceOperation.CreateIndex([newer], [newer])
    lance.LanceDataset.commit(str(path), operation, read_version=dataset.version)
    own = lance_spark.open_dataset(str(path))
    assert "  index: " not in own.explain(filter="number = 255")
    assert numbers_of(path, "number = 255") == [255]
    assert "index 'number_idx' is ignored: its version 7 is unknown" in caplog.text


def _details(dataset: lance_spark.Dataset) -> tuple[str, bytes]:
    from lance_spark.table.indexes import sections

    (segment,) = sections.section_of(dataset._table.manifest).indices
    return segment.index_details.type_url, segment.index_details.value


@pytest.mark.parametrize("index_type", KINDS)
def test_overlaid_fragments_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index_type: str
) -> None:
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    path = tmp_path / "t.lance"
    values = pa.table({"number": pa.array(range(300)), "word": ["w"] * 300})
    lance.write_dataset(values, str(path), max_rows_per_file=100)
    lance_spark.open_dataset(str(path)).create_scalar_index("number", index_type)
    commit(path, 0, overlay(path, "o.lance", pa.table({"number": [77_777]}), [5]))
    dataset = lance_spark.open_dataset(str(path))
    table = dataset.to_table(["_rowaddr"], filter="number = 77777")
    assert table.to_pydict() == {"_rowaddr": [5]}
    plan = dataset.plan(filter="number = 77777")
    assert [part.fragment.id for task in plan for part in task.slices] == [0]


@pytest.mark.sample(5)
@pytest.mark.parametrize("index_type", KINDS)
@pytest.mark.parametrize("who", ["own", "pylance"])
@pytest.mark.parametrize("stable", [False, True])
def test_changes_of_the_table(tmp_path: Path, index_type: str, who: str, stable: bool) -> None:
    """Compactions with and without new addresses, and merges of old and new zones by pylance."""
    path = tmp_path / "t.lance"
    write(path, index_type, who, enable_stable_row_ids=stable)
    texts = ("number IS NULL", "number = 155", "number IN (151, 303, 71, 1000)", "id = 55")

    def check() -> None:
        for text in texts:
            expected = numbers_of(path, text, use_scalar_index=False)
            assert numbers_of(path, text) == expected
            oracle = lance.dataset(str(path)).to_table(filter=text)
            assert sorted(oracle["id"].to_pylist()) == expected

    check()
    lance_spark.open_dataset(str(path)).delete("id < 35 OR id = 150")
    lance.dataset(str(path)).update({"number": "NULL"}, where="id = 55")
    check()
    optimize = lance.dataset(str(path)).optimize
    optimize.compact_files(target_rows_per_fragment=1000, defer_index_remap=not stable)
    check()
    lance_spark.write_dataset(rows(np.arange(300, 350)), str(path), mode="append")
    check()
    lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=5)
    check()
    lance.dataset(str(path)).insert(rows(np.arange(350, 360)))
    lance.dataset(str(path)).optimize.compact_files(target_rows_per_fragment=1000)
    check()
