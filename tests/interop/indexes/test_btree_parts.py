"""BTREE indexes whose pages are in several files, as pylance 2 to 8 could write them."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import Index
from lance.file import LanceFileReader, LanceFileWriter

import lance_spark

ROWS, PAGE = 9_000, 500
FILTERS = [
    *("v = 1200", "v >= 990 AND v < 1010", "v < 7", "v IS NULL", "v IS NOT NULL AND v < 20"),
    *("v IN (3, 1499, 1500, 2999, 3000)", "v >= 2990", "v > 700 AND v < 2400", "v <> 5 AND v < 9"),
]


def values(dtype: pa.DataType) -> pa.Array:
    numbers = np.random.default_rng(2).permutation(ROWS)
    floats = np.where(numbers % 50 == 1, np.nan, numbers // 3)
    array = pa.array(floats if pa.types.is_floating(dtype) else numbers // 3, dtype)
    return pa.array(array.to_pylist(), dtype, mask=numbers % 41 == 0)  # type: ignore[arg-type]


def write(file: Path, rows: pa.Table, metadata: dict[str, str]) -> None:
    with LanceFileWriter(str(file), rows.schema, version="2.1") as writer:
        writer.write_batch(rows)
        for key, value in metadata.items():
            writer.add_schema_metadata(key, value)


def write_indexed(path: Path, dtype: pa.DataType, cuts: list[int]) -> Path:
    """Write a table with an index whose pages are in several files, cut at some rows."""
    table = pa.table({"id": range(ROWS), "v": values(dtype)})
    dataset = lance_spark.write_dataset(table, str(path), max_rows_per_file=ROWS // 3)
    dataset.create_scalar_index("v", "BTREE", zone_size=PAGE).drop_index("v_idx")
    (folder,) = path.glob("_indices/*")
    folder = folder.rename(folder.with_name(str(uuid.uuid4())))
    _split(folder / "page_data.lance", cuts)
    index = Index(
        uuid=folder.name,
        name="v_idx",
        fields=[1],
        dataset_version=1,
        fragment_ids={0, 1, 2},
        index_version=0,
        index_details=("/lance.table.BTreeIndexDetails", b""),
    )
    operation = lance.LanceOperation.CreateIndex(new_indices=[index], removed_indices=[])
    version = lance.dataset(str(path)).version
    lance.LanceDataset.commit(str(path), operation, read_version=version)
    return folder


def _split(data: Path, cuts: list[int]) -> None:
    rows = LanceFileReader(str(data)).read_all().to_table()
    pages, parts = [], []
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
        part = rows.slice(start, stop - start)
        write(data.with_name(f"part_{number << 32}_page_data.lance"), part, {})
        parts.append([number << 32, -(-len(part) // PAGE)])
        pages += [part.slice(first, PAGE) for first in range(0, len(part), PAGE)]
    data.unlink()
    columns = [page.column("values") for page in pages]
    dtype = rows.schema.field("values").type
    lookup = pa.table(
        {
            "min": pa.array([column[0].as_py() for column in columns], dtype),
            "max": pa.array([column[-1].as_py() for column in columns], dtype),
            "null_count": pa.array([column.null_count for column in columns], pa.uint32()),
            "page_idx": pa.array(range(len(pages)), pa.uint32()),
        }
    )
    metadata = {
        "batch_size": str(PAGE),
        "range_partitioned": "true",
        "page_num_per_range_partition": json.dumps(parts),
    }
    file = data.with_name("page_lookup.lance")
    file.unlink()
    write(file, lookup, metadata)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [pa.int64(), pa.float64()], ids=str)
@pytest.mark.parametrize("cuts", [[], [3_000], [120, 3_300, 8_999]], ids=str)
def test_answers_are_those_of_a_scan(dtype: pa.DataType, cuts: list[int], tmp_path: Path) -> None:
    write_indexed(tmp_path, dtype, cuts)
    dataset, oracle = lance_spark.open_dataset(str(tmp_path)), lance.dataset(str(tmp_path))
    assert dataset.check_index("v_idx").is_valid
    for text in FILTERS:
        expected = dataset.to_table(["id"], filter=text, use_scalar_index=False)
        assert dataset.to_table(["id"], filter=text) == expected
        assert sorted(oracle.to_table(["id"], filter=text)["id"].to_pylist()) == sorted(
            expected["id"].to_pylist()
        )
    assert "v_idx (BTREE)" in dataset.explain(filter="v = 1200")
    dataset = dataset.delete("id % 7 = 1").optimize_indices()
    assert dataset.check_index("v_idx").is_valid


@pytest.mark.parametrize(
    "parts", ["null", "{}", "[[0]]", "[[0, -1]]", "[[0, 99]]", "[[true, 1]]", '[["x", 1]]', "["]
)
def test_damaged_lists_of_parts(
    parts: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_indexed(tmp_path, pa.int64(), [3_000])
    lookup = folder / "page_lookup.lance"
    rows = LanceFileReader(str(lookup)).read_all().to_table()
    lookup.unlink()
    metadata = {"batch_size": str(PAGE), "range_partitioned": "true"}
    write(lookup, rows, {**metadata, "page_num_per_range_partition": parts})
    dataset = lance_spark.open_dataset(str(tmp_path))
    expected = dataset.to_table(["id"], filter="v = 1200", use_scalar_index=False)
    assert dataset.to_table(["id"], filter="v = 1200") == expected
    assert "index 'v_idx' is ignored" in caplog.text


def test_values_out_of_order_are_scanned(tmp_path: Path) -> None:
    folder = write_indexed(tmp_path, pa.int64(), [3_000])
    names = [folder / f"part_{number << 32}_page_data.lance" for number in range(2)]
    lookup = folder / "page_lookup.lance"
    rows = LanceFileReader(str(lookup)).read_all().to_table()
    # The pages of the second file come first.
    order = [*range(6, len(rows)), *range(6)]
    rows = rows.take(order).set_column(3, "page_idx", pa.array(range(len(rows)), pa.uint32()))
    lookup.unlink()
    parts = [
        [int(name.name.split("_")[1]), pages]
        for name, pages in zip(names[::-1], (12, 6), strict=True)
    ]
    metadata = {"batch_size": str(PAGE), "range_partitioned": "true"}
    write(lookup, rows, {**metadata, "page_num_per_range_partition": json.dumps(parts)})
    dataset = lance_spark.open_dataset(str(tmp_path))
    for text in FILTERS:
        expected = dataset.to_table(["id"], filter=text, use_scalar_index=False)
        assert dataset.to_table(["id"], filter=text) == expected
    assert "v_idx" not in dataset.explain(filter="v = 1200")
