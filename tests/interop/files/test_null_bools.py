"""Fixed-size lists of bools with null items: pylance panics if it reads them from a full-zip page,
where wide values are stored otherwise.
"""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from tests.support.interop.tables import assert_same

ROWS = 20
KEY = "lance-encoding:"


def vectors(size: int, *, null_items: bool = True) -> pa.FixedSizeListArray:
    rng = np.random.default_rng(size)
    mask = rng.random(size * ROWS) < 0.3 if null_items else None
    return pa.FixedSizeListArray.from_arrays(
        pa.array(rng.random(size * ROWS) < 0.5, mask=mask), size
    )


def matrices() -> pa.FixedSizeListArray:
    rows = pa.FixedSizeListArray.from_arrays(
        vectors(4_096).values, 8, mask=pa.array(np.arange(512 * ROWS) % 7 == 0)
    )
    return pa.FixedSizeListArray.from_arrays(rows, 512)


SHAPES = {
    "least that is wide": lambda: vectors(2_048),
    "null vectors": lambda: pa.FixedSizeListArray.from_arrays(
        vectors(4_000).values, 4_000, mask=pa.array(np.arange(ROWS) % 3 == 0)
    ),
    "longest": lambda: vectors(49_000),
    "matrices": matrices,
    "lists": lambda: pa.ListArray.from_arrays(
        pa.array(range(0, ROWS + 1, 2), pa.int32()), vectors(2_056)
    ),
}


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.parametrize("shape", SHAPES)
def test_pylance_reads_null_bools(tmp_path: Path, shape: str, version: str) -> None:
    column = SHAPES[shape]()
    for number, hints in enumerate(({}, {"structural-encoding": "fullzip", "minichunk-size": "1"})):
        metadata = {KEY + key: value for key, value in hints.items()}
        table = pa.table(
            [column], schema=pa.schema([pa.field("c", column.type, metadata=metadata or None)])
        )
        path = str(tmp_path / str(number))
        lance_spark.write_dataset(table, path, data_storage_version=version)
        for dataset in (lance.dataset(path), lance_spark.open_dataset(path)):
            assert_same(dataset.to_table(), table, str(hints))
            assert_same(dataset.take([1, 7]), table.take([1, 7]), str(hints))


def test_longer_vectors_are_refused_if_they_have_null_items(tmp_path: Path) -> None:
    table = pa.table({"c": vectors(56_000)})
    with pytest.raises(UnsupportedTypeError, match=r"'c': .* 56000 bools of which some are null"):
        lance_spark.write_dataset(table, str(tmp_path / "nulls"))
    table = pa.table({"c": vectors(56_000, null_items=False)})
    lance_spark.write_dataset(table, str(tmp_path / "t"))
    assert_same(lance.dataset(str(tmp_path / "t")).to_table(), table)


@pytest.mark.parametrize("version", ["2.2", "2.3"])
def test_packed_structs_have_no_null_bools(tmp_path: Path, version: str) -> None:
    text = pa.array(["text"] * ROWS)
    for null_items in (False, True):
        bools = vectors(8, null_items=null_items)
        fields = [pa.field("s", text.type, nullable=False), pa.field("v", bools.type)]
        column = pa.StructArray.from_arrays([text, bools], fields=fields)
        field = pa.field("c", column.type, metadata={KEY + "packed": "true"})
        table = pa.table([column], schema=pa.schema([field]))
        path = str(tmp_path / str(null_items))
        if null_items:
            with pytest.raises(InvalidInputError, match=r"'c': packed structs .* some are null"):
                lance_spark.write_dataset(table, path, data_storage_version=version)
        else:
            lance_spark.write_dataset(table, path, data_storage_version=version)
            assert_same(lance.dataset(path).to_table(), table)
