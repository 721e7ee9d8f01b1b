"""Damaged indexes: the scan leaves them out with a warning, and returns the right rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

import lance_spark
from lance_spark.indexes import cache

ROWS = 20_000
FILES = {
    "BTREE": ["page_lookup.lance", "page_data.lance"],
    "BITMAP": ["bitmap_page_lookup.lance"],
    "ZONEMAP": ["zonemap.lance"],
    "BLOOMFILTER": ["bloomfilter.lance"],
    "LABEL_LIST": ["bitmap_page_lookup.lance"],
    "NGRAM": ["ngram_postings.lance"],
}
#: Column of each type, if it is not `g`, and filters on it.
COLUMNS = {
    "LABEL_LIST": ("l", ["array_has(l, 7)", "array_has_any(l, [1, 2])", "array_has_all(l, [3])"]),
    "NGRAM": ("s", ["contains(s, 'ord 7')", "s LIKE '%word 4%'"]),
}
FILTERS = ["g = 7", "g IN (1, 2)", "g BETWEEN 3 AND 4", "g IS NULL"]


@pytest.fixture
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A table with an index of the type that the test names."""
    path = tmp_path / "t.lance"
    numbers = np.arange(ROWS) % 500
    lists = pa.ListArray.from_arrays(np.arange(ROWS + 1), numbers)
    texts = [f"word {number}" for number in numbers.tolist()]
    table = pa.table({"id": np.arange(ROWS), "g": numbers, "l": lists, "s": texts})
    lance.write_dataset(table, str(path), max_rows_per_file=6_000)
    index_type = request.node.callspec.params["index_type"]
    column, _ = COLUMNS.get(index_type, ("g", FILTERS))
    lance_spark.open_dataset(str(path)).create_scalar_index(column, index_type)
    return path


def truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def garbled(file: Path) -> None:
    file.write_bytes(np.random.default_rng(1).bytes(file.stat().st_size))


def replaced(file: Path) -> None:
    """Put a data file of other columns in the place of an index file."""
    table = pa.table({"other": range(10)})
    other = file.parent / "other.lance"
    lance.write_dataset(table, str(other))
    (data,) = (other / "data").iterdir()
    file.write_bytes(data.read_bytes())


@pytest.mark.sample(5)
@pytest.mark.parametrize("damage", [Path.unlink, truncated, garbled, replaced])
@pytest.mark.parametrize(
    ("index_type", "name"),
    [(index_type, name) for index_type, names in FILES.items() for name in names],
)
def test_damaged_files(
    path: Path,
    index_type: str,
    name: str,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (file,) = path.glob(f"_indices/*/{name}")
    damage(file)
    cache.CACHE.clear()
    dataset = lance_spark.open_dataset(str(path))
    column, filters = COLUMNS.get(index_type, ("g", FILTERS))
    for text in filters:
        expected = dataset.to_table(["id"], filter=text, use_scalar_index=False)
        assert dataset.to_table(["id"], filter=text).equals(expected)
        assert "index: " not in dataset.explain(filter=text)
    # Files of another layout may be those of a later release.
    if damage is not replaced:
        assert f"index '{column}_idx' is ignored" in caplog.text


@pytest.mark.parametrize("newer_type", [False, True], ids=["version", "type"])
@pytest.mark.parametrize("index_type", list(FILES))
def test_indexes_of_later_releases_are_left_out(
    path: Path, index_type: str, newer_type: bool, caplog: pytest.LogCaptureFixture
) -> None:
    column, filters = COLUMNS.get(index_type, ("g", FILTERS))
    dataset = lance_spark.open_dataset(str(path))
    (index,) = lance.dataset(str(path)).describe_indices()
    segment = index.segments[0]
    type_url = "/lance.table.NewIndexDetails" if newer_type else index.type_url
    newer = lance.Index(
        uuid=segment.uuid,
        name=f"{column}_idx",
        fields=list(dataset.describe_indices()[0].fields),
        dataset_version=segment.dataset_version_at_last_update,
        fragment_ids=set(segment.fragment_ids),
        index_version=segment.index_version if newer_type else 9,
        index_details=(type_url, b""),
    )
    old = lance.Index(
        uuid=segment.uuid,
        name=f"{column}_idx",
        fields=newer.fields,
        dataset_version=segment.dataset_version_at_last_update,
        fragment_ids=set(segment.fragment_ids),
        index_version=segment.index_version,
    )
    operation = lance.LanceOperation.CreateIndex([newer], [old])
    lance.LanceDataset.commit(str(path), operation, read_version=dataset.version)
    dataset = lance_spark.open_dataset(str(path))
    for text in filters:
        expected = dataset.to_table(["id"], filter=text, use_scalar_index=False)
        assert dataset.to_table(["id"], filter=text).equals(expected)
        assert "index: " not in dataset.explain(filter=text)
    if not newer_type:
        message = f"index '{column}_idx' is ignored: its version 9 is unknown"
        assert message in caplog.text


@pytest.mark.parametrize("index_type", ["BTREE"])
@pytest.mark.parametrize("order", ["sorted", "nulls last", "nulls inside"])
def test_pages_without_a_page_table(
    path: Path, order: str, index_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before 2.0, the page table need not be that of the rows; the rows are checked."""
    dataset = lance_spark.open_dataset(str(path))
    g = dataset.to_table(["g"])["g"].to_numpy()
    ids = (np.arange(ROWS) // 6_000 << 32) + np.arange(ROWS) % 6_000
    values = np.sort(g)
    rows = pa.table(
        {
            "values": pa.array(values),
            "ids": pa.array(ids[np.argsort(g, kind="stable")], pa.uint64()),
        }
    )
    empty = pa.table(
        {"values": pa.nulls(5_000, pa.int64()), "ids": pa.array([0] * 5_000, pa.uint64())}
    )
    parts = {
        "sorted": [empty, rows],
        "nulls last": [rows, empty],
        "nulls inside": [rows.slice(0, 9_000), empty, rows.slice(9_000)],
    }
    lookup = pa.table(
        {
            "min": pa.array([None], pa.int64()),
            "max": pa.array([0]),
            "null_count": pa.array([0], pa.uint32()),
            "page_idx": pa.array([0], pa.uint32()),
        }
    )
    (folder,) = path.glob("_indices/*")
    for name, table in (("page_data", pa.concat_tables(parts[order])), ("page_lookup", lookup)):
        with LanceFileWriter(str(folder / f"{name}.lance"), table.schema) as writer:
            writer.write_batch(table)
            writer.add_schema_metadata("batch_size", "4096")
    cache.CACHE.clear()
    dataset = lance_spark.open_dataset(str(path))
    for text in ("g = 7", "g IN (1, 499)", "g BETWEEN 3 AND 4", "g < 2", "g > 498"):
        expected = dataset.to_table(["id"], filter=text, use_scalar_index=False)
        assert dataset.to_table(["id"], filter=text).equals(expected)
        assert ("index: " in dataset.explain(filter=text)) == (order == "sorted")
    assert ("nulls must come before all values" in caplog.text) == (order != "sorted")
