"""Lists and strings without rows whose writer left out the only offset, as Java did until Arrow
18.2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.file.arrays import with_offsets
from lance_spark.spark.write.input import BackgroundWriter

INNER = [
    pa.string(),
    pa.large_binary(),
    pa.list_(pa.string()),
    pa.list_(pa.int32(), 2),
    pa.list_(pa.list_(pa.string()), 2),
    pa.dictionary(pa.int8(), pa.string()),
    pa.map_(pa.string(), pa.binary()),
    pa.struct([("a", pa.list_(pa.string())), ("b", pa.int8())]),
    pa.json_(),
]


def bare(dtype: pa.DataType) -> pa.Array:
    """Return no rows and no offset: messages have buffers without an address."""
    if isinstance(dtype, pa.ExtensionType):
        return pa.ExtensionArray.from_storage(dtype, bare(dtype.storage_type))
    if pa.types.is_dictionary(dtype):
        return pa.DictionaryArray.from_arrays(
            pa.array([], dtype.index_type), bare(dtype.value_type), safe=False
        )
    nothing = pa.foreign_buffer(0, 0)
    children = [bare(dtype.field(at).type) for at in range(dtype.num_fields)]
    fixed = pa.types.is_struct(dtype) or pa.types.is_fixed_size_list(dtype)
    offsets = [] if fixed or pa.types.is_integer(dtype) else [nothing]
    data = [] if children else [pa.py_buffer(b"")]
    return pa.Array.from_buffers(dtype, 0, [None, *offsets, *data], children=children)


def empty_lists(dtype: pa.DataType) -> pa.Array:
    """Return an empty list, a null, and an empty list."""
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(bytes(16))]
    return pa.Array.from_buffers(pa.list_(dtype), 3, buffers, children=[bare(dtype)])


@pytest.mark.parametrize("inner", INNER, ids=str)
def test_empty_lists_get_offsets(inner: pa.DataType) -> None:
    rows = pa.StructArray.from_arrays([empty_lists(inner)], ["x"])
    made = with_offsets(rows.slice(1))
    made.validate(full=True)
    assert made.type == rows.type
    assert made.nbytes > 0
    assert made.to_pylist() == [{"x": None}, {"x": []}]
    hidden = pa.StructArray.from_arrays(
        [empty_lists(inner)], ["x"], mask=pa.array([True, False, False])
    )
    assert with_offsets(hidden).to_pylist() == [None, {"x": None}, {"x": []}]


@pytest.mark.parametrize(
    "full",
    [
        pa.array([{"x": None}, {"x": ["a"]}]),
        pa.array(["a", None]).dictionary_encode(),
        pa.array([[["a"], None], None], pa.list_(pa.list_(pa.string()), 2)),
        pa.array([], pa.int32()),
        pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1"])),
    ],
    ids=lambda array: str(array.type),
)
def test_others_stay(full: pa.Array) -> None:
    assert with_offsets(full) is full


@pytest.mark.parametrize(
    ("version", "inner"),
    [
        (version, inner)
        for version in ("2.0", "2.1", "2.2")
        for inner in INNER[:4] + INNER[6:8]
        if version == "2.2" or not pa.types.is_map(inner)
    ],
    ids=str,
)
def test_tables(tmp_path: Path, version: str, inner: pa.DataType) -> None:
    uri = str(tmp_path / "t")
    batch = pa.record_batch([pa.array([1, 2, 3]), empty_lists(inner)], names=["id", "x"])
    lance_spark.write_dataset(pa.Table.from_batches([batch]), uri, data_storage_version=version)

    def twice(rows: pa.RecordBatch) -> Any:
        return pa.record_batch([empty_lists(inner).slice(0, rows.num_rows)], names=["y"])

    lance_spark.open_dataset(uri).add_columns(twice, ["id"])
    rows = lance.dataset(uri).to_table().to_pylist()
    assert rows == [
        {"id": n, "x": v, "y": v} for n, v in zip([1, 2, 3], [[], None, []], strict=True)
    ]


def test_batches_that_wait() -> None:
    """Spark's batches are measured before they are converted."""
    batch = pa.record_batch([empty_lists(pa.list_(pa.string()))], names=["x"])
    written: list[pa.RecordBatch] = []
    with BackgroundWriter(written.append) as behind:
        behind.put(batch)
    (result,) = written
    assert result.to_pylist() == [{"x": []}, {"x": None}, {"x": []}]


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
def test_null_structs_with_a_dictionary_without_values(tmp_path: Path, version: str) -> None:
    dtype = pa.struct([("i", pa.int32()), ("d", pa.dictionary(pa.int8(), pa.string()))])
    # Below a null struct, Arrow writes index 0 of the empty dictionary.
    rows = pa.table({"s": pa.array([None, None], dtype)})
    made = lance_spark.write_dataset(rows, tmp_path / "t", data_storage_version=version)
    assert made.to_table()["s"].to_pylist() == [None, None]
    assert lance.dataset(made.uri).to_table()["s"].to_pylist() == [None, None]
