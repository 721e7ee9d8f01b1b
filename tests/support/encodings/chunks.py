"""Pages that pylance writes, cut into the pieces that codecs get, by an independent and slow reader
of the bytes.
"""

from __future__ import annotations

import struct
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from google.protobuf.any_pb2 import Any
from lance.file import LanceFileReader, LanceFileWriter

from lance_spark.encoding.blocks import VariableWidthBlock
from lance_spark.encoding.v2_1.codec import ChunkBuffer, Chunks
from lance_spark.file.reader import FileReader
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.proto import file2_pb2
from lance_spark.storage.local import LocalSource
from tests.file.sources import file_bytes


@dataclass(frozen=True)
class WrittenPage:
    """One page of a file that pylance wrote."""

    layout: pb.PageLayout
    buffers: list[np.ndarray]
    num_rows: int

    @property
    def kind(self) -> str:
        return self.layout.WhichOneof("layout")

    @property
    def encoding(self) -> pb.CompressiveEncoding:
        return getattr(self.layout, self.kind).value_compression


def write(array: pa.Array, version: str = "2.1", metadata: dict | None = None) -> list[WrittenPage]:
    """Write one column with pylance and return the pages of the first leaf column."""
    field = pa.field("c", array.type, nullable=array.null_count > 0, metadata=metadata)
    return write_field(array, field, version)


def write_field(array: pa.Array, field: pa.Field, version: str) -> list[WrittenPage]:
    schema = pa.schema([field])
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "f.lance")
        with LanceFileWriter(path, schema, version=version) as writer:
            writer.write_batch(pa.record_batch([array], schema=schema))
        written = LanceFileReader(path).read_all().to_table().column(0).combine_chunks()
        assert written.cast(array.type).equals(array)
        return pages_of(Path(path).read_bytes())


def read_by_both(folder: Path, table: pa.Table, version: tuple[int, int], rows: list[int]) -> None:
    """Write a file with this package. Read the whole file and some rows with pylance and with this
    package.
    """
    path = folder / "strings.lance"
    path.write_bytes(file_bytes(table, version))
    reader = LanceFileReader(str(path))
    assert reader.read_all().to_table().equals(table)
    assert reader.take_rows(rows).to_table().equals(table.take(rows))
    ours = FileReader.open(LocalSource(str(path)))
    columns = ours.read(ours.schema.fields, range(ours.num_rows))
    assert [pa.chunked_array([column]) for column in columns] == table.columns
    ours.close()


def pages_of(file: bytes, column: int = 0) -> list[WrittenPage]:
    table = struct.unpack_from("<QQQIIHH4s", file, len(file) - 40)[1]
    position, size = struct.unpack_from("<QQ", file, table + 16 * column)
    message = file2_pb2.ColumnMetadata.FromString(file[position : position + size])
    data = np.frombuffer(file, np.uint8)
    pages = []
    for page in message.pages:
        wrapped = Any.FromString(page.encoding.direct.encoding)
        buffers = [
            data[a : a + n] for a, n in zip(page.buffer_offsets, page.buffer_sizes, strict=True)
        ]
        pages.append(WrittenPage(pb.PageLayout.FromString(wrapped.value), buffers, page.length))
    return pages


def chunks_of(page: WrittenPage) -> Chunks:
    """Cut a mini-block page into its chunks."""
    layout = page.layout.mini_block_layout
    word = "<u4" if layout.has_large_chunk else "<u2"
    table = page.buffers[0].view(word).astype(np.int64)
    data = page.buffers[1]
    num_buffers = int(layout.num_buffers)
    places: list[list[tuple[int, int]]] = [[] for _ in range(num_buffers)]
    counts = []
    position = 0
    items_left = int(layout.num_items)
    for entry in table.tolist():
        count = 1 << (entry & 15) if len(counts) < len(table) - 1 else items_left
        items_left -= count
        counts.append(count)
        head = position + 2
        levels = []
        for present in (layout.HasField("rep_compression"), layout.HasField("def_compression")):
            if present:
                levels.append(int(data[head : head + 2].copy().view("<u2")[0]))
                head += 2
        width = 4 if layout.has_large_chunk else 2
        sizes = []
        for _ in range(num_buffers):
            sizes.append(int.from_bytes(data[head : head + width].tobytes(), "little"))
            head += width
        place = -(-head // 8) * 8
        for size in levels:
            place = -(-(place + size) // 8) * 8
        for index, size in enumerate(sizes):
            places[index].append((place, size))
            place = -(-(place + size) // 8) * 8
        position += ((entry >> 4) + 1) * 8
        assert place == position
    assert items_left == 0
    buffers = tuple(
        ChunkBuffer(
            data,
            np.array([a for a, _ in result], np.int64),
            np.array([n for _, n in result], np.int64),
        )
        for result in places
    )
    return Chunks(buffers, np.array(counts, np.int64))


def values_of(page: WrittenPage) -> VariableWidthBlock:
    """Return the stored values of a full-zip page of variable width without nulls and lists."""
    layout = page.layout.full_zip_layout
    assert layout.bits_rep == layout.bits_def == 0
    width = layout.bits_per_offset // 8
    data = page.buffers[0].tobytes()
    values = []
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + width], "little")
        values.append(data[position + width : position + width + size])
        position += width + size
    return block_of(values)


def block_of(values: list[bytes], offset_dtype: type = np.int32) -> VariableWidthBlock:
    """Return byte strings as a block."""
    offsets = np.zeros(len(values) + 1, offset_dtype)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    return VariableWidthBlock(offsets, np.frombuffer(b"".join(values), np.uint8))


def strings_of(block: object) -> list[bytes]:
    """Return the values of a VariableWidthBlock as a list."""
    data = block.data.tobytes()
    offsets = block.offsets.tolist()
    return [data[a:b] for a, b in pairwise(offsets)]


def symbol_table(symbols: list[bytes], *, encoded: bool = True) -> bytes:
    """Return the table of FSST symbols as it is stored in files."""
    table = bytes([len(symbols), 0, 0, int(encoded)]) + b"TSSF"
    table += b"".join(symbol.ljust(8, b"\0") for symbol in symbols)
    table += bytes(len(symbol) for symbol in symbols)
    return table.ljust(2312, b"\0")


def as_bytes(array: pa.Array) -> list[bytes]:
    """Return the values of a string or binary array as bytes, b"" for nulls."""
    dtype = (
        pa.large_binary() if array.type in (pa.large_string(), pa.large_binary()) else pa.binary()
    )
    return [value or b"" for value in array.cast(dtype).to_pylist()]
