"""The metadata of one column and its pages, parsed but not yet interpreted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lance_spark.encoding.rows import Rows
from lance_spark.errors import UnsupportedTypeError
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan, gather_plans


@dataclass(frozen=True, slots=True)
class PageMeta:
    """One page of a column.

    - `buffers`: The page's buffers, already checked to lie inside the file.
    - `num_rows`: Rows of the page, in the column's own domain (format 2.0: items, for a column
      below a list).
    - `priority`: Number of the top-level row that the page starts with.
    - `encoding`: The serialized message that describes the encoding, without its `Any` wrapper.
    """

    buffers: tuple[ByteRange, ...]
    num_rows: int
    priority: int
    encoding: bytes


@dataclass(frozen=True, slots=True)
class ColumnMeta:
    """One column of a file: its pages in order, its buffers, and its `ColumnEncoding`."""

    pages: tuple[PageMeta, ...]
    buffers: tuple[ByteRange, ...] = ()
    encoding: bytes = b""


@dataclass(frozen=True, slots=True)
class EncodedPage:
    """A page ready to be written: its buffers in order and the serialized message that describes
    them.

    A header is the only page of its column: the rows of later pages are added to its rows.
    """

    buffers: tuple[Bytes | bytes, ...]
    num_rows: int
    encoding: bytes
    is_header: bool = False


class TooManyLevelsError(UnsupportedTypeError):
    """The levels of these rows do not fit one page; fewer rows may fit."""


class FieldReader(Protocol):
    """Reads rows of one top-level field of one file, from all its columns and pages."""

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        """Plan the read of `rows`; the result has one value per row, of the Arrow type."""
        ...


class StructReader:
    """Reads structs whose validity is not stored: their children side by side."""

    def __init__(self, dtype: pa.DataType, children: Sequence[FieldReader]) -> None:
        self._dtype = dtype
        self._children = children

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        arrays = yield from gather_plans([child.read(rows) for child in self._children])
        return pa.Array.from_buffers(self._dtype, len(rows), [None], children=arrays)


@dataclass(frozen=True, slots=True)
class PageLocation:
    """Where a page stands, for error messages."""

    file: str
    column: str
    page: int

    def __str__(self) -> str:
        return f"{self.file}, column {self.column!r}, page {self.page}"


def total_rows(pages: Sequence[PageMeta]) -> int:
    """Return the number of rows of all pages."""
    return sum(page.num_rows for page in pages)


# --------------------------------------------------------------------------------------------------
# Metadata of a field that says how its values are stored.

#: Extension of blob columns of version 2.2 and later.
BLOB_V2 = b"lance.blob.v2"
#: Marks blob columns before 2.2, and blob columns in data files.
BLOB_KEY = "lance-encoding:blob"
#: The id of a field, in schemas of Arrow that come from pylance.
FIELD_ID = "lance:field_id"
PACKED_KEYS = ("lance-encoding:packed", "packed")
_TRUE = frozenset({b"true", b"1", b"yes", b"y", b"on"})


def is_true(value: bytes | None) -> bool:
    """Return whether pylance takes a value of metadata for true."""
    return value is not None and value.lower() in _TRUE


def is_packed(metadata: Mapping[str, bytes]) -> bool:
    """Return whether metadata says that a struct is stored as one column, row by row."""
    return any(is_true(metadata.get(key)) for key in PACKED_KEYS)
