"""Estimates from metadata which bytes of a file some rows of a column need."""

from __future__ import annotations

from collections.abc import Iterator

from lance_spark.encoding.meta import ColumnMeta, total_rows
from lance_spark.encoding.rows import split_rows
from lance_spark.storage.prefetch import Part
from lance_spark.storage.remote import MAX_GAP


def parts_of(column: ColumnMeta, rows: range, num_rows: int) -> Iterator[Part]:
    """Yield a part of each buffer that some rows of a column take.

    Of a page that is wanted in part, it is taken that its rows have as many bytes each, and that of
    short buffers all is needed: they are tables of chunks, dictionaries. Nothing is known of lists
    of version 2.0: pages of items do not tell which rows these are of.

    Parameters
    ----------
    column : ColumnMeta
    rows : range
        Inside the file.
    num_rows : int
        Rows of the file.
    """
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
                yield Part(buffer, offset + start, offset + stop)
            elif length:
                yield Part(buffer, offset, offset + length)
