"""Pages of version 2.3 that pylance writes, and data for each of its choices."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from lance.file import LanceFileReader, LanceFileWriter

from lance_spark.proto import encodings_v2_3_pb2 as pb
from lance_spark.proto import file2_pb2
from tests.support.descriptors import is_repeated
from tests.support.interop.tables import with_nulls

SPARSE = {"lance-encoding:structural-encoding": "sparse"}
FULL_ZIP = {"lance-encoding:structural-encoding": "fullzip"}
MINI_BLOCK = {"lance-encoding:structural-encoding": "miniblock"}
PLAIN: dict[str, str] = {}


@dataclass(frozen=True)
class WrittenPage:
    """One page of a file that pylance wrote."""

    layout: pb.PlanarLayout
    buffers: list[np.ndarray]
    num_rows: int

    @property
    def structure(self) -> str:
        return self.layout.structure.WhichOneof("codec")

    @property
    def values(self) -> str:
        return self.layout.values.WhichOneof("codec")


def write(array: pa.Array, metadata: dict[str, str] | None = None) -> list[WrittenPage]:
    """Write one column with pylance and return the pages of all its leaf columns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.lance"
        write_file(path, array, metadata)
        return pages_of(path.read_bytes())


def write_file(path: Path, array: pa.Array, metadata: dict[str, str] | None = None) -> None:
    """Write one column, and let pylance read it back."""
    schema = pa.schema([pa.field("c", array.type, metadata=metadata or None)])
    with LanceFileWriter(str(path), schema, version="2.3") as writer:
        writer.write_batch(pa.record_batch([array], schema=schema))
    back = LanceFileReader(str(path)).read_all().to_table().column(0).combine_chunks()
    assert back.equals(array) or back.to_pylist() == array.to_pylist()


def pages_of(file: bytes) -> list[WrittenPage]:
    """Return the pages of a file, of one column after the other."""
    _, table, _, _, columns, *_ = struct.unpack_from("<QQQIIHH4s", file, len(file) - 40)
    data = np.frombuffer(file, np.uint8)
    pages = []
    for column in range(columns):
        at, size = struct.unpack_from("<QQ", file, table + 16 * column)
        for page in file2_pb2.ColumnMetadata.FromString(file[at : at + size]).pages:
            wrapped = Any.FromString(page.encoding.direct.encoding)
            assert wrapped.type_url == "/lance.encodings23.PlanarLayout"
            buffers = [
                data[a : a + n] for a, n in zip(page.buffer_offsets, page.buffer_sizes, strict=True)
            ]
            pages.append(
                WrittenPage(pb.PlanarLayout.FromString(wrapped.value), buffers, page.length)
            )
    return pages


def choices(pages: Iterable[WrittenPage]) -> set[str]:
    """Return the kinds of planes, layers and encodings that occur, such as ``values.zipped``."""
    result = set()
    for page in pages:
        result |= {f"structure.{page.structure}", f"values.{page.values}"}
        for message in _walk(page.layout):
            for oneof in message.DESCRIPTOR.oneofs:
                chosen = message.WhichOneof(oneof.name)
                if chosen and oneof.name in ("layer", "compression"):
                    result.add(f"{oneof.name}.{chosen}")
    return result


def _walk(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if is_repeated(field) else [value]:
                yield from _walk(inner)


def nulls_at(array: pa.Array, rate: float, seed: int = 11) -> pa.Array:
    """Make some slots null."""
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(nulls_at(array.indices, rate, seed), array.dictionary)
    return with_nulls(array, np.random.default_rng(seed).random(len(array)) < rate)


def wide(count: int, seed: int = 2) -> pa.Array:
    """Values that are all different, and are stored singly."""
    rng = np.random.default_rng(seed)
    return pa.array([rng.bytes(int(size)) for size in rng.integers(300, 600, count)])


def text(lengths: np.ndarray, seed: int = 3) -> pa.Array:
    """Random bytes of given lengths."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("<i4")
    data = pa.py_buffer(rng.bytes(int(offsets[-1])))
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), data])


def lists_of(items: pa.Array, lengths: np.ndarray, nulls: float = 0.0) -> pa.Array:
    """Lists of given lengths."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    assert offsets[-1] <= len(items)
    array = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items.slice(0, offsets[-1]))
    return nulls_at(array, nulls) if nulls else array
