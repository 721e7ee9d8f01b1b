"""Reading a window in halves, where its pages have dictionaries that do not fit one array.

Some clients write files whose pages have more values in their dictionaries, taken together, than the type of the indices can tell. Each
batch has dictionaries of its own, so that fewer rows at a time can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import pyarrow as pa

from lance_spark.errors import InvalidInputError, UnsupportedEncodingError
from lance_spark.file.dictionary_capacity import narrow_indices
from lance_spark.scan.predicates.conditions import Condition

_Found = TypeVar("_Found")
Read = Callable[[range], Iterator[_Found]]


class WindowReader(Protocol):
    """Yields what reading the rows of a window yields."""

    def __call__(self, rows: range, read: Read[_Found], /) -> Iterator[_Found]:
        """Read some rows."""


def window_reader(
    schema: pa.Schema, filters: Iterable[Condition], *, has_blobs: bool
) -> WindowReader:
    """Return what reads the rows of a window, in halves if need be: only dictionaries with indices of few bits can need it.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the columns that are read.
    filters : iterable of Condition
    has_blobs : bool
        Whether there are blobs, which come in pieces since they do not all fit into memory: then the window is read as it is.
    """
    types = [field.type for field in schema]
    types += [path[0].arrow_field.type for one in filters for path in one.paths]
    narrow = any(one is not None for kind in types for one in narrow_indices(kind))
    return read_bisecting if narrow and not has_blobs else _at_once


def _at_once(rows: range, read: Read[_Found]) -> Iterator[_Found]:
    return read(rows)


def read_bisecting(rows: range, read: Read[_Found]) -> Iterator[_Found]:
    """Yield what reading some rows yields; if they do not fit one array, what reading their halves does.

    Parameters
    ----------
    rows : range
    read : callable
        Yields batches, or what else there is of the rows, that fit into memory together.

    Raises
    ------
    LanceError
        What `read` raises, for a single row too if it is about what one array can hold.
    """
    try:
        batches = list(read(rows))
    except (InvalidInputError, UnsupportedEncodingError):
        if len(rows) < 2:
            raise
    else:
        yield from batches
        return
    middle = rows.start + len(rows) // 2
    yield from read_bisecting(range(rows.start, middle), read)
    yield from read_bisecting(range(middle, rows.stop), read)
