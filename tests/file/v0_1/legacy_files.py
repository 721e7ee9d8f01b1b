"""Files of version 0.1 that pylance writes, their parts, and files with other metadata."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from lance_spark.file.open import open_file
from lance_spark.file.schema.field import Field
from lance_spark.file.v0_1.reader import LegacyFileReader
from lance_spark.proto import file_pb2, table_pb2
from tests.file.sources import MemorySource
from tests.support.interop.tables import build

FileOf = Callable[[pa.Table, str], Path]
ROWS = 1_100


def sample(rows: int = ROWS, nulls: float = 0.1) -> pa.Table:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 2**40, rows)
    dtypes = {
        "i": pa.int64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "l": pa.list_(pa.list_(pa.int16())),
        "t": pa.struct([("x", pa.list_(pa.string())), ("y", pa.float32())]),
        "v": pa.list_(pa.float32(), 4),
        "n": pa.list_(pa.null()),
    }
    table = pa.table({name: build(dtype, values, nulls, rng) for name, dtype in dtypes.items()})
    colours = pa.array(["red", "green", "blue"])
    indices = pa.array(values % 3, pa.int8())
    return table.append_column("d", pa.DictionaryArray.from_arrays(indices, colours))


def opened(data: bytes) -> tuple[LegacyFileReader, MemorySource]:
    source = MemorySource(data)
    reader = open_file(source)
    assert isinstance(reader, LegacyFileReader)
    return reader, source


def field(reader: LegacyFileReader, name: str) -> Field:
    return reader.schema.field(name)


# Files as other releases wrote them: the parts behind the pages made anew


def parts(data: bytes) -> tuple[file_pb2.Metadata, table_pb2.Manifest]:
    (position,) = struct.unpack_from("<Q", data, len(data) - 16)
    metadata = file_pb2.Metadata.FromString(section(data, position))
    return metadata, table_pb2.Manifest.FromString(section(data, metadata.manifest_position))


def section(data: bytes, position: int) -> bytes:
    (length,) = struct.unpack_from("<I", data, position)
    return data[position + 4 : position + 4 + length]


def with_metadata(data: bytes, metadata: file_pb2.Metadata, minor: int = 2) -> bytes:
    message = metadata.SerializeToString()
    tail = struct.pack("<I", len(message)) + message
    return data + tail + struct.pack("<QHH4s", len(data), 0, minor, b"LANC")
