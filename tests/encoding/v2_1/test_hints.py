"""Every key that controls the writer: pylance reads columns with good values; bad values are
refused by name.
"""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import lance_spark
from lance_spark.encoding.v2_1 import hints
from lance_spark.encoding.v2_1.hints import Hints
from lance_spark.errors import InvalidInputError
from tests.support.interop.tables import assert_same, build

ROWS = 5_000
PREFIX = "lance-encoding:"

GOOD: dict[str, list[str]] = {
    "compression": ["none", "lz4", "zstd", "fsst", "ZSTD", " lz4 "],
    "compression-level": ["1", "-5", "22"],
    "structural-encoding": ["miniblock", "fullzip"],
    "rle-threshold": ["0", "0.0", "0.01", "0.5", "1"],
    "bss": ["off", "on", "auto"],
    "dict-divisor": ["1", "2", "1000", "1000000"],
    "dict-size-ratio": ["0.0001", "0.5", "1"],
    "dict-values-compression": ["none", "lz4", "zstd"],
    "dict-values-compression-level": ["1", "-5", "19"],
    "minichunk-size": ["1", "64", "1000", "4096", "65536", "100000000"],
    "packed": ["true", "false", "True"],
}
BAD: dict[str, list[str]] = {
    "compression": ["gzip", "", "lz5", "zstd lz4"],
    "compression-level": ["high", "1.5", "", "23", "-999999999"],
    "structural-encoding": ["mini-block", "full", ""],
    "rle-threshold": ["-0.1", "1.1", "nan", "inf", "half", ""],
    "bss": ["yes", "", "1"],
    "dict-divisor": ["0", "-1", "1.5", "two", ""],
    "dict-size-ratio": ["0", "-1", "1.01", "nan", "x"],
    "dict-values-compression": ["fsst", "gzip", ""],
    "dict-values-compression-level": ["x", "", "23"],
    "minichunk-size": ["0", "-1", "4k", ""],
    "packed": ["yes", "1", ""],
}
#: Other keys that a key needs to have an effect.
BESIDE = {
    "compression-level": {"compression": "zstd"},
    "bss": {"compression": "lz4"},
    "dict-values-compression": {"dict-divisor": "2"},
    "dict-values-compression-level": {"dict-values-compression": "zstd"},
}
STRUCT = pa.struct([pa.field("a", pa.int16()), pa.field("b", pa.float64())])


def columns() -> dict[str, pa.Array]:
    rng = np.random.default_rng(1)
    wide, few = rng.integers(0, 1 << 50, ROWS), rng.integers(0, 9, ROWS)
    runs = np.repeat(few[: ROWS // 20], 20)
    return {
        "random": build(pa.int64(), wide, 0.1, rng),
        "runs": build(pa.int32(), runs, 0.0, rng),
        "floats": build(pa.float64(), few, 0.1, rng),
        "text": build(pa.string(), wide, 0.1, rng),
        "few_texts": build(pa.string(), few, 0.1, rng),
        "long_text": build(pa.string(), wide, 0.1, rng, long=True),
        "decimals": build(pa.decimal128(20, 2), few, 0.0, rng),
        "flags": build(pa.bool_(), few, 0.1, rng),
        "vectors": build(pa.list_(pa.float32(), 12), few, 0.1, rng),
        "lists": build(pa.list_(pa.int64()), few, 0.1, rng),
        "constant": build(pa.int64(), np.full(ROWS, 7), 0.1, rng),
        "nulls": pa.nulls(ROWS, pa.int8()),
    }


def hinted(dtype: pa.DataType, metadata: dict[str, str]) -> pa.DataType:
    """Hints are in the metadata of the leaf: the items of a list."""
    return (
        pa.list_(pa.field("item", dtype.value_type, metadata=metadata))
        if pa.types.is_list(dtype)
        else dtype
    )


def table_with(metadata: dict[str, str]) -> pa.Table:
    arrays, fields = [], []
    for name, array in columns().items():
        dtype = hinted(array.type, metadata)
        arrays.append(
            array.cast(dtype) if dtype != array.type or pa.types.is_list(dtype) else array
        )
        fields.append(pa.field(name, dtype, metadata=metadata))
    return pa.table(arrays, schema=pa.schema(fields))


@pytest.mark.sample(9)
@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize(("key", "value"), [(k, v) for k, vs in GOOD.items() for v in vs])
def test_pylance_reads_pages_of_every_hint(
    tmp_path: Path, key: str, value: str, version: str
) -> None:
    hint_values = {**BESIDE.get(key, {}), key: value}
    metadata = {PREFIX + k: v for k, v in hint_values.items()}
    path = tmp_path / "t.lance"
    if key == "packed":
        rng = np.random.default_rng(1)
        array = build(STRUCT, rng.integers(0, 99, ROWS), 0.0, rng)
        table = pa.table([array], schema=pa.schema([pa.field("c", STRUCT, metadata=metadata)]))
    else:
        table = table_with(metadata)
    if (key, value) == ("compression-level", "22"):
        # For each chunk zstd sets up tables of a hundred megabytes at this level.
        table = table.slice(0, ROWS // 10).combine_chunks()
    lance_spark.write_dataset(table, str(path), data_storage_version=version)
    (file,) = (path / "data").iterdir()
    assert_same(LanceFileReader(str(file)).read_all().to_table(), table, "pylance")
    dataset = lance_spark.open_dataset(str(path))
    assert_same(dataset.to_table(), table, "ours")
    some = [7, table.num_rows * 4 // 5]
    assert_same(dataset.take(some), table.take(some), "take")


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, vs in BAD.items() for v in vs])
def test_bad_values_are_refused(tmp_path: Path, key: str, value: str) -> None:
    hint_values = {**BESIDE.get(key, {}), key: value}
    metadata = {PREFIX + k: v for k, v in hint_values.items()}
    dtype = STRUCT if key == "packed" else pa.string()
    array = pa.array([None, *({"a": 1, "b": 2.0} if key == "packed" else "x",) * ROWS], dtype)
    table = pa.table([array], schema=pa.schema([pa.field("c", dtype, metadata=metadata)]))
    with pytest.raises(InvalidInputError, match=f"column 'c'.*{key}"):
        lance_spark.write_dataset(table, str(tmp_path / "t.lance"))
    assert not (tmp_path / "t.lance" / "_versions").exists()


def test_all_keys_are_tested() -> None:
    table = (hints.__doc__ or "").split("\n==")[2]
    documented = {line.split()[0] for line in table.splitlines() if line[:1].isalpha()}
    assert documented == set(GOOD) == set(BAD)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("chunk", ["1", "100000000"])
@pytest.mark.parametrize("layout", ["miniblock", "fullzip"])
def test_values_of_every_width(tmp_path: Path, layout: str, chunk: str, version: str) -> None:
    """Values of which a chunk cannot hold two are stored singly, with any keys."""
    metadata = {PREFIX + "structural-encoding": layout, PREFIX + "minichunk-size": chunk}
    rng = np.random.default_rng(1)
    arrays, fields = [], []
    for width in (1, 8, 200, 256, 300, 4_000, 8_192, 10_000, 20_000, 70_000):
        raw = rng.bytes(width * 9)
        arrays.append(pa.array([raw[i * width : (i + 1) * width] for i in range(9)]))
        arrays.append(arrays[-1].cast(pa.binary(width)))
        items = pa.array(rng.integers(0, 99, width * 9).astype(np.int8))
        arrays.append(pa.FixedSizeListArray.from_arrays(items, width))
        items = pa.array(rng.integers(0, 99, width * 9), mask=rng.random(width * 9) < 0.2)
        arrays.append(pa.FixedSizeListArray.from_arrays(items, width))
    fields = [pa.field(f"c{i}", a.type, metadata=metadata) for i, a in enumerate(arrays)]
    table = pa.table(arrays, schema=pa.schema(fields))
    path = tmp_path / "t.lance"
    lance_spark.write_dataset(table, str(path), data_storage_version=version)
    (file,) = (path / "data").iterdir()
    assert_same(LanceFileReader(str(file)).read_all().to_table(), table, "pylance")
    assert_same(lance_spark.open_dataset(str(path)).to_table(), table, "ours")


def test_fields_without_keys() -> None:
    assert Hints.of(pa.field("c", pa.int8()), "c") == Hints()
    assert Hints.of(pa.field("c", pa.int8(), metadata={"other": "x"}), "c") == Hints()


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_codes_of_two_values_that_a_chunk_cannot_hold(tmp_path: Path, version: str) -> None:
    """Random bytes take up to twice their number as codes, which chunks of 2.1 cannot hold."""
    rng = np.random.default_rng(1)
    rows = [b"%064d" % number for number in range(20_000)]
    # No piece of the sample, of which there is one in 20,571 bytes, has these bytes.
    rows[3_230:3_230] = [rng.bytes(8_190), rng.bytes(8_190)]
    metadata = {PREFIX + "compression": "fsst"}
    schema = pa.schema([pa.field("c", pa.binary(), metadata=metadata)])
    table = pa.table([pa.array(rows)], schema=schema)
    path = str(tmp_path / "t.lance")
    lance_spark.write_dataset(table, path, data_storage_version=version)
    assert_same(lance.dataset(path).to_table(), table, "pylance")
    dataset = lance_spark.open_dataset(path)
    assert_same(dataset.to_table(), table, "ours")
    assert_same(dataset.take([3_231, 7]), table.take([3_231, 7]), "take")
