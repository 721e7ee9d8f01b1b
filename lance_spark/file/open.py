"""Opens the reader of a data file, by the version in its footer."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from lance_spark.encoding.rows import Rows
from lance_spark.file.footer import Tail, open_tail
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.storage.source import ByteSource

_END = struct.Struct("<HH4s")
_MAGIC = b"LANC"
#: Footers of version 0.1 have 0.0 to 0.2; 0.3 is version 2.0.
_FIRST_VERSION_2 = (0, 3)


class DataFileReader(Protocol):
    """An open data file; `lance_spark.file.reader.FileReader` documents the methods."""

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor version."""
        ...

    @property
    def schema(self) -> Schema:
        """The schema of the file when it was written."""
        ...

    @property
    def source(self) -> ByteSource:
        """The file itself."""
        ...

    @property
    def num_rows(self) -> int:
        """The number of rows, as the file records it."""
        ...

    def read(
        self, fields: Sequence[Field], rows: Rows, column_of: Mapping[int, int] | None = None
    ) -> list[pa.Array]:
        """Read rows of some top-level fields."""
        ...

    def check_columns(
        self, fields: Sequence[Field], column_of: Mapping[int, int] | None = None
    ) -> None:
        """Check that the file has the columns of some fields with a value for each row."""
        ...

    def column_bytes(
        self, fields: Sequence[Field], column_of: Mapping[int, int] | None = None
    ) -> int:
        """Return the stored bytes of the pages of some fields."""
        ...

    def full_page_rows(
        self, fields: Sequence[Field], column_of: Mapping[int, int] | None = None
    ) -> int | None:
        """Return how many rows filled a page of some fields; None if unknown."""
        ...

    def forget_pages(self) -> None:
        """Drop cached page data; the file stays open."""
        ...

    def close(self) -> None:
        """Close the source."""
        ...


def open_file(source: ByteSource, field_ids: Sequence[int] = ()) -> DataFileReader:
    """Open a data file.

    Parameters
    ----------
    source : ByteSource
        The reader closes it.
    field_ids : sequence of int, optional
        Ids of the fields in the file, from the manifest; files of version 0.1 may lack them.

    Raises
    ------
    CorruptFileError
        The file is not a Lance file, or it is damaged.
    UnsupportedFeatureError
        The file's version is unknown.
    """
    tail = open_tail(source)
    if is_legacy(tail):
        # Imported here, as few tables have such files.
        from lance_spark.file.v0_1.reader import LegacyFileReader

        return LegacyFileReader.open(source, field_ids, tail)
    return FileReader.open(source, tail)


def is_legacy(tail: Tail) -> bool:
    """Tell whether the footer of a file is that of version 0.1."""
    if tail.size < _END.size:
        return False
    major, minor, magic = _END.unpack(tail.end[-_END.size :])
    return bool(magic == _MAGIC and (major, minor) < _FIRST_VERSION_2)
