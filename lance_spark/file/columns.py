"""Column metadata: the pages of a column, their buffers, and how they are encoded.

A column's metadata is a `lance.file.v2.ColumnMetadata` message. Encodings are serialised
`google.protobuf.Any` messages, in the message or elsewhere in the file:

==========  ===============================  ==========================================
version     encoding of a column             encoding of a page
==========  ===============================  ==========================================
2.0         /lance.encodings.ColumnEncoding  /lance.encodings.ArrayEncoding
2.1, 2.2    /lance.encodings.ColumnEncoding  /lance.encodings21.PageLayout
2.3         /lance.encodings.ColumnEncoding  /lance.encodings23.PlanarLayout
==========  ===============================  ==========================================

Specification: format/file, "Column metadata"; `protos/file2.proto`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from google.protobuf import any_pb2
from google.protobuf.message import DecodeError

from lance_spark.encoding.meta import ColumnMeta, PageMeta, total_rows
from lance_spark.encoding.rows import split_rows
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.file.footer import Footer, Tail
from lance_spark.proto import file2_pb2 as pb
from lance_spark.storage.remote import MAX_GAP
from lance_spark.storage.source import ByteRange

if TYPE_CHECKING:
    from lance_spark.storage.prefetch import BufferRange

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
_SHORT = 512


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
    from lance_spark.storage.prefetch import BufferRange

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
