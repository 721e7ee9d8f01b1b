"""`Dataset.update` of children of structs: pylance reads the new values and all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidInputError, SchemaMismatchError, UnsupportedError

INNER = pa.struct([pa.field("x y", pa.int32()), pa.field("t", pa.string())])
STRUCT = pa.struct(
    [
        pa.field("a", pa.int64()),
        pa.field("inner", INNER),
        pa.field("l", pa.list_(pa.int8())),
        pa.field("ts", pa.timestamp("ns")),
    ]
)
ROWS: list[dict[str, Any] | None] = [
    {"a": 1, "inner": {"x y": 1, "t": "one"}, "l": [1], "ts": 1},
    None,
    {"a": None, "inner": None, "l": None, "ts": None},
    {"a": 4, "inner": {"x y": None, "t": None}, "l": [], "ts": 1_000_000_007},
    {"a": 5, "inner": {"x y": 5, "t": "five"}, "l": [5, None], "ts": 5},
    None,
]
NOTHING = {"a": None, "inner": None, "l": None, "ts": None}


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = pa.table(
        {"id": range(len(ROWS)), "s": pa.array(ROWS, STRUCT), "other": range(len(ROWS))}
    )
    write_dataset(table, str(tmp_path / "t.lance"), max_rows_per_file=4)
    return str(tmp_path / "t.lance")


def read(path: str) -> list[Any]:
    dataset = lance.dataset(path)
    dataset.validate()
    table = dataset.to_table().sort_by("id")
    assert table["other"].to_pylist() == list(range(len(ROWS)))
    numbers = pc.struct_field(table["s"], "ts").cast(pa.int64()).to_pylist()
    rows = table["s"].combine_chunks()
    structs = pa.StructArray.from_arrays(
        [rows.field(n) for n in range(3)], names=["a", "inner", "l"], mask=rows.is_null()
    ).to_pylist()
    return [
        None if struct is None else {**struct, "ts": number}
        for struct, number in zip(structs, numbers, strict=True)
    ]


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_children_are_set(path: str, mode: str) -> None:
    dataset = lance_spark.open_dataset(path)
    dataset = dataset.update({"s.a": 7}, [("id", "<", 4)], mode=mode)
    expected = [{**(value or NOTHING), "a": 7} if n < 4 else value for n, value in enumerate(ROWS)]
    assert read(path) == expected

    def texts(rows: pa.RecordBatch) -> pa.Array:
        return pc.cast(rows["id"], pa.string())

    dataset.update(
        {"s.inner.`x y`": 3, "s.inner.t": texts, "s.l": None}, [("id", ">", 0)], mode=mode
    )
    for n, value in enumerate(expected):
        if n > 0:
            inner = {"x y": 3, "t": str(n)}
            expected[n] = {**(value or NOTHING), "inner": inner, "l": None}
    assert read(path) == expected


def test_invalid_children_are_refused(path: str, tmp_path: Path) -> None:
    dataset = lance_spark.open_dataset(path)
    for updates, error in [
        ({"s.zz": 1}, SchemaMismatchError),
        ({"s.l.item": 1}, SchemaMismatchError),
        ({"other.a": 1}, SchemaMismatchError),
        ({"s.`a": 1}, SchemaMismatchError),
        ({"s.a": "text"}, InvalidInputError),
        ({"s.a": 1, "s": None}, InvalidInputError),
        ({"s.inner": None, "s.inner.t": "x"}, InvalidInputError),
        ({"s.a": 1, "s.`a`": 2}, InvalidInputError),
    ]:
        with pytest.raises(error):
            dataset.update(updates)
    assert read(path) == ROWS
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    dtype = pa.struct([blob, pa.field("a", pa.int64())])
    rows = pa.table({"s": pa.array([{"b": b"x", "a": 1}], dtype)})
    blobs = write_dataset(rows, str(tmp_path / "b.lance"), data_storage_version="2.1")
    with pytest.raises(UnsupportedError, match="blobs"):
        blobs.update({"s.a": 2})
