"""Vectors with only null items in a page; and vectors of structs with lists, of any size, which no
client reads.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark import open_dataset, write_dataset
from lance_spark.errors import UnsupportedTypeError

FLOATS = pa.list_(pa.float32(), 2)
VECTORS = {
    "floats": (FLOATS, [None, None]),
    "flags": (pa.list_(pa.bool_(), 2), [None, None]),
    "vectors": (pa.list_(pa.list_(pa.int16(), 1), 2), [[None], [None]]),
    "null vectors": (pa.list_(pa.list_(pa.int16(), 1), 2), [None, None]),
    "lists": (pa.list_(FLOATS), [[None, None], None]),
    "structs": (pa.struct([("v", FLOATS)]), {"v": [None, None]}),
}


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.3"])
@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("count", [1, 700])
def test_pages_of_pylance(tmp_path: Path, version: str, name: str, count: int) -> None:
    dtype, value = VECTORS[name]
    uri = str(tmp_path / "t")
    data = pa.table(
        {"id": pa.array(range(count + 1)), "v": pa.array([value] * count + [None], dtype)}
    )
    lance.write_dataset(data, uri, data_storage_version=version)
    dataset = open_dataset(uri)
    assert dataset.to_table() == lance.dataset(uri).to_table() == data
    assert dataset.take([count - 1, count]) == data.slice(count - 1)
    if version == "2.3":
        return
    dataset = dataset.update({"id": -1}, [("id", "==", 0)])
    dataset.compact_files()
    table = lance.dataset(uri).to_table()
    assert table["id"].to_pylist() == [*range(1, count + 1), -1]
    assert table["v"].to_pylist() == [*data["v"].to_pylist()[1:], value]


PAIR = pa.struct([("x", pa.int32())])
LISTS = pa.struct([("x", pa.list_(pa.int32()))])


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_vectors_of_structs_beside_lists(tmp_path: Path, size: int, version: str) -> None:
    values = [
        (pa.list_(pa.list_(PAIR, size)), [[[{"x": 1}] * size]]),
        (pa.list_(pa.list_(PAIR, size)), [[]]),
        (pa.list_(LISTS, size), [[{"x": [1]}] * size]),
        (pa.map_(pa.string(), pa.list_(PAIR, size)), [[("a", [{"x": 1}] * size)], []]),
    ]
    for number, (dtype, rows) in enumerate(values):
        uri = tmp_path / str(number)
        if version == "2.1" and pa.types.is_map(dtype):
            continue
        with pytest.raises(UnsupportedTypeError):
            write_dataset(
                pa.table({"c": pa.array(rows, dtype)}), str(uri), data_storage_version=version
            )
        assert not list(uri.rglob("*.lance"))
