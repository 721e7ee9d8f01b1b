"""Matrices in slices of arrays: `take` and `filter` of Arrow return other items of these."""

from __future__ import annotations

from pathlib import Path

import lance
import lance.arrow
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import LanceOperation

ROWS = 30_000
MATRICES = pa.FixedSizeListArray.from_arrays(
    pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * 4, dtype=np.int32)), 2), 2
)


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop)), "m": MATRICES.slice(start, stop - start)})


def check(table: pa.Table, column: str = "m") -> None:
    for batch in table.to_batches():
        expected = 4 * batch["id"].to_numpy()[:, None] + np.arange(4)
        items = batch[column].flatten().flatten().to_numpy()
        np.testing.assert_array_equal(items.reshape(-1, 4), expected)


def sliced(numbers: pa.Array) -> pa.Array:
    return pa.concat_arrays([MATRICES.slice(0, 3), MATRICES.take(numbers)]).slice(3)


@pytest.fixture(params=["2.0", "2.1", "2.2", "2.3"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> lance_spark.Dataset:
    parts = [rows(i, min(i + 7_001, ROWS)) for i in range(0, ROWS, 7_001)]
    made = lance_spark.write_dataset(
        [batch for part in parts for batch in part.to_batches()],
        tmp_path / "t",
        schema=parts[0].schema,
        data_storage_version=request.param,
        max_rows_per_file=25_000,
    )
    return made.delete("id % 7 = 3")


def test_filters(dataset: lance_spark.Dataset) -> None:
    for condition in ("id % 2 = 1", "m IS NOT NULL AND id % 50 = 7"):
        check(dataset.to_table(filter=condition))
        check(dataset.to_table(filter=condition, batch_size=1_000))
        for fragment in dataset.get_fragments():
            check(pa.Table.from_batches(list(fragment.to_batches(filter=condition))))


def test_merges_of_slices(dataset: lance_spark.Dataset) -> None:
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merged = merge.execute(rows(5, 25_000))["dataset"]
    check(merged.to_table())
    check(lance.dataset(merged.uri).to_table())
    joined = dataset.drop_columns(["m"]).merge(rows(5, ROWS), "id")
    check(joined.to_table(filter="id >= 5"))


def test_functions_that_return_slices(dataset: lance_spark.Dataset) -> None:
    added = dataset.add_columns({"n": lambda batch: sliced(batch["id"])}, read_columns=["id"])
    check(added.to_table(), "n")
    updated = dataset.update({"m": lambda batch: sliced(batch["id"])}, "id % 3 = 1")
    check(updated.to_table())


def test_new_columns_of_fragments(dataset: lance_spark.Dataset) -> None:
    fragments = []
    for fragment in dataset.get_fragments():
        numbers = fragment.to_table(["id"])["id"].combine_chunks()
        metadata, schema = fragment.merge_columns(pa.table({"n": sliced(numbers)}))
        fragments.append(metadata)
    operation = LanceOperation.Merge(fragments, schema)
    merged = lance_spark.Dataset.commit(dataset, operation, read_version=dataset.version)
    check(merged.to_table(), "n")
    merged.optimize.compact_files()
    compacted = lance_spark.open_dataset(dataset.uri)
    check(compacted.to_table(), "n")
    check(compacted.to_table())


@pytest.mark.parametrize("nested", [False, True])
def test_extension_types_without_a_hash(tmp_path: Path, nested: bool) -> None:
    halves = lance.arrow.bfloat16_array([1.0, 2.0, 3.0])
    values = pa.StructArray.from_arrays([halves], ["h"]) if nested else halves
    dataset = lance_spark.write_dataset(pa.table({"id": [0, 1, 2], "h": values}), tmp_path / "t")
    assert dataset.to_table(filter="id > 0")["h"].to_pylist() == values[1:].to_pylist()
