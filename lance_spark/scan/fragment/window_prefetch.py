"""Fetching ahead: the bytes of the next windows of a fragment are fetched while one is decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.open import DataFileReader
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.schema import Field

#: Bytes that are fetched before they are decoded, beyond those of the window in work, and one window more: as many requests as are under
#: way at once, of the length that they mostly have.
AHEAD_BYTES = 24 * 1024 * 1024
#: Windows that have lost a larger part of their rows are not read from end to end.
_MOST_DELETED = 1 / 8


class StoredFields(NamedTuple):
    """Fields that a data file holds, and the column of each by the field's id."""

    file: DataFileReader
    fields: Sequence[Field]
    columns: Mapping[int, int]


def fetched_ahead(
    windows: Iterable[range], stored: Iterable[StoredFields], deleted: RowNumbers
) -> Iterator[range]:
    """Yield windows, once what follows them is being fetched.

    Parameters
    ----------
    windows : iterable of range
        In order, apart from one another. Each is read before the next one is asked for.
    stored : iterable of StoredFields
        What is read of windows.
    deleted : int64 array
        Rows that are deleted, increasing.
    """
    files = [(one.file, one) for one in stored if isinstance(one.file, FileReader)]
    waiting: deque[tuple[range, int]] = deque()
    ahead = 0
    for window in windows:
        lost = int(np.diff(np.searchsorted(deleted, [window.start, window.stop]))[0])
        rows = window if lost <= len(window) * _MOST_DELETED else range(0)
        size = sum(file.expect(one.fields, rows, one.columns) for file, one in files)
        ahead += size if waiting else 0
        waiting.append((window, size))
        while ahead >= AHEAD_BYTES:
            yield waiting.popleft()[0]
            ahead -= waiting[0][1]
            for file, _ in files:
                file.finish()
    for window, _ in waiting:
        yield window
        for file, _ in files:
            file.finish()
