"""The end of a version 2 file: footer and offset tables.

A file consists of page buffers, global buffers, column metadata, the offset table of the column
metadata, the offset table of the global buffers, and the footer. Buffers start at multiples of 64
bytes; everything after the global buffers is packed. Both tables have pairs of u64 position and u64
length. The footer is the last 40 bytes, little-endian:

======  ====  =======================================================
offset  size  content
======  ====  =======================================================
0       8     u64 start of the column metadata
8       8     u64 start of the column metadata offset table
16      8     u64 start of the global buffer offset table
24      4     u32 number of global buffers
28      4     u32 number of columns
32      2     u16 major version
34      2     u16 minor version
36      4     ``LANC``
======  ====  =======================================================

Global buffer 0 is the `FileDescriptor`: the schema and the number of rows. Files of indexes have
further global buffers, whose numbers are in the metadata of the schema. Files of version 2.0 say
0.3 here.

Specification: format/file, "File layout"; `protos/file2.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError

from lance_spark.encoding.meta import ColumnMeta, PageMeta, total_rows
from lance_spark.encoding.rows import split_rows
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError, UnsupportedFeatureError
from lance_spark.proto import file2_pb2 as pb
from lance_spark.proto import file_pb2
from lance_spark.storage.output import OutputFile
from lance_spark.storage.remote import MAX_GAP, RemoteSource
from lance_spark.storage.source import ByteRange, Bytes, ByteSource, outside

if TYPE_CHECKING:
    from lance_spark.storage.remote import BufferRange


#: Buffers start at multiples of this many bytes, and this byte fills the gaps.
ALIGNMENT = 64
PADDING = b"H"

OffsetTable = npt.NDArray[np.uint64]

_FOOTER = struct.Struct("<QQQIIHH4s")
_END = struct.Struct("<HH4s")
_MAGIC = b"LANC"
_ENTRY = 16
#: Maximum entries of a table that is checked entry by entry: a call of numpy would take longer.
_FEW_ENTRIES = 64
#: Maximum bytes of tables and footer that are cached: short tables are equal in many files of a
#: table.
_SHORT = 512
#: Bytes at the end of a file that are read when it is opened.
_TAIL_BYTES = 64 * 1024

#: Footers of version 0.1 have 0.0 to 0.2; 0.3 is version 2.0.
_FIRST_VERSION_2 = (0, 3)
_WRITTEN_AS = {(2, 0): (0, 3)}
_READABLE = {(0, 3): (2, 0), (2, 0): (2, 0), (2, 1): (2, 1), (2, 2): (2, 2), (2, 3): (2, 3)}


@dataclass(frozen=True, slots=True)
class Footer:
    """The content of a footer and of the two offset tables. All positions are inside the file.

    - `version`: Major and minor version, (2, 0) for files that say 0.3.
    - `column_metadata` (uint64 array, columns by 2): Position and length of each column's metadata.
    - `global_buffers`: At least one.
    - `descriptor`: The first global buffer.
    """

    version: tuple[int, int]
    column_metadata: OffsetTable
    global_buffers: tuple[ByteRange, ...]
    descriptor: bytes


class Tail:
    """Reads ranges of a file; ranges near its end come from memory."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.name = source.name
        self.size = source.size
        tail = _tail_range(source)
        self.start = tail.offset
        (self._bytes,) = _describe(source, [tail])
        if isinstance(source, RemoteSource):
            source.keep_end(self._bytes)
        #: The last bytes of the file, as many as a footer has.
        self.end = self._bytes[-_FOOTER.size :].tobytes()

    @property
    def all_bytes(self) -> Bytes | None:
        """All bytes of the file, if they are in memory."""
        return None if self.start else self._bytes

    def of_source(self, source: ByteSource) -> Tail:
        """Return the same bytes, with another source of the same file for all others."""
        tail = copy(self)
        tail._source = source
        return tail

    def read(self, ranges: Sequence[ByteRange]) -> list[Bytes]:
        """Return the bytes of the ranges, with at most one read of the source.

        Raises CorruptFileError: a range lies outside the file.
        """
        size = self.size
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > size:
                raise outside(self.name, size, offset, length)
        start, data = self.start, self._bytes
        if not start:
            return [data[offset : offset + length] for offset, length in ranges]
        missing = [r for r in ranges if r.offset < start]
        fetched = iter(_describe(self._source, missing) if missing else ())
        return [
            next(fetched) if offset < start else data[offset - start : offset - start + length]
            for offset, length in ranges
        ]


def _describe(source: ByteSource, ranges: Sequence[ByteRange]) -> list[Bytes]:
    if isinstance(source, RemoteSource):
        return source.read_description(ranges)
    return source.read(ranges)


def _tail_range(source: ByteSource) -> ByteRange:
    """Return the range of a file that is read when it is opened."""
    size = source.size
    length = _TAIL_BYTES
    if isinstance(source, RemoteSource) and size <= source.end_bytes:
        length = size
    length = min(size, length)
    return ByteRange(size - length, length)


def expect_tail(source: ByteSource) -> None:
    """Begin to read the end of a file that is opened later, if it is remote."""
    if isinstance(source, RemoteSource):
        source.expect(_tail_range(source))


def open_tail(source: ByteSource) -> Tail:
    """Read the end of a file; close the file after an error."""
    try:
        return Tail(source)
    except BaseException:
        source.close()
        raise


def is_legacy(tail: Tail) -> bool:
    """Return whether the footer of a file is that of version 0.1."""
    if tail.size < _END.size:
        return False
    major, minor, magic = _END.unpack(tail.end[-_END.size :])
    return bool(magic == _MAGIC and (major, minor) < _FIRST_VERSION_2)


def read_footer(tail: Tail) -> Footer:
    """Parse footer and offset tables, with at most one read if they are long.

    Raises CorruptFileError: the file is not a Lance file, is truncated, or has offsets outside of
    it. Raises UnsupportedFeatureError: the file version is not 2.0, 2.1, 2.2 or 2.3.
    """
    name, size = tail.name, tail.size
    if size < _END.size:
        raise CorruptFileError(f"{name}: {size} bytes are too few for a Lance file; restore it")
    major, minor, magic = _END.unpack(tail.end[-_END.size :])
    if magic != _MAGIC:
        raise CorruptFileError(
            f"{name}: the file does not end in LANC: it is not a Lance file, or it is truncated"
        )
    version = _readable(name, major, minor)
    if size < _FOOTER.size:
        raise CorruptFileError(f"{name}: {size} bytes are too few for a Lance file; restore it")
    tables = _short_tables(tail)
    if tables is not None:
        (descriptor,) = tail.read(tables.global_buffers[:1])
        return Footer(version, tables.column_metadata, tables.global_buffers, descriptor.tobytes())
    limit = size - _FOOTER.size
    columns_range, buffers_range = _table_ranges(name, tail.end, limit)
    buffers = _global_buffers(name, tail.read([buffers_range])[0], limit)
    # One request for both tables, if they lie before the bytes that were read.
    columns, descriptor = tail.read([columns_range, buffers[0]])
    return Footer(
        version, _table(name, "column metadata", columns, limit), buffers, descriptor.tobytes()
    )


class Sections(NamedTuple):
    """Where the sections at the end of a file begin, and the version, as the footer has them."""

    column_metadata: int
    global_buffer_table: int
    major_version: int
    minor_version: int


def sections(tail: Tail) -> Sections:
    """Return the sections of a file that `read_footer` has accepted."""
    start, _, buffers_at, _, _, major, minor, _ = _FOOTER.unpack(tail.end)
    return Sections(start, buffers_at, major, minor)


class _Tables(NamedTuple):
    """The two offset tables of a file."""

    column_metadata: OffsetTable
    global_buffers: tuple[ByteRange, ...]


def _short_tables(tail: Tail) -> _Tables | None:
    """Return the tables of a file if they are short; None if they are long or damaged."""
    start = int(_FOOTER.unpack(tail.end)[1])
    length = tail.size - start
    if start < tail.start or not _FOOTER.size <= length <= _SHORT:
        return None
    (data,) = tail.read([ByteRange(start, length)])
    return _tables_of(data.tobytes(), start)


@lru_cache(maxsize=256)
def _tables_of(raw: bytes, start: int) -> _Tables | None:
    limit = start + len(raw) - _FOOTER.size
    data = np.frombuffer(raw, np.uint8)
    try:
        ranges = _table_ranges("", raw[-_FOOTER.size :], limit)
        columns, buffers = [
            data[position - start : position - start + size]
            for position, size in ranges
            if position >= start
        ]
        return _Tables(
            _table("", "column metadata", columns, limit), _global_buffers("", buffers, limit)
        )
    except (CorruptFileError, ValueError):
        # The caller raises the error with the name of the file.
        return None


def _table_ranges(name: str, end: bytes, limit: int) -> tuple[ByteRange, ByteRange]:
    _, columns_at, buffers_at, num_buffers, num_columns, _, _, _ = _FOOTER.unpack(end)
    return (
        _inside(name, "column metadata offset table", columns_at, num_columns * _ENTRY, limit),
        _inside(name, "global buffer offset table", buffers_at, num_buffers * _ENTRY, limit),
    )


def _global_buffers(name: str, raw: Bytes, limit: int) -> tuple[ByteRange, ...]:
    buffers = _table(name, "global buffer", raw, limit)
    if not len(buffers):
        raise CorruptFileError(f"{name}: the file has no schema; restore it")
    return tuple([ByteRange(*pair) for pair in buffers.tolist()])


def parse_descriptor(data: bytes) -> file_pb2.FileDescriptor:
    """Parse global buffer 0. Raises CorruptFileError: the buffer is not a `FileDescriptor`."""
    try:
        descriptor: file_pb2.FileDescriptor = file_pb2.FileDescriptor.FromString(data)
    except DecodeError as error:
        raise CorruptFileError(f"the schema is damaged: {error}") from None
    return descriptor


def encode_tail(
    version: tuple[int, int],
    descriptor: file_pb2.FileDescriptor,
    columns: Sequence[bytes],
    start: int,
    global_buffers: Sequence[ByteRange] = (),
) -> list[bytes]:
    """Return the bytes after the last page buffer, in parts to write in order.

    - `columns`: Serialised metadata of each column.
    - `start`: Aligned position of the first of these bytes.
    - `global_buffers`: Further global buffers, which are written already.
    """
    buffer = descriptor.SerializeToString()
    first_column = start + len(buffer)
    lengths = np.array([len(column) for column in columns], dtype=np.uint64)
    table = np.empty((len(columns), 2), dtype="<u8")
    table[:, 1] = lengths
    table[:, 0] = np.cumsum(lengths) - lengths + np.uint64(first_column)
    columns_at = first_column + int(lengths.sum())
    footer = _FOOTER.pack(
        first_column,
        columns_at,
        columns_at + table.nbytes,
        1 + len(global_buffers),
        len(columns),
        *_WRITTEN_AS.get(version, version),
        _MAGIC,
    )
    buffers = [ByteRange(start, len(buffer)), *global_buffers]
    entries = b"".join(struct.pack("<QQ", *entry) for entry in buffers)
    return [buffer, b"".join(columns), table.tobytes(), entries, footer]


def _readable(name: str, major: int, minor: int) -> tuple[int, int]:
    version = _READABLE.get((major, minor))
    if version is not None:
        return version
    if (major, minor) < _FIRST_VERSION_2:
        raise UnsupportedFeatureError(
            f"{name}: files of format 0.1 have another container; lance_spark.file.open.open_file "
            "reads both"
        )
    raise UnsupportedFeatureError(
        f"{name}: file format {major}.{minor} is not supported; this release reads 2.0 to 2.3"
    )


def _inside(name: str, label: str, start: int, length: int, limit: int) -> ByteRange:
    if start + length > limit:
        raise CorruptFileError(
            f"{name}: the {label} (bytes {start} to {start + length}) does not end before the "
            f"footer at {limit}; the file is truncated or corrupt"
        )
    return ByteRange(start, length)


def _table(name: str, label: str, raw: Bytes, limit: int) -> OffsetTable:
    # Tables are not aligned, but wider views need alignment.
    table: OffsetTable = np.frombuffer(raw.tobytes(), "<u8").reshape(-1, 2)
    if len(table) <= _FEW_ENTRIES and all(
        start + length <= limit for start, length in table.tolist()
    ):
        return table
    start, length = table[:, 0], table[:, 1]
    # Compared separately, so that no sum can overflow.
    bad = (
        (start > limit) | (length > limit) | (length > np.uint64(limit) - np.minimum(start, limit))
    )
    if bad.any():
        position = int(np.argmax(bad))
        raise CorruptFileError(
            f"{name}: {label} {position} ({int(length[position])} bytes from byte "
            f"{int(start[position])}) lies outside the file; it is truncated or corrupt"
        )
    return table


def align_output(output: OutputFile) -> int:
    """Pad an output to the alignment of buffers; return the position."""
    gap = -output.tell() % ALIGNMENT
    if gap:
        output.write(PADDING * gap)
    return output.tell()


# --------------------------------------------------------------------------------------------------
# Column metadata: the pages of a column, their buffers, and how they are encoded.
#
# A column's metadata is a `lance.file.v2.ColumnMetadata` message. Encodings are serialised
# `google.protobuf.Any` messages, in the message or elsewhere in the file:
#
# ==========  ===============================  ==========================================
# version     encoding of a column             encoding of a page
# ==========  ===============================  ==========================================
# 2.0         /lance.encodings.ColumnEncoding  /lance.encodings.ArrayEncoding
# 2.1, 2.2    /lance.encodings.ColumnEncoding  /lance.encodings21.PageLayout
# 2.3         /lance.encodings.ColumnEncoding  /lance.encodings23.PlanarLayout
# ==========  ===============================  ==========================================
#
# Specification: format/file, "Column metadata"; `protos/file2.proto`.

_COLUMN_TYPE = "/lance.encodings.ColumnEncoding"
_PAGE_TYPE = {
    (2, 0): "/lance.encodings.ArrayEncoding",
    (2, 1): "/lance.encodings21.PageLayout",
    (2, 2): "/lance.encodings21.PageLayout",
    (2, 3): "/lance.encodings23.PlanarLayout",
}
#: ColumnEncoding { values: {} }: the pages have their own encodings.
_VALUES_ENCODING = b"\x0a\x00"
#: ColumnEncoding { blob: { inner: { values: {} } } }: the pages hold positions of the values.
_BLOB_ENCODING = b"\x1a\x04\x0a\x02\x0a\x00"
MAX_ROWS = 2**63 - 1
#: Encodings up to this many bytes recur in many columns and pages, so their parsed form is cached.


def read_columns(tail: Tail, footer: Footer, indices: Sequence[int]) -> list[ColumnMeta]:
    """Parse the metadata of some columns with at most one read, and one more for encodings
    elsewhere.

    Raises CorruptFileError: the column does not exist, or its metadata is damaged or points outside
    the file. Raises UnsupportedEncodingError: the encoding of a page or column is not a message of
    the file version.
    """
    total = len(footer.column_metadata)
    for index in indices:
        if not 0 <= index < total:
            raise CorruptFileError(
                f"{tail.name}: column {index} not found: the file has {total} columns"
            )
    ranges = [ByteRange(*footer.column_metadata[index].tolist()) for index in indices]
    return [
        _parse(tail, footer.version, index, raw.tobytes())
        for index, raw in zip(indices, tail.read(ranges), strict=True)
    ]


def new_column(*, blob: bool = False) -> pb.ColumnMetadata:
    """Return the metadata of a new column without pages; `blob` for blobs of version 2.0."""
    column: pb.ColumnMetadata = pb.ColumnMetadata.FromString(_new_column(blob))
    return column


def add_page(
    column: pb.ColumnMetadata,
    version: tuple[int, int],
    buffers: Sequence[ByteRange],
    num_rows: int,
    priority: int,
    encoding: bytes,
) -> None:
    """Append a page to a column's metadata; see `PageMeta`."""
    page = column.pages.add()
    template_of = _short_page if len(encoding) <= _SHORT else _new_page
    sizes = tuple([buffer.length for buffer in buffers])
    page.MergeFromString(template_of(_PAGE_TYPE[version], sizes, num_rows, encoding, priority))
    page.buffer_offsets.extend([buffer.offset for buffer in buffers])


def _parse(tail: Tail, version: tuple[int, int], index: int, raw: bytes) -> ColumnMeta:
    if len(raw) <= _SHORT:
        # Files of equal size and schema have equal metadata.
        short = _parse_short(raw, version, tail.size)
        if short is not None:
            return short
    return _parse_of(tail, version, index, raw)


@lru_cache(maxsize=1024)
def _parse_short(raw: bytes, version: tuple[int, int], size: int) -> ColumnMeta | None:
    """Parse metadata without references to the file; None if it has references, or is damaged."""
    try:
        return _parse_of(None, version, 0, raw, size)
    except (CorruptFileError, UnsupportedEncodingError):
        return None


def _parse_of(
    tail: Tail | None, version: tuple[int, int], index: int, raw: bytes, size: int = 0
) -> ColumnMeta:
    name = ""
    if tail is not None:
        name, size = tail.name, tail.size
    label = f"{name}, column {index}"
    try:
        proto = pb.ColumnMetadata.FromString(raw)
    except DecodeError as error:
        raise CorruptFileError(f"{label}: its metadata is damaged: {error}") from None
    expected = _PAGE_TYPE[version]
    pages = []
    for number, page in enumerate(proto.pages):
        page_label = f"{label}, page {number}"
        if page.length > MAX_ROWS or page.priority > MAX_ROWS:
            raise CorruptFileError(
                f"{page_label}: {page.length} rows from {page.priority} are too many"
            )
        pages.append(
            PageMeta(
                _buffers(page_label, size, page.buffer_offsets, page.buffer_sizes),
                page.length,
                page.priority,
                _encoding(tail, page_label, page.encoding, expected),
            )
        )
    return ColumnMeta(
        tuple(pages),
        _buffers(label, size, proto.buffer_offsets, proto.buffer_sizes),
        _encoding(tail, label, proto.encoding, _COLUMN_TYPE),
    )


def _buffers(
    label: str, size: int, offsets: Sequence[int], sizes: Sequence[int]
) -> tuple[ByteRange, ...]:
    if len(offsets) != len(sizes):
        raise CorruptFileError(f"{label}: {len(offsets)} buffer offsets, but {len(sizes)} sizes")
    buffers = tuple(map(ByteRange, offsets, sizes))
    for offset, length in buffers:
        if offset + length > size:
            raise CorruptFileError(
                f"{label}: a buffer of {length} bytes at {offset} lies outside the file of {size} "
                "bytes; it is truncated or corrupt"
            )
    return buffers


def _encoding(tail: Tail | None, label: str, encoding: pb.Encoding, expected: str) -> bytes:
    location = encoding.WhichOneof("location")
    if location == "direct":
        raw = encoding.direct.encoding
        short = _unwrapped(raw, expected) if len(raw) <= _SHORT else None
        if short is not None:
            return short
    elif location == "indirect":
        if tail is None:
            raise CorruptFileError(f"{label}: its encoding is elsewhere in the file")
        position = encoding.indirect
        (byte_range,) = _buffers(
            label, tail.size, [position.buffer_location], [position.buffer_length]
        )
        raw = tail.read([byte_range])[0].tobytes()
    else:
        return b""
    wrapped = any_pb2.Any()
    try:
        wrapped.ParseFromString(raw)
    except DecodeError as error:
        raise CorruptFileError(f"{label}: its encoding is damaged: {error}") from None
    if wrapped.type_url.rpartition("/")[2] != expected[1:]:
        raise UnsupportedEncodingError(
            f"{label}: encoded as {wrapped.type_url!r}; this release reads {expected!r} there"
        )
    return bytes(wrapped.value)


@lru_cache(maxsize=256)
def _unwrapped(raw: bytes, expected: str) -> bytes | None:
    """Return the message in an `Any`; None if it is damaged or of another type."""
    try:
        wrapped = any_pb2.Any.FromString(raw)
    except DecodeError:
        return None
    return bytes(wrapped.value) if wrapped.type_url.rpartition("/")[2] == expected[1:] else None


@cache
def _new_column(blob: bool) -> bytes:
    encoding = _direct(_COLUMN_TYPE, _BLOB_ENCODING if blob else _VALUES_ENCODING)
    return pb.ColumnMetadata(encoding=encoding).SerializeToString()


def _new_page(
    type_url: str, sizes: tuple[int, ...], num_rows: int, encoding: bytes, priority: int
) -> bytes:
    """Return the message of a page without the offsets of its buffers."""
    return pb.ColumnMetadata.Page(
        buffer_sizes=sizes, length=num_rows, encoding=_direct(type_url, encoding), priority=priority
    ).SerializeToString()


#: Cached, as pages of many columns differ only in their offsets.
_short_page = lru_cache(maxsize=256)(_new_page)


def _direct(type_url: str, value: bytes) -> pb.Encoding:
    wrapped = any_pb2.Any(type_url=type_url, value=value)
    return pb.Encoding(direct=pb.DirectEncoding(encoding=wrapped.SerializeToString()))


def parts_of(column: ColumnMeta, rows: range, num_rows: int) -> Iterator[BufferRange]:
    """Estimate which bytes of a file some rows of a column need: a part of each buffer.

    All rows of a page are assumed to have the same number of bytes. Short buffers, which are tables
    of chunks or dictionaries, are read whole. For lists of version 2.0 the result can be empty or
    wrong: pages of items do not have the numbers of their rows.

    - `rows`: Inside the file.
    - `num_rows`: Rows of the file.
    """
    from lance_spark.storage.remote import BufferRange

    slots, remainder = divmod(total_rows(column.pages), max(num_rows, 1))
    if remainder:
        return
    slot_range = range(rows.start * slots, rows.stop * slots)
    for number, page_rows in split_rows(slot_range, [page.num_rows for page in column.pages]):
        page = column.pages[number]
        for buffer in page.buffers:
            offset, length = buffer
            if length > MAX_GAP:
                start, stop = (
                    length * row // page.num_rows for row in (page_rows[0], page_rows[-1] + 1)
                )
                yield BufferRange(buffer, offset + start, offset + stop)
            elif length:
                yield BufferRange(buffer, offset, offset + length)
