"""Files with pages that no writer makes: this package makes the container, the test makes the
message and buffers of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader

from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1 import field_write as pages
from lance_spark.encoding.v2_1.codec import ChunkBuffer, Chunks
from lance_spark.encoding.v2_1.shred import LeafColumn, shred
from lance_spark.file import footer as metadata
from lance_spark.file import writer as container
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import FileWriter
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.proto import encodings_v2_3_pb2 as pb23
from lance_spark.storage.local import LocalSource
from tests.file.sources import MemoryOutput

Version = tuple[int, int]
Make = Callable[[LeafColumn, Version], EncodedPage | None]
CE = pb.CompressiveEncoding


def file_of(array: pa.Array, version: Version, make: Make, field: pa.Field | None = None) -> bytes:
    """Return a file of one column ``c``, each leaf column of which is the page that `make` returns.

    Version 2.3 has the same chunks and entries in another frame.
    """
    field = pa.field("c", array.type) if field is None else field
    output = MemoryOutput()

    def encode(rows: pa.Array, _: pa.Field, version: Version) -> list[EncodedPage]:
        result = [make(column, min(version, (2, 2))) for column in shred(rows, field)]
        assert all(page is not None for page in result)
        if version == (2, 3):
            result = [planar(page) for page in result]
        return result  # type: ignore[return-value]

    with (
        mock.patch.object(pages, "encode_field", encode),
        mock.patch.object(container, "_WRITABLE", ((2, 1), (2, 2), (2, 3))),
        mock.patch.dict(metadata._PAGE_TYPE, {(2, 3): "/lance.encodings23.PlanarLayout"}),
    ):
        writer = FileWriter(output, Schema.from_arrow(pa.schema([field])), version, 1 << 40)
        writer.write(pa.record_batch([array], schema=pa.schema([field])))
        writer.finish()
    return output.data


def planar(page: EncodedPage) -> EncodedPage:
    """Return a page in the frame of version 2.3."""
    layout = pb.PageLayout.FromString(page.encoding)
    result = pb23.PlanarLayout()
    dense = result.structure.dense
    if layout.HasField("mini_block_layout"):
        mini = layout.mini_block_layout
        chunked = result.values.chunked
        dense.layers.extend(mini.layers)
        chunked.levels.SetInParent()
        chunked.compression.CopyFrom(mini.value_compression)
        chunked.num_buffers, chunked.num_items = mini.num_buffers, mini.num_items
        if mini.HasField("dictionary"):
            chunked.dictionary.CopyFrom(mini.dictionary)
            chunked.num_dictionary_items = mini.num_dictionary_items
        for old, new in (("rep_compression", "repetition"), ("def_compression", "definition")):
            if mini.HasField(old):
                getattr(chunked.levels, new).CopyFrom(getattr(mini, old))
        if mini.repetition_index_depth:
            chunked.levels.repetition_index_depth = mini.repetition_index_depth
    else:
        full = layout.full_zip_layout
        zipped = result.values.zipped
        dense.layers.extend(full.layers)
        zipped.levels.SetInParent()
        zipped.compression.CopyFrom(full.value_compression)
        zipped.num_items, zipped.num_visible_items = full.num_items, full.num_visible_items
        details = full.WhichOneof("details")
        setattr(zipped, details, getattr(full, details))
        if full.bits_rep or full.bits_def:
            zipped.levels.bits_repetition = full.bits_rep
            zipped.levels.bits_definition = full.bits_def
    return EncodedPage(page.buffers, page.num_rows, result.SerializeToString())


def ours(path: Path, rows: Rows | None = None) -> pa.Array:
    """Return what this package reads."""
    reader = FileReader.open(LocalSource(str(path)))
    try:
        wanted = range(reader.num_rows) if rows is None else rows
        return reader.read(reader.schema.fields, wanted)[0]
    finally:
        reader.close()


def theirs(path: Path, rows: Sequence[int] | None = None) -> pa.Array | None:
    """Return what pylance reads, or None if pylance refuses the file."""
    try:
        reader = LanceFileReader(str(path))
        result = reader.read_all() if rows is None else reader.take_rows(list(rows))
        return result.to_table().column(0).combine_chunks()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # Panics of pylance do not derive from Exception.
        return None


def chunks_of(parts: Sequence[Sequence[bytes]], counts: Sequence[int]) -> Chunks:
    """Return chunks: for each, the bytes of its buffers."""
    buffers = []
    for index in range(len(parts[0])):
        pieces = [part[index] for part in parts]
        sizes = np.array([len(piece) for piece in pieces], np.int64)
        data = np.frombuffer(b"".join(pieces), np.uint8)
        buffers.append(ChunkBuffer(data, np.cumsum(sizes) - sizes, sizes))
    return Chunks(tuple(buffers), np.array(counts, np.int64))


def flat(bits: int) -> CE:
    return CE(flat=pb.Flat(bits_per_value=bits))


def packed(bits: int, width: int) -> CE:
    return CE(
        out_of_line_bitpacking=pb.OutOfLineBitpacking(
            uncompressed_bits_per_value=bits, values=flat(width)
        )
    )


def general(values: CE, scheme: str = "zstd") -> CE:
    number = {"lz4": pb.COMPRESSION_ALGORITHM_LZ4, "zstd": pb.COMPRESSION_ALGORITHM_ZSTD}[scheme]
    return CE(general=pb.General(compression=pb.BufferCompression(scheme=number), values=values))


def squeezed(data: bytes, scheme: str = "zstd") -> bytes:
    """Return bytes as a buffer that a compressor has written."""
    codec = pa.Codec("lz4_raw" if scheme == "lz4" else "zstd")
    return len(data).to_bytes(4 if scheme == "lz4" else 8, "little") + codec.compress(
        data, asbytes=True
    )
