"""Every type, pattern and mix of nulls that pylance writes at version 2.0, read in every way."""

from __future__ import annotations

import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from lance_spark.storage.source import run_plans
from tests.encoding.v2_0.files import File, assert_rows, read_theirs, write
from tests.support.interop import tables

#: Each type is compared with pylance in several sizes.
pytestmark = pytest.mark.slow

TYPES = {**tables.SCALARS, **tables.VECTORS, **tables.NESTED}


def without_null_structs(array: pa.Array) -> pa.Array:
    """Structs of version 2.0 cannot be null: pylance refuses them."""
    dtype = array.type
    if pa.types.is_struct(dtype):
        children = [without_null_structs(array.field(i)) for i in range(dtype.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(dtype))
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        items = without_null_structs(array.values)
        buffers = array.buffers()[:2]
        return pa.Array.from_buffers(dtype, len(array), buffers, children=[items])
    return array


def columns(dtype: pa.DataType, rows: int) -> dict[str, pa.Array]:
    patterns = ("sequential", "low", "long") if rows < 70_000 else ("random", "low")
    made = {}
    for pattern in patterns:
        if pattern == "long" and not holds_strings(dtype):
            continue
        for nulls in tables.NULLS:
            seed = zlib.crc32(f"{pattern} {nulls}".encode())
            array = tables.column(dtype, pattern, nulls, rows, seed)
            made[f"{pattern}_{nulls}"] = without_null_structs(array)
    return made


def holds_strings(dtype: pa.DataType) -> bool:
    return "string" in str(dtype) or "binary" in str(dtype)


MANY = pytest.param(70_000, marks=pytest.mark.slow)


@pytest.mark.sample(12)
@pytest.mark.parametrize("rows", [0, 1, 1023, 1024, 1025, MANY])
@pytest.mark.parametrize("name", TYPES)
def test_values_are_those_of_pylance(name: str, rows: int, tmp_path: Path) -> None:
    table = pa.table(columns(TYPES[name], rows))
    path = write(tmp_path / "file.lance", table)
    theirs = read_theirs(path)
    file = File(path, table.schema)
    for column in table.column_names:
        assert_rows(file, column, theirs[column], rows)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(40))
def test_random_tables(seed: int, tmp_path: Path) -> None:
    table = tables.random_table(seed)
    plain = [without_null_structs(column.combine_chunks()) for column in table.columns]
    table = pa.table(plain, schema=table.schema)
    path = write(tmp_path / "file.lance", table)
    theirs = read_theirs(path)
    file = File(path, table.schema)
    for column in table.column_names:
        assert_rows(file, column, theirs[column], seed)


def test_two_reads_of_one_reader_in_step(tmp_path: Path) -> None:
    table = pa.table({"c": pa.array(["a", None, "ccc"] * 1000)})
    batches = pa.Table.from_batches(table.to_batches(max_chunksize=500))
    file = File(write(tmp_path / "f.lance", batches, data_cache_bytes=1), table.schema)
    assert len(file.columns["c"][0].pages) > 2
    reader = file.readers["c"]
    plans = [reader.read(range(10)), reader.read(range(2990, 3000)), reader.read(range(3000))]
    first, last, whole = run_plans(file.source, plans)
    assert whole.equals(table["c"].combine_chunks())
    assert first.equals(whole[:10])
    assert last.equals(whole[2990:])
