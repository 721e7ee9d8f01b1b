"""Reads several data files as one file with the rows of all.

A small fragment costs as much as opening and reading a file. Pages of files with one schema and
version can be decoded together: the columns are merged to columns of many pages, and the bytes are
concatenated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lance_spark.encoding.meta import ColumnMeta, PageMeta
from lance_spark.encoding.rows import RowNumbers, split_rows
from lance_spark.errors import UnsupportedEncodingError
from lance_spark.file.reader import PAGE_BYTES, FileReader
from lance_spark.file.schema.field import Field
from lance_spark.storage.source import ByteRange, Bytes, JoinedSource


class JoinedReader(FileReader):
    """Reads rows of several files, counted from the first row of the first file.

    - `readers`: At least one, all `can_read_together`. This reader closes them.
    """

    def __init__(self, readers: Sequence[FileReader]) -> None:
        first = readers[0]
        self._parts = readers
        self._joined = JoinedSource(
            [reader._source for reader in readers],
            [reader._tail.all_bytes for reader in readers],
            [reader.ranges for reader in readers],
        )
        rows = sum([reader.num_rows for reader in readers])
        super().__init__(
            self._joined, first._tail, first._footer, first._tree, first._metadata, rows
        )
        self._ranges = self._joined

    def close(self) -> None:
        """Close the files; arrays returned earlier stay valid."""
        super().close()
        for part in self._parts:
            part.close()

    @property
    def is_local(self) -> bool:
        """Whether a read costs no request."""
        return all(part.is_local for part in self._parts)

    def _parts_of(self, rows: RowNumbers) -> list[tuple[FileReader, RowNumbers]]:
        lengths = [part.num_rows for part in self._parts]
        return [(self._parts[number], np.asarray(own)) for number, own in split_rows(rows, lengths)]

    def _load(self, columns: Sequence[int]) -> None:
        missing = sorted({column for column in columns if column not in self._columns})
        if not missing:
            return
        for part in self._parts:
            part._load(missing)
        for number in missing:
            self._columns[number] = self._join([part._columns[number] for part in self._parts])

    def _join(self, columns: Sequence[ColumnMeta]) -> ColumnMeta:
        first = columns[0]
        if any(item.buffers or item.encoding != first.encoding for item in columns):
            raise UnsupportedEncodingError("columns that cannot be read together")
        rows = 0
        pages = []
        for start, part, column in zip(self._joined.starts, self._parts, columns, strict=True):
            for page in column.pages:
                buffers = tuple(
                    [ByteRange(start + position, size) for position, size in page.buffers]
                )
                pages.append(PageMeta(buffers, page.num_rows, rows + page.priority, page.encoding))
            rows += part.num_rows
        return ColumnMeta(tuple(pages), (), first.encoding)


def can_read_together(first: FileReader, second: FileReader) -> bool:
    """Return whether two files can be read together."""
    return first._tree is second._tree and first.version == second.version


def can_join(field: Field, version: tuple[int, int]) -> bool:
    """Return whether a top-level field can be read from several files of a version together.

    Blobs refer to positions in their own file, and pages of nested columns of version 2.0 refer to
    each other.
    """
    if any(node.is_blob for node in field.walk()):
        return False
    return version > (2, 0) or (version == (2, 0) and not field.children)


def max_column_bytes(
    reader: FileReader, fields: Sequence[Field], column_of: Mapping[int, int]
) -> int:
    """Return an upper bound of the decoded bytes of some fields of a file.

    Its pages are in memory, of a local file, or requested.
    """
    total = 0
    estimable = reader.version in ((2, 1), (2, 2))
    if estimable:
        from lance_spark.encoding.v2_1.page import max_decoded_bytes as of_page

    def read(byte_range: ByteRange) -> Bytes:
        (data,) = reader.ranges.read([byte_range])
        return data

    for column in reader.column_metas(fields, column_of):
        for page in column.pages:
            estimate = of_page(page, read) if estimable else None
            total += PAGE_BYTES if estimate is None else estimate
    return total
