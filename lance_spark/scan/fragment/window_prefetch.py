"""Prefetch of windows: the bytes of the next windows are fetched while one is decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.open import DataFileReader
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field

#: Bytes that are prefetched beyond the window in work, and one window more: as many requests as run
#: at the same time, of their usual length.
AHEAD_BYTES = 24 * 1024 * 1024
#: A window with a larger part of deleted rows is not read from end to end, and not prefetched.
_MAX_DELETED = 1 / 8


class StoredFields(NamedTuple):
    """Fields that a data file holds, and the column of each by the field's id."""

    file: DataFileReader
    fields: Sequence[Field]
    columns: Mapping[int, int]


def prefetched(
    windows: Iterable[range], stored: Iterable[StoredFields], deleted: RowNumbers
) -> Iterator[range]:
    """Yield windows; request the bytes of the following windows before each.

    Parameters
    ----------
    windows : iterable of range
        In order, without overlap. The caller reads each before it asks for the next.
    stored : iterable of StoredFields
        The fields that are read of each window.
    deleted : int64 array
        Deleted rows, increasing.
    """
    files = [(fields.file, fields) for fields in stored if isinstance(fields.file, FileReader)]
    waiting: deque[tuple[range, int]] = deque()
    prefetched_bytes = 0
    for window in windows:
        num_deleted = int(np.diff(np.searchsorted(deleted, [window.start, window.stop]))[0])
        rows = window if num_deleted <= len(window) * _MAX_DELETED else range(0)
        size = sum(
            file.expect(file_columns.fields, rows, file_columns.columns)
            for file, file_columns in files
        )
        prefetched_bytes += size if waiting else 0
        waiting.append((window, size))
        while prefetched_bytes >= AHEAD_BYTES:
            yield waiting.popleft()[0]
            prefetched_bytes -= waiting[0][1]
            for file, _ in files:
                file.finish()
    for window, _ in waiting:
        yield window
        for file, _ in files:
            file.finish()
