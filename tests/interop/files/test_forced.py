"""Encodings that field metadata forces on pylance: pages must have them, and this package must read
them.

A page is described in one line, ``mini(general:zstd(variable(flat:32)))``, so that a case can say
what it covers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

import lance_spark
from lance_spark.proto import encodings_v2_1_pb2 as pb
from tests.support.encodings.chunks import WrittenPage, pages_of
from tests.support.encodings.handmade import ours
from tests.support.interop.tables import build

ROWS = 6_000
PREFIX = "lance-encoding:"


def encoding_name(encoding: pb.CompressiveEncoding) -> str:
    """Return a compressive encoding in one line."""
    name = encoding.WhichOneof("compression")
    message = getattr(encoding, name)
    if name == "flat":
        return f"flat:{message.bits_per_value}"
    if name == "inline_bitpacking":
        return f"inline:{message.uncompressed_bits_per_value}"
    if name == "out_of_line_bitpacking":
        return f"packed:{message.uncompressed_bits_per_value}({encoding_name(message.values)})"
    if name == "variable":
        return f"variable({encoding_name(message.offsets)})"
    if name == "rle":
        return f"rle({encoding_name(message.values)},{encoding_name(message.run_lengths)})"
    if name == "general":
        scheme = {1: "lz4", 2: "zstd"}[message.compression.scheme]
        level = f":{message.compression.level}" if message.compression.HasField("level") else ""
        return f"general:{scheme}{level}({encoding_name(message.values)})"
    if name == "fixed_size_list":
        flags = ",nulls" if message.has_validity else ""
        return f"vector:{message.items_per_value}{flags}({encoding_name(message.values)})"
    if name == "packed_struct":
        return (
            f"struct:{'+'.join(map(str, message.bits_per_value))}({encoding_name(message.values)})"
        )
    if name == "variable_packed_struct":
        return f"rows({','.join(encoding_name(field.value) for field in message.fields)})"
    if name in ("fsst", "byte_stream_split"):
        return (
            f"{'planes' if name == 'byte_stream_split' else name}({encoding_name(message.values)})"
        )
    return str(name)


def page_encoding_name(layout: pb.PageLayout) -> str:
    """Return a page's encoding in one line."""
    layout_name = layout.WhichOneof("layout")
    message = getattr(layout, layout_name)
    if layout_name == "mini_block_layout":
        description = f"mini({encoding_name(message.value_compression)})"
        for name in ("dictionary", "rep_compression", "def_compression"):
            if message.HasField(name):
                description += f" {name[:4].rstrip('_')}({encoding_name(getattr(message, name))})"
        return description
    if layout_name == "full_zip_layout":
        return f"zip({encoding_name(message.value_compression)})"
    return "constant" if layout_name == "constant_layout" else str(layout_name)


def values_of(pattern: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    if pattern == "runs":
        return np.repeat(rng.integers(0, 1 << 40, ROWS // 30), 30)
    if pattern == "few":
        return rng.integers(0, 50, ROWS) * 1_000_003
    if pattern == "small":
        return rng.integers(0, 1 << 12, ROWS)
    return rng.integers(0, 1 << 60, ROWS)


def words() -> pa.Array:
    rng = np.random.default_rng(3)
    known = [f"{a}{b}" for a in ("alpha", "beta", "gamma", "delta") for b in range(40)]
    return pa.array([" ".join(rng.choice(known, 8)) for _ in range(ROWS)])


VECTOR = pa.list_(pa.float32(), 8)
STRUCT = pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.float64(), False)])


def column(name: str) -> pa.Array:
    shape, _, suffix = name.partition(" ")
    pattern = suffix or "random"
    rng = np.random.default_rng(11)
    values = values_of(pattern)
    if shape == "text" and pattern == "random":
        return words()
    types = {
        "int64": (pa.int64(), 0.0),
        "int16": (pa.int16(), 0.0),
        "float64": (pa.float64(), 0.0),
        "text": (pa.string(), 0.0),
        "nullable": (pa.int64(), 0.3),
        "list": (pa.list_(pa.int64()), 0.3),
        "vector": (VECTOR, 0.2),
        "struct": (STRUCT, 0.0),
        "decimal": (pa.decimal128(30, 4), 0.0),
    }
    dtype, nulls = types[shape]
    return build(dtype, values, nulls, rng)


COLUMNS = [
    "int64",
    "int64 runs",
    "int64 few",
    "int16 small",
    "float64",
    "float64 few",
    "text",
    "text few",
    "nullable",
    "nullable runs",
    "list",
    "list few",
    "vector",
    "struct",
    "decimal",
    "decimal few",
]

#: What pylance writes: keys, columns and their pages, in 2.1 and in 2.2 if they differ. Columns
#: that are not listed for some keys are read too, with any encoding.
FORCED: dict[str, dict[str, str | tuple[str, str]]] = {
    "": {
        "int64": "mini(inline:64)",
        "int64 runs": (
            "mini(rle(flat:64,flat:8))",
            "mini(rle(flat:32,flat:8)) dict(general:lz4(flat:64))",
        ),
        "int64 few": ("mini(inline:64)", "mini(inline:32) dict(general:lz4(flat:64))"),
        "int16 small": "mini(inline:16)",
        "float64": "mini(flat:64)",
        "float64 few": ("mini(flat:64)", "mini(inline:32) dict(general:lz4(flat:64))"),
        "text": "mini(fsst(variable(flat:32)))",
        "text few": (
            "mini(inline:32) dict(variable(flat:32))",
            "mini(inline:32) dict(general:lz4(variable(flat:32)))",
        ),
        "nullable": "mini(inline:64) def(packed:16(flat:1))",
        "nullable runs": (
            "mini(rle(flat:64,flat:8)) def(packed:16(flat:1))",
            "mini(rle(flat:32,flat:8)) dict(general:lz4(flat:64)) def(packed:16(flat:1))",
        ),
        "list": "mini(flat:64) rep(packed:16(flat:1)) def(packed:16(flat:2))",
        "list few": "mini(inline:64) rep(packed:16(flat:1)) def(packed:16(flat:2))",
        "vector": "mini(vector:8(flat:32)) def(packed:16(flat:1))",
        "struct": "mini(struct:32+64(flat:96))",
        "decimal": "mini(flat:128)",
        "decimal few": (
            "mini(inline:32) dict(flat:128)",
            "mini(inline:32) dict(general:lz4(flat:128))",
        ),
    },
    "compression=none": {
        "int64 runs": ("mini(flat:64)", "mini(flat:32) dict(general:lz4(flat:64))"),
        "int64 few": ("mini(flat:64)", "mini(flat:32) dict(general:lz4(flat:64))"),
        "int16 small": "mini(flat:16)",
        "text": "mini(variable(flat:32))",
        "text few": (
            "mini(flat:32) dict(variable(flat:32))",
            "mini(flat:32) dict(general:lz4(variable(flat:32)))",
        ),
        "nullable runs": (
            "mini(flat:64) def(packed:16(flat:1))",
            "mini(flat:32) dict(general:lz4(flat:64)) def(packed:16(flat:1))",
        ),
        "list few": "mini(flat:64) rep(packed:16(flat:1)) def(packed:16(flat:2))",
        "decimal few": (
            "mini(flat:32) dict(flat:128)",
            "mini(flat:32) dict(general:lz4(flat:128))",
        ),
    },
    "compression=lz4": {
        "int64": "mini(general:lz4(inline:64))",
        "int64 few": (
            "mini(general:lz4(planes(flat:64)))",
            "mini(general:lz4(planes(flat:32))) dict(general:lz4(flat:64))",
        ),
        "float64 few": (
            "mini(general:lz4(planes(flat:64)))",
            "mini(general:lz4(planes(flat:32))) dict(general:lz4(flat:64))",
        ),
        "text": "mini(general:lz4(variable(flat:32)))",
        "text few": (
            "mini(general:lz4(planes(flat:32))) dict(variable(flat:32))",
            "mini(general:lz4(planes(flat:32))) dict(general:lz4(variable(flat:32)))",
        ),
        "nullable": "mini(general:lz4(inline:64)) def(packed:16(flat:1))",
        "list few": "mini(general:lz4(planes(flat:64))) rep(packed:16(flat:1)) def(packed:16(flat:2))",
        "decimal": "mini(general:lz4(flat:128))",
        "decimal few": (
            "mini(general:lz4(planes(flat:32))) dict(flat:128)",
            "mini(general:lz4(planes(flat:32))) dict(general:lz4(flat:128))",
        ),
    },
    "compression=zstd": {
        "int64": "mini(general:zstd(inline:64))",
        "float64": "mini(general:zstd(flat:64))",
        "text": "mini(general:zstd(variable(flat:32)))",
        "nullable runs": (
            "mini(general:zstd(planes(flat:64))) def(packed:16(flat:1))",
            "mini(general:zstd(planes(flat:32))) dict(general:lz4(flat:64)) def(packed:16(flat:1))",
        ),
        "list": "mini(general:zstd(flat:64)) rep(packed:16(flat:1)) def(packed:16(flat:2))",
        "decimal": "mini(general:zstd(flat:128))",
    },
    "compression=fsst": {
        "int64 runs": ("mini(planes(flat:64))", "mini(planes(flat:32)) dict(general:lz4(flat:64))"),
        "float64 few": (
            "mini(planes(flat:64))",
            "mini(planes(flat:32)) dict(general:lz4(flat:64))",
        ),
        "list few": "mini(planes(flat:64)) rep(packed:16(flat:1)) def(packed:16(flat:2))",
    },
    "compression=zstd compression-level=19": {
        "int64": "mini(general:zstd:19(inline:64))",
        "int16 small": "mini(general:zstd:19(inline:16))",
        "float64 few": (
            "mini(general:zstd:19(planes(flat:64)))",
            "mini(general:zstd:19(planes(flat:32))) dict(general:lz4(flat:64))",
        ),
        "text": "mini(general:zstd:19(variable(flat:32)))",
        "list few": "mini(general:zstd:19(planes(flat:64))) rep(packed:16(flat:1)) def(packed:16(flat:2))",
        "decimal": "mini(general:zstd:19(flat:128))",
    },
    "structural-encoding=fullzip": {
        "int64": "zip(flat:64)",
        "int64 runs": ("zip(flat:64)", "mini(rle(flat:32,flat:8)) dict(general:lz4(flat:64))"),
        "int16 small": "zip(flat:16)",
        "float64": "zip(flat:64)",
        "text": "zip(fsst(variable(flat:32)))",
        "nullable": "zip(flat:64)",
        "list few": "zip(flat:64)",
        "vector": "zip(vector:8(flat:32))",
        "decimal": "zip(flat:128)",
    },
    "structural-encoding=fullzip compression=zstd": {
        "text": "zip(general:zstd:0(variable(flat:32)))",
        "text few": (
            "mini(general:zstd(planes(flat:32))) dict(variable(flat:32))",
            "mini(general:zstd(planes(flat:32))) dict(general:lz4(variable(flat:32)))",
        ),
    },
    "structural-encoding=fullzip compression=fsst": {
        "int64 runs": ("zip(flat:64)", "mini(planes(flat:32)) dict(general:lz4(flat:64))"),
        "text": "zip(fsst(variable(flat:32)))",
    },
    "rle-threshold=0.0001": {
        "int64 runs": ("mini(inline:64)", "mini(inline:32) dict(general:lz4(flat:64))"),
        "nullable runs": (
            "mini(inline:64) def(packed:16(flat:1))",
            "mini(inline:32) dict(general:lz4(flat:64)) def(packed:16(flat:1))",
        ),
    },
    "compression=lz4 bss=on": {
        "int64": "mini(planes(flat:64))",
        "float64": "mini(general:lz4(planes(flat:64)))",
        "nullable": "mini(planes(flat:64)) def(packed:16(flat:1))",
        "list": "mini(general:lz4(planes(flat:64))) rep(packed:16(flat:1)) def(packed:16(flat:2))",
    },
    "compression=lz4 bss=off": {
        "int64 few": ("mini(general:lz4(inline:64))", "mini(inline:32) dict(general:lz4(flat:64))"),
        "float64 few": ("mini(general:lz4(flat:64))", "mini(inline:32) dict(general:lz4(flat:64))"),
        "list few": "mini(general:lz4(inline:64)) rep(packed:16(flat:1)) def(packed:16(flat:2))",
    },
    "dict-divisor=1000000": {
        "int64 runs": "mini(rle(flat:64,flat:8))",
        "int64 few": "mini(inline:64)",
        "text few": "mini(fsst(variable(flat:32)))",
        "decimal few": "mini(flat:128)",
    },
    "dict-size-ratio=0.001": {
        "int64 few": "mini(inline:64)",
        "text few": "mini(fsst(variable(flat:32)))",
        "decimal few": "mini(flat:128)",
    },
    "dict-divisor=2 dict-values-compression=none": {
        "int64 few": ("mini(inline:64)", "mini(inline:32) dict(flat:64)"),
        "float64 few": ("mini(flat:64)", "mini(inline:32) dict(flat:64)"),
        "text few": "mini(inline:32) dict(variable(flat:32))",
        "decimal few": "mini(inline:32) dict(flat:128)",
    },
    "dict-divisor=2 dict-values-compression=zstd dict-values-compression-level=7": {
        "int64 few": ("mini(inline:64)", "mini(inline:32) dict(general:zstd:7(flat:64))"),
        "text few": (
            "mini(inline:32) dict(variable(flat:32))",
            "mini(inline:32) dict(general:zstd:7(variable(flat:32)))",
        ),
        "decimal few": (
            "mini(inline:32) dict(flat:128)",
            "mini(inline:32) dict(general:zstd:7(flat:128))",
        ),
    },
    "structural-encoding=miniblock": {},
    "rle-threshold=1.0": {},
    "compression=zstd bss=auto": {},
    "dict-divisor=2": {},
    "dict-divisor=2 dict-size-ratio=1.0": {},
    "dict-divisor=2 dict-values-compression=lz4": {},
    "minichunk-size=128": {},
    "minichunk-size=65536": {},
}
#: What this package writes: the text that the description of a page must contain, or after `!` must
#: not contain.
ASKED: dict[str, dict[str, str]] = {
    "compression=none": {
        "int64 runs": "mini(flat:64)",
        "int64 few": "mini(flat:64)",
        "int16 small": "mini(flat:16)",
        "float64 few": "mini(flat:64)",
        "text": "mini(variable(flat:32))",
        "text few": "mini(variable(flat:32))",
        "list few": "mini(flat:64)",
        "decimal few": "mini(flat:128)",
    },
    "compression=lz4": {
        "int64 runs": "general:lz4(rle(",
        "float64": "general:lz4(planes(",
        "text": "general:lz4(",
        "nullable": "general:lz4(flat:64)",
        "list few": "general:lz4(inline:64)",
        "vector": "general:lz4(vector:8",
        "decimal": "general:lz4(flat:128)",
    },
    "compression=zstd compression-level=19": {
        "int64": "general:zstd:19(flat:64)",
        "float64": "general:zstd:19(planes(",
        "text": "general:zstd:19(",
        "list": "general:zstd:19(",
        "struct": "general:zstd:19(struct:",
        "decimal": "general:zstd:19(",
    },
    "structural-encoding=miniblock": dict.fromkeys(COLUMNS, "mini("),
    "structural-encoding=fullzip": dict.fromkeys(COLUMNS, "zip("),
    "structural-encoding=fullzip compression=zstd": {"text": "zip(general:zstd"},
    "structural-encoding=fullzip compression=lz4": {"text": "zip(general:zstd"},
    "rle-threshold=0": {"int64 runs": "!rle", "nullable runs": "!rle"},
    "rle-threshold=1.0": {"int64 runs": "rle(", "nullable runs": "rle("},
    "compression=lz4 bss=on": {
        "int64 runs": "general:lz4(planes(",
        "float64": "general:lz4(planes(",
        "list few": "general:lz4(planes(",
    },
    "compression=lz4 bss=off": {"float64": "!planes", "int64 runs": "!planes"},
    "compression=zstd bss=auto": {"float64": "general:zstd(planes(", "int64 runs": "!planes"},
    "dict-divisor=2": {"int64 few": "dict(", "text few": "dict(", "decimal few": "dict("},
    "dict-divisor=1000000": {"int64 few": "!dict", "text few": "!dict", "decimal few": "!dict"},
    "dict-size-ratio=0.001": {"int64 few": "!dict", "text few": "!dict", "decimal few": "!dict"},
    "dict-values-compression=none": {
        "int64 few": "dict(flat:64)",
        "text few": "dict(variable(",
        "decimal few": "dict(flat:128)",
    },
    "dict-values-compression=lz4": {
        "int64 few": "dict(general:lz4(",
        "text few": "dict(general:lz4(",
    },
    "dict-values-compression=zstd dict-values-compression-level=7": {
        "int64 few": "dict(general:zstd:7(",
        "text few": "dict(general:zstd:7(",
    },
}


def field_of(name: str, keys: str) -> tuple[pa.Array, pa.Field]:
    """Return a column and its field with the keys. Items of lists have the keys too."""
    array = column(name)
    metadata = {PREFIX + key: value for key, value in (pair.split("=") for pair in keys.split())}
    if name == "struct":
        metadata[PREFIX + "packed"] = "true"
    dtype = array.type
    if pa.types.is_list(dtype):
        dtype = pa.list_(pa.field("item", dtype.value_type, metadata=metadata))
        array = array.cast(dtype)
    return array, pa.field("c", dtype, metadata=metadata)


def by_pylance(path: Path, array: pa.Array, field: pa.Field, version: str) -> WrittenPage:
    schema = pa.schema([field])
    with LanceFileWriter(str(path), schema, version=version) as writer:
        writer.write_batch(pa.record_batch([array], schema=schema))
    (page,) = pages_of(path.read_bytes())
    return page


def check(path: Path, array: pa.Array, note: str) -> None:
    """Check that this package reads the whole file, ranges and positions."""
    rows = len(array)
    assert ours(path).equals(array), note
    for part in (range(1), range(rows - 1, rows), range(1_000, 1_100), range(rows // 3, rows)):
        assert ours(path, part).equals(array.slice(part.start, len(part))), f"{note} {part}"
    positions = np.unique(np.random.default_rng(rows).integers(0, rows, 20))
    assert ours(path, positions).equals(array.take(pa.array(positions))), f"{note} take"


@pytest.mark.sample(9)
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("keys", FORCED)
def test_pylance_wrote(tmp_path: Path, keys: str, version: str) -> None:
    for name in COLUMNS:
        if name == "struct" and "fullzip" in keys:
            continue  # pylance does not write it
        array, field = field_of(name, keys)
        path = tmp_path / f"{name}.lance"
        page = by_pylance(path, array, field, version)
        expected = FORCED[keys].get(name)
        if isinstance(expected, tuple):
            expected = expected[version == "2.2"]
        if expected is not None:
            assert page_encoding_name(page.layout) == expected, name
        check(path, array, f"{keys} {name}")


@pytest.mark.sample(5)
@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("keys", ASKED)
def test_hints_choose_the_encoding_of_written_pages(
    tmp_path: Path, keys: str, version: str
) -> None:
    for name, expected in ASKED[keys].items():
        array, field = field_of(name, keys)
        path = tmp_path / f"{name}.lance"
        table = pa.table([array], schema=pa.schema([field]))
        lance_spark.write_dataset(table, str(path), data_storage_version=version)
        (file,) = (path / "data").iterdir()
        (page,) = pages_of(file.read_bytes())
        actual = page_encoding_name(page.layout)
        assert (expected[1:] not in actual) if expected[0] == "!" else (expected in actual), (
            name,
            actual,
        )
        read = LanceFileReader(str(file)).read_all().to_table().column(0).combine_chunks()
        assert read.equals(array), name
        check(file, array, f"{keys} {name}")


def chunk_sizes(page: WrittenPage) -> np.ndarray:
    words = page.buffers[0].view("<u4" if page.layout.mini_block_layout.has_large_chunk else "<u2")
    return ((words >> 4).astype(np.int64) + 1) * 8


@pytest.mark.parametrize(
    ("version", "size", "least", "most"),
    [
        ("2.1", 128, 0, 400),
        ("2.2", 128, 0, 400),
        ("2.1", 20_000, 8_192, 32_768),
        ("2.2", 65_536, 32_768, 65_536),
        ("2.2", 400_000, 65_536, 400_000),
    ],
)
def test_sizes_of_chunks(tmp_path: Path, version: str, size: int, least: int, most: int) -> None:
    array, field = field_of("text", f"minichunk-size={size} compression=none")
    path = tmp_path / "f.lance"
    sizes = chunk_sizes(by_pylance(path, array, field, version))
    assert least < sizes.max() <= most
    check(path, array, f"chunks of {size}")


def test_chunks_of_many_values(tmp_path: Path) -> None:
    """An environment variable, which pylance reads once, allows chunks of up to 32,768 values, the
    limit of a chunk's word.
    """
    code = """
import sys
from pathlib import Path
import pyarrow as pa
from tests.interop.files.test_forced import by_pylance, field_of
array, field = field_of("int64 runs", "")
for version in ("2.1", "2.2"):
    by_pylance(Path(sys.argv[1]) / version, pa.concat_arrays([array] * 20), field, version)
"""
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "LANCE_MINIBLOCK_MAX_VALUES": "32768", "PYTHONPATH": root}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True)
    array = pa.concat_arrays([column("int64 runs")] * 20)
    most = 0
    for version in ("2.1", "2.2"):
        path = tmp_path / version
        (page,) = pages_of(path.read_bytes())
        words = page.buffers[0].view("<u4" if version == "2.2" else "<u2")
        most = max(most, int((words & 15).max()))
        check(path, array, version)
    assert most == 15
